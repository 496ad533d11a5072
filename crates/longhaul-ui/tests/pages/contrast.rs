//! The colours of the style against WCAG 2.2, level AA: 4.5 to 1 for texts (1.4.3), 3 to 1 for
//! graphics and the borders of fields (1.4.11).

use std::collections::BTreeMap;

const STYLE: &str = include_str!("../../assets/ui.css");

/// The backgrounds of texts and graphics.
const GROUNDS: [&str; 2] = ["ground", "panel"];

/// Separates rows and panels, without a meaning of its own.
const DECORATION: &str = "line";

type Colour = [u8; 3];

/// The custom properties for light and dark.
fn colours(style: &str) -> BTreeMap<String, [Colour; 2]> {
    let lines = style.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let colour = |text: &str| {
        let digits = text.trim().strip_prefix('#').unwrap();
        let part = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        [part(0), part(2), part(4)]
    };
    let read = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        let both = value.trim().strip_prefix("light-dark(").unwrap().trim_end_matches(");");
        let (light, dark) = both.split_once(',').unwrap();
        (name.to_owned(), [colour(light), colour(dark)])
    };
    lines.map(read).collect()
}

/// As defined by WCAG.
fn luminance(colour: Colour) -> f64 {
    let [red, green, blue] = colour.map(|part| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn contrast(one: Colour, other: Colour) -> f64 {
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    if one > other { one / other } else { other / one }
}

/// All violations: each use of a colour in the style, on every background.
fn faults(style: &str) -> Vec<String> {
    let colours = colours(style);
    let mut faults = Vec::new();
    for declaration in style.split(['{', '}', ';']).map(str::trim) {
        let Some((property, value)) = declaration.split_once(':') else { continue };
        let least = match property.trim() {
            "color" => 4.5,
            "fill" | "stroke" | "border" | "border-color" | "outline" | "accent-color" => 3.0,
            _ => continue,
        };
        let Some((_, named)) = value.split_once("var(--") else { continue };
        let name = named.split(')').next().unwrap();
        if name == DECORATION || GROUNDS.contains(&name) {
            continue;
        }
        for ground in GROUNDS {
            for (mode, word) in ["light", "dark"].iter().enumerate() {
                let found = contrast(colours[name][mode], colours[ground][mode]);
                if found < least {
                    faults.push(format!("{declaration}: {name} on {ground}, {word}: {found:.2}"));
                }
            }
        }
    }
    faults
}

#[test]
fn every_colour_is_told_from_its_ground() {
    assert_eq!(faults(STYLE), Vec::<String>::new());
    assert!(colours(STYLE).len() >= 10, "the colours are read");
}

#[test]
fn contrast_is_computed_as_wcag_does_and_a_faint_colour_is_found() {
    assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 0.01);
    // The usual example: the lightest grey allowed on white.
    assert!((contrast([0x76; 3], [255; 3]) - 4.54).abs() < 0.01);
    let faint = STYLE.replace("color: var(--faint)", "color: var(--line)");
    assert_eq!(faults(&faint), Vec::<String>::new(), "decoration is not looked at");
    let faint = STYLE.replace("--faint: light-dark(#565d66", "--faint: light-dark(#a0a5ab");
    assert!(faults(&faint).iter().any(|it| it.contains("faint on panel, light")));
}

/// The decoration's colour is never used for a text.
#[test]
fn no_text_has_the_colour_of_a_decoration() {
    for declaration in STYLE.split(['{', '}', ';']).map(str::trim) {
        let is_text = declaration.starts_with("color:") || declaration.starts_with("fill:");
        assert!(!is_text || !declaration.contains("var(--line)"), "{declaration}");
    }
}
