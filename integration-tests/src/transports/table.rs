//! Medians and their ranges, as Markdown.

use super::meter::Figures;
use std::fmt::Write;

/// The table of a row: a line for each side, with the figures of all its rounds.
pub(super) fn table(title: &str, sides: &[(String, Vec<Figures>)]) -> String {
    let names: Vec<&str> = sides
        .iter()
        .find_map(|(_, rounds)| rounds.first())
        .map(|figures| figures.0.iter().map(|(name, _)| name.as_str()).collect())
        .unwrap_or_default();
    let mut text = format!("**{title}**\n\n| transport |");
    for name in &names {
        // Writing to a string cannot fail.
        write!(text, " {name} |").ok();
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(names.len()));
    for (side, rounds) in sides {
        write!(text, "\n| {side} |").ok();
        for name in &names {
            let values = rounds.iter().flat_map(|round| &round.0);
            let values = values.filter(|(it, _)| it == name).map(|(_, value)| *value);
            write!(text, " {} |", spread(values.collect())).ok();
        }
    }
    text.push('\n');
    text
}

/// The median, and from where to where its rounds went.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (values.first(), values.last()) else {
        return "-".to_owned();
    };
    let median = number(values.get(values.len() / 2).copied().unwrap_or(f64::NAN));
    if values.len() == 1 {
        median
    } else {
        format!("{median} [{}-{}]", number(*least), number(*most))
    }
}

/// Three digits that count.
fn number(value: f64) -> String {
    if value >= 1_000.0 {
        #[expect(clippy::cast_possible_truncation, reason = "rounded, and far from the limits")]
        let tens = (value / 10.0).round() as i64 * 10;
        let (thousands, rest) = (tens / 1_000, tens % 1_000);
        format!("{thousands},{rest:03}")
    } else if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_become_a_table() {
        let round = |value| Figures(vec![("tasks/s".to_owned(), value)]);
        let sides = [
            ("a".to_owned(), vec![round(12_345.0), round(999.0), round(12.34)]),
            ("b".to_owned(), vec![round(0.123)]),
        ];
        let expected = "**t**\n\n| transport | tasks/s |\n|---|---|\n| a | 999 [12.3-12,350] |\n| b | 0.123 |\n";
        assert_eq!(table("t", &sides), expected);
    }
}
