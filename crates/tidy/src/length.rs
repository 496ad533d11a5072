//! No file is too long to be read in one sitting. Its tests do not count.

use crate::tree::{Tree, assert_none, repository, tree};

/// Lines outside of tests.
const LINES_MAX: usize = 500;

fn violations(tree: &Tree) -> Vec<String> {
    let files = tree.iter().filter(|(_, file)| !file.is_test);
    let lengths = files.filter_map(|(path, file)| {
        Some((path, file.text.lines().count() - file.code.as_ref()?.test_lines))
    });
    lengths
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines outside its tests, of {LINES_MAX}"))
        .collect()
}

#[test]
fn no_file_is_too_long() {
    assert_none(&violations(repository()));
}

#[test]
fn a_long_file_is_found() {
    let lines = |count| "a;\n".repeat(count);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(700));
    for (path, text, is_found) in [
        ("src/a.rs", lines(500), false),
        ("src/a.rs", lines(501), true),
        ("src/a.rs", lines(500) + &tests, false),
        ("src/a.rs", lines(501) + &tests, true),
        ("integration-tests/tests/a.rs", lines(501), false),
        ("docs/a.md", lines(501), false),
    ] {
        let violations = violations(&tree([(path, text.as_str())]));
        assert_eq!(violations.len(), usize::from(is_found), "{path}: {violations:?}");
    }
}
