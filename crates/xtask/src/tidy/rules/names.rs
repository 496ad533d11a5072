//! No value is called `it`.
//!
//! Why: the word says nothing of what the value is, and where two of them meet it does not even say which one is meant.
//! What else a value is called is for the reviewer to judge.

use super::violation;
use crate::tidy::text::has_word;
use crate::tidy::{Tree, Violation, lies_under};

/// Where every value has a name. The rest of the project still has some hundred that are called `it`.
const FOLDERS: &[&str] = &["crates/longhaul-broker", "crates/longhaul-transport"];

/// Finds values that are called `it`, in tests too.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust_files()
        .filter(|(file, _)| FOLDERS.iter().any(|folder| lies_under(&file.path, folder)))
        .flat_map(|(file, source)| {
            let lines = source.code.lines().zip(1..).filter(|(line, _)| has_word(line, "it"));
            lines.map(|(_, number)| {
                violation(file, number, "names", "`it` is no name: say what the value is")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[track_caller]
    fn check_code(path: &str, code: &str, caught: bool) {
        let expected: &[usize] = if caught { &[2] } else { &[] };
        let text = format!("//! Says what it is for.\n{code}\n");
        assert_eq!(lines_found(check, path, &text), expected, "{path}: {code}");
    }

    #[test]
    fn a_value_without_a_name_is_caught() {
        for code in [
            "let it = 1;",
            "let mut it = 1;",
            "names.iter().map(|it| it.len())",
            "names.iter().any(|&it| it)",
            "names.retain(|_, it| !it.is_empty());",
            "if let Some(it) = found {}",
            "let (first, it) = both;",
            "match found { it => {} }",
            "for it in 0..9 {}",
            "fn check(it: &str) {}",
            "#[cfg(test)] mod tests { fn a() { let it = 1; } }",
        ] {
            for path in ["crates/longhaul-broker/src/a.rs", "crates/longhaul-broker/tests/a.rs"] {
                check_code(path, code, true);
            }
        }
    }

    #[test]
    fn the_word_passes_where_it_is_no_value() {
        for code in [
            "let item = split(unit);",
            "// Take it.",
            "/// What it is.\nfn a() {}",
            "panic!(\"it is gone\");",
            "let with_it = its.it_is;",
        ] {
            check_code("crates/longhaul-broker/src/a.rs", code, false);
        }
    }

    #[test]
    fn only_what_has_names_already_is_watched() {
        check_code("crates/longhaul-transport/src/a.rs", "let it = 1;", true);
        for path in ["src/a.rs", "crates/longhaul-broker-more/src/a.rs"] {
            check_code(path, "let it = 1;", false);
        }
    }
}
