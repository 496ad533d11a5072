//! A Rust file as the rules see it: without comments and literals, and with its test code told apart.
//!
//! The reader is lexical. It knows comments, literals, attributes and matching brackets, and nothing else of the
//! language; that is enough for the rules, and keeps a parser out of the dependencies.
//!
//! Invariant: blanking keeps every line break, so that a line number in the blanked text is one in the file.

/// A Rust file, taken apart.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The file with comments and the contents of literals blanked out.
    pub code: String,
    /// [`Source::code`] with the test code blanked out as well.
    pub production: String,
    /// Names of the modules that are declared for tests only and live in a file of their own.
    pub test_modules: Vec<String>,
    /// For each line, whether it is part of the test code.
    test_lines: Vec<bool>,
}

impl Source {
    /// Takes a Rust file apart.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let code = blank_comments_and_literals(text);
        let chars: Vec<char> = code.chars().collect();
        let mut production = String::with_capacity(code.len());
        let mut test_modules = Vec::new();
        let mut test_lines = vec![false; text.lines().count()];
        let mut line = 0;
        let mut regions = test_regions(&chars).into_iter().peekable();
        for (at, &current) in chars.iter().enumerate() {
            while let Some(region) = regions.next_if(|region| region.end <= at) {
                test_modules.extend(file_module(chars.get(region.item..region.end)));
            }
            let in_test = regions.peek().is_some_and(|region| region.start <= at);
            if let Some(test_line) = test_lines.get_mut(line) {
                *test_line |= in_test;
            }
            line += usize::from(current == '\n');
            production.push(if in_test { blank(current) } else { current });
        }
        test_modules
            .extend(regions.filter_map(|region| file_module(chars.get(region.item..region.end))));
        Self { code, production, test_modules, test_lines }
    }

    /// Declares the whole file test code: it lies in a folder of tests, or its module is declared for tests only.
    pub fn make_test(&mut self) {
        self.production = self.code.chars().map(blank).collect();
        self.test_lines.fill(true);
    }

    /// Whether the line with this index (from 0) is test code.
    #[must_use]
    pub fn is_test_line(&self, index: usize) -> bool {
        self.test_lines.get(index).copied().unwrap_or(false)
    }

    /// The number of lines that are not test code.
    #[must_use]
    pub fn production_lines(&self) -> usize {
        self.test_lines.iter().filter(|is_test| !**is_test).count()
    }
}

fn blank(character: char) -> char {
    if character == '\n' { '\n' } else { ' ' }
}

fn blank_comments_and_literals(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    let mut after_word = false;
    while let Some(rest @ [current, ..]) = chars.get(at..) {
        let length = blanked_length(rest, after_word).min(rest.len());
        if length == 0 {
            code.push(*current);
        } else {
            code.extend(rest.iter().take(length).copied().map(blank));
        }
        after_word = length == 0 && (current.is_alphanumeric() || *current == '_');
        at += length.max(1);
    }
    code
}

