//! Every Rust file opens with what it is for.
//!
//! A `tests.rs` beside its subject is excused: it is the end of another file, and its doc could only repeat its name.

use super::violation;
use crate::tidy::source::Source;
use crate::tidy::{File, Tree, Violation};

/// Finds Rust files that do not begin with a module doc.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust_files()
        .filter(|(file, source)| !is_end_of_a_file(file, source) && !has_module_doc(&file.text))
        .map(|(file, _)| {
            let message = "begins without a `//!` doc: say what the module owns, and why";
            violation(file, 1, "module-docs", message)
        })
        .collect()
}

fn is_end_of_a_file(file: &File, source: &Source) -> bool {
    file.path.ends_with("/tests.rs") && source.production_lines() == 0
}

fn has_module_doc(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty());
    first.and_then(|line| line.strip_prefix("//!")).is_some_and(|doc| !doc.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn a_file_without_a_doc_is_caught() {
        for text in
            ["", "use a;\n", "// Not a doc.\n", "/// Of an item.\nfn a() {}\n", "//!\nuse a;\n"]
        {
            assert_eq!(lines_found(check, "src/a.rs", text), [1], "{text}");
        }
    }

    #[test]
    fn a_file_with_a_doc_passes() {
        assert!(lines_found(check, "src/a.rs", "\n//! What it owns.\nuse a;\n").is_empty());
        assert!(lines_found(check, "docs/a.md", "# Title\n").is_empty());
    }

    #[test]
    fn only_tests_beside_their_subject_are_excused() {
        let check_tests = |declaration: &str, tests: &str| {
            let subject = ("src/a.rs".to_owned(), format!("//! A.\n{declaration} mod tests;\n"));
            let found = check(&Tree::new([subject, (tests.to_owned(), "fn a() {}\n".to_owned())]));
            found.len()
        };
        assert_eq!(check_tests("#[cfg(test)]", "src/a/tests.rs"), 0);
        assert_eq!(check_tests("", "src/a/tests.rs"), 1);
        assert_eq!(check_tests("#[cfg(test)]", "src/a/tests/more.rs"), 1);
        assert_eq!(check_tests("", "tests/a.rs"), 1);
    }
}
