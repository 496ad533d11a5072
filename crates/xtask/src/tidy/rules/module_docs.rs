//! Every Rust file opens with what it is for.

use super::violation;
use crate::tidy::{Tree, Violation};

/// Finds Rust files that do not begin with a module doc.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust_files()
        .filter(|(file, _)| !has_module_doc(&file.text))
        .map(|(file, _)| {
            let message = "begins without a `//!` doc: say what the module owns, and why";
            violation(file, 1, "module-docs", message)
        })
        .collect()
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
}
