//! Every test runs, and says what it expects.
//!
//! Why: an ignored test is forgotten, and a test that should panic passes for any panic. Slow suites are switched on by an
//! environment variable and say what they skip.

use super::violation;
use crate::tidy::text::has_word;
use crate::tidy::{Tree, Violation};

const BANNED: &[(&str, &str)] = &[
    ("ignore", "run the test, or switch its suite on by an environment variable"),
    ("should_panic", "catch the panic and compare its message"),
];

/// Finds attributes that keep a test from running or from saying what it expects.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust_files() {
        let mut line = 1;
        for (index, part) in source.code.split("#[").enumerate() {
            let attribute = part.split(']').next().unwrap_or_default();
            // What precedes the first `#[` is no attribute.
            for (word, advice) in BANNED.iter().filter(|_| index > 0) {
                if has_word(attribute, word) {
                    let message = format!("`{word}` on a test: {advice}");
                    violations.push(violation(file, line, "attributes", message));
                }
            }
            line += part.matches('\n').count();
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[track_caller]
    fn check_attribute(attribute: &str, caught: bool) {
        let text = format!("#[test]\nfn a() {{}}\n\n#[{attribute}]\n#[test]\nfn b() {{}}\n");
        let expected: &[usize] = if caught { &[4] } else { &[] };
        assert_eq!(lines_found(check, "tests/a.rs", &text), expected, "{attribute}");
    }

    #[test]
    fn tests_that_do_not_run_are_caught() {
        for attribute in [
            concat!("ign", "ore"),
            concat!("ign", "ore = \"slow\""),
            concat!("should", "_panic"),
            concat!("should", "_panic(expected = \"a\")"),
            concat!("cfg_attr(windows, ign", "ore)"),
        ] {
            check_attribute(attribute, true);
        }
    }

    #[test]
    fn other_attributes_pass() {
        for attribute in
            ["expect(clippy::ignored_unit_patterns)", "doc = \"ignore\"", "track_caller"]
        {
            check_attribute(attribute, false);
        }
        assert!(lines_found(check, "src/a.rs", "let a = [ignore, should_panic];").is_empty());
    }
}
