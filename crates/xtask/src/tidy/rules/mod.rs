//! The rules, one file for each duty.

pub mod attributes;
pub mod clock;
pub mod crate_names;
pub mod edges;
pub mod invariants;
pub mod length;
pub mod module_docs;
pub mod names;
pub mod outside;
pub mod pure;
pub mod wording;

use super::{File, Tree, Violation};

/// A rule on the files of the work tree.
pub type FileRule = fn(&Tree) -> Vec<Violation>;

/// Every rule on files that needs nothing but the files. [`length`] takes its exceptions, [`edges`] the packages.
pub const FILE_RULES: &[FileRule] = &[
    pure::check,
    clock::check,
    crate_names::check,
    invariants::check,
    module_docs::check,
    names::check,
    attributes::check,
    outside::check_hosts,
    outside::check_paths,
    wording::check_words,
    wording::check_whitespace,
];

fn violation(
    file: &File,
    line: usize,
    rule: &'static str,
    message: impl Into<String>,
) -> Violation {
    Violation { path: file.path.clone(), line, rule, message: message.into() }
}

/// Applies a rule on single lines to every file.
fn check_lines(
    tree: &Tree,
    rule: &'static str,
    complaint: impl Fn(&File, &str) -> Option<String>,
) -> Vec<Violation> {
    let lines = tree.files.iter().flat_map(|file| {
        // Not `str::lines`, which would hide a carriage return.
        file.text.split('\n').enumerate().map(move |(index, line)| (file, index + 1, line))
    });
    lines
        .filter_map(|(file, number, line)| {
            Some(violation(file, number, rule, complaint(file, line)?))
        })
        .collect()
}

/// Checks one rule against a planted file: the lines that it complains about.
#[cfg(test)]
fn lines_found(rule: impl Fn(&Tree) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
    let found = rule(&Tree::new([(path.to_owned(), text.to_owned())]));
    found.into_iter().map(|violation| violation.line).collect()
}