/// The length of the comment or literal that `rest` begins with; 0 when it begins with code.
fn blanked_length(rest: &[char], after_word: bool) -> usize {
    match rest {
        ['/', '/', ..] => rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment_length(rest),
        ['"', ..] => string_length(rest),
        ['r', '"' | '#', ..] if !after_word => raw_string_length(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !after_word => raw_string_length(rest, 2),
        // A quote opens a character when another closes it at once; otherwise it begins a lifetime.
        ['\'', '\\', ..] => {
            rest.iter().skip(3).position(|c| *c == '\'').map_or(rest.len(), |closing| closing + 4)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

fn block_comment_length(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        match rest.get(at..).unwrap_or_default() {
            ['/', '*', ..] => {
                depth += 1;
                at += 2;
            }
            ['*', '/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            [_, ..] => at += 1,
            [] => return at,
        }
    }
}

fn string_length(rest: &[char]) -> usize {
    let mut at = 1;
    loop {
        match rest.get(at..).unwrap_or_default() {
            ['\\', ..] => at += 2,
            ['"', ..] => return at + 1,
            [_, ..] => at += 1,
            [] => return at,
        }
    }
}

/// The length of a raw string whose prefix has `prefix` letters; 0 when it is a raw identifier such as `r#type`.
fn raw_string_length(rest: &[char], prefix: usize) -> usize {
    let hashes = rest.iter().skip(prefix).take_while(|c| **c == '#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&'"') {
        return 0;
    }
    let closes = |quote: usize| {
        rest.get(quote) == Some(&'"')
            && rest.iter().skip(quote + 1).take(hashes).filter(|c| **c == '#').count() == hashes
    };
    (open + 1..rest.len()).find(|quote| closes(*quote)).map_or(rest.len(), |q| q + 1 + hashes)
}

/// A stretch of test code in the blanked file.
struct Region {
    /// Where its first attribute begins.
    start: usize,
    /// Where the item behind the attributes begins.
    item: usize,
    /// The position behind its last character.
    end: usize,
}

fn test_regions(chars: &[char]) -> Vec<Region> {
    let mut regions = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let Some(attribute) = attribute_at(chars, at) else {
            at += 1;
            continue;
        };
        if !attribute.for_tests {
            at = attribute.end;
        } else if attribute.inner {
            // The attribute speaks of what encloses it, in practice the file.
            return vec![Region { start: 0, item: 0, end: chars.len() }];
        } else {
            let item = item_start(chars, attribute.end);
            let end = item_end(chars, item);
            regions.push(Region { start: at, item, end });
            at = end;
        }
    }
    regions
}

struct Attribute {
    inner: bool,
    for_tests: bool,
    end: usize,
}

fn attribute_at(chars: &[char], at: usize) -> Option<Attribute> {
    let (inner, open) = match chars.get(at..)? {
        ['#', '[', ..] => (false, at + 1),
        ['#', '!', '[', ..] => (true, at + 2),
        _ => return None,
    };
    let end = closing(chars, open);
    let body: String = chars.get(open + 1..end)?.iter().filter(|c| !c.is_whitespace()).collect();
    let for_tests = body.starts_with("cfg(test)") || body.starts_with("cfg(all(test,");
    Some(Attribute { inner, for_tests, end })
}

/// The position behind the bracket that closes the one at `open`.
fn closing(chars: &[char], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, current) in chars.iter().enumerate().skip(open) {
        match current {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    chars.len()
}

fn item_start(chars: &[char], after: usize) -> usize {
    let mut at = after;
    loop {
        if chars.get(at).is_some_and(|c| c.is_whitespace()) {
            at += 1;
        } else if let Some(attribute) = attribute_at(chars, at) {
            at = attribute.end;
        } else {
            return at;
        }
    }
}

/// The position behind the item: behind its body, or else behind its semicolon. A field or variant ends no later than the
/// type that holds it.
fn item_end(chars: &[char], start: usize) -> usize {
    let mut at = start;
    while let Some(current) = chars.get(at) {
        match current {
            '{' => return closing(chars, at),
            '(' | '[' => at = closing(chars, at),
            ';' => return at + 1,
            '}' => return at,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The name in `mod name;`, with any visibility before it.
fn file_module(item: Option<&[char]>) -> Option<String> {
    let item: String = item?.iter().collect();
    let declaration = item.trim().strip_suffix(';')?;
    let mut words = declaration.split_whitespace().rev();
    let name = words.next()?;
    (words.next()? == "mod").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, code: &str, production: &str) {
        let source = Source::parse(text);
        assert_eq!(source.code, code, "code");
        assert_eq!(source.production, production, "production");
    }

    #[test]
    fn comments_are_blanked() {
        check("a // b\nc", "a     \nc", "a     \nc");
        check("a /* b /* c */ d */ e", "a                   e", "a                   e");
        check("/* open", "       ", "       ");
    }

    #[test]
    fn literals_are_blanked() {
        for (text, code) in [
            (r#"f("a\"b", c)"#, "f(      , c)"),
            (r##"f(r#"a"b"#, c)"##, "f(        , c)"),
            (r#"f(br"a\", c)"#, "f(      , c)"),
            (r"f('a', '\'', '\u{41}', c)", "f(   ,     ,         , c)"),
            ("f(b'a', c)", "f(b   , c)"),
            ("\"a\nb\"", "  \n  "),
        ] {
            check(text, code, code);
        }
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        for text in ["fn f<'a>(x: &'a str)", "r#type + bar#b", "'outer: loop {}"] {
            check(text, text, text);
        }
    }

    #[test]
    fn items_for_tests_are_told_apart() {
        let text = "a\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    b\n}\nc\n";
        let source = Source::parse(text);
        assert_eq!(source.production.split_whitespace().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(source.production_lines(), 2);
        assert!(source.is_test_line(4) && !source.is_test_line(6));
        for item in ["use a::{b, c};", "fn f() -> [u8; 2] { x; y }", "const A: [u8; 2] = [1, 2];"] {
            let source = Source::parse(&format!("#[cfg(all(test, unix))] {item} rest"));
            let rest = source.production.trim().trim_start_matches(';').trim();
            assert_eq!(rest, "rest", "{item}");
        }
    }

    #[test]
    fn features_are_not_tests() {
        let text = "#[cfg(feature = \"testing\")] mod a { b } #[cfg(not(test))] fn c() {}";
        let source = Source::parse(text);
        assert_eq!(source.production, source.code);
    }

    #[test]
    fn modules_for_tests_are_named() {
        let text = "#[cfg(test)] mod inline { mod x; }\n#[cfg(test)] pub(crate) mod tests;\n#[cfg(test)]\nmod more;";
        assert_eq!(Source::parse(text).test_modules, ["tests", "more"]);
    }

    #[test]
    fn an_inner_attribute_covers_the_file() {
        let source = Source::parse("//! Doc.\n#![cfg(test)]\nfn a() {}\n");
        assert_eq!(source.production_lines(), 0);
        assert_eq!(source.production.trim(), "");
    }
}
