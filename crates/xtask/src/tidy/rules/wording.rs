//! Nothing is left half-done in a file, and nothing invisible at the end of a line.

use super::check_lines;
use crate::tidy::text::has_word;
use crate::tidy::{Tree, Violation};

/// Marks of unfinished work. Written in two parts, so that this file passes its own rule.
const WORDS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Finds marks of unfinished work.
#[must_use]
pub fn check_words(tree: &Tree) -> Vec<Violation> {
    check_lines(tree, "words", |_, line| {
        let word = WORDS.iter().find(|word| has_word(line, word))?;
        Some(format!("`{word}` belongs in the tracker: finish it, or say what is not done and why"))
    })
}

/// Finds white space at the end of lines, carriage returns among it.
#[must_use]
pub fn check_whitespace(tree: &Tree) -> Vec<Violation> {
    let mut found = check_lines(tree, "whitespace", |_, line| {
        line.ends_with(char::is_whitespace).then(|| "white space at the end of the line".to_owned())
    });
    // What is fed to parsers is bytes, whatever they look like.
    found.retain(|it| !it.path.contains("/corpus/"));
    found
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn unfinished_work_is_caught() {
        for word in WORDS {
            for path in ["src/a.rs", "docs/a.md", "a.toml"] {
                let text = format!("a\n# {word}: b\n({word})\n");
                assert_eq!(lines_found(check_words, path, &text), [2, 3], "{word} in {path}");
            }
        }
    }

    #[test]
    fn longer_and_quieter_words_pass() {
        let text = format!("mktemp a.{}\nMAS{}\ntodo = \"deny\"\n", "X".repeat(6), WORDS[0]);
        assert!(lines_found(check_words, "a.sh", &text).is_empty());
    }

    #[test]
    fn trailing_white_space_is_caught() {
        let text = "a\nb \nc\t\nd\r\n\n  e\n";
        assert_eq!(lines_found(check_whitespace, "docs/a.md", text), [2, 3, 4]);
    }
}
