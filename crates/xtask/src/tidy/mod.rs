//! What the compiler and clippy do not check: the shape of the code base.
//!
//! Each rule is a pure function from the files to the places that break it, and is tested against planted violations.
//! `tests/tidy.rs` reads the work tree and applies them all; [`exceptions`] is the only place that excuses a file.
//!
//! Invariant: a rule reads nothing but its arguments, so that a planted violation and a real one take the same path.

pub mod exceptions;
pub mod rules;
pub mod source;
pub mod text;

use exceptions::{CEILINGS, EXCEPTIONS};
use source::Source;
use std::collections::BTreeSet;
use std::fmt;

/// A file of the work tree.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the top of the work tree, with `/` between its parts.
    pub path: String,
    /// What the file holds.
    pub text: String,
    /// The file taken apart, if it is a Rust file.
    pub rust: Option<Source>,
}

/// All text files of a work tree.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The files, ordered by path.
    pub files: Vec<File>,
}

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file.
    pub path: String,
    /// The line, from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// Name of the rule.
    pub rule: &'static str,
    /// What is wrong, and what to do instead.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, message } = self;
        write!(f, "{path}:{line}: [{rule}] {message}")
    }
}

impl Tree {
    /// Takes the files apart and finds out which of them are tests.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut files: Vec<File> = files
            .into_iter()
            .map(|(path, text)| {
                let rust = path.ends_with(".rs").then(|| Source::parse(&text));
                File { path, text, rust }
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let test_modules: BTreeSet<String> = files.iter().flat_map(test_module_paths).collect();
        for file in &mut files {
            let declared = test_modules
                .iter()
                .any(|module| is_module(&file.path, module) || lies_under(&file.path, module));
            if let Some(source) = &mut file.rust
                && (declared || in_test_folder(&file.path))
            {
                source.make_test();
            }
        }
        Self { files }
    }

    /// The file at this path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The Rust files with their sources.
    pub fn rust_files(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }
}

/// Applies every rule that looks at files, and returns what the listed exceptions do not excuse.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations: Vec<Violation> =
        rules::FILE_RULES.iter().flat_map(|rule| rule(tree)).collect();
    violations.extend(rules::length::check(tree, CEILINGS));
    let mut kept = exceptions::apply(violations, EXCEPTIONS);
    kept.sort();
    kept
}

/// Whether the file holds the module at `module`, a path without `.rs`.
#[must_use]
pub fn is_module(path: &str, module: &str) -> bool {
    path.strip_suffix(".rs") == Some(module)
}

/// Whether the file lies in the folder.
#[must_use]
pub fn lies_under(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn test_module_paths(file: &File) -> Vec<String> {
    let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let base = if matches!(name, "mod" | "lib" | "main") { folder } else { stem };
    let modules = file.rust.iter().flat_map(|source| &source.test_modules);
    modules.map(|module| format!("{base}/{module}")).collect()
}

fn in_test_folder(path: &str) -> bool {
    // The folder `tests` beside a `src`, or the one at the top; a module `src/…/tests` must be declared for tests.
    !path.contains("src/") && path.split('/').any(|part| matches!(part, "tests" | "benches"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::new(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())))
    }

    #[track_caller]
    fn check_is_test(files: &[(&str, &str)], path: &str, expected: bool) {
        let tree = tree(files);
        let (_, source) = tree.rust_files().find(|(file, _)| file.path == path).unwrap();
        assert_eq!(source.production.trim().is_empty(), expected, "{path}");
    }

    #[test]
    fn files_declared_for_tests_are_tests() {
        let fold = ("src/protocol/fold.rs", "#[cfg(test)] mod tests; fn fold() {}");
        let module = ("src/protocol/mod.rs", "mod fold; #[cfg(test)] mod model;");
        let files = [
            fold,
            module,
            ("src/protocol/fold/tests.rs", "x"),
            ("src/protocol/fold/tests/more.rs", "x"),
            ("src/protocol/model/mod.rs", "x"),
            ("src/protocol/tests.rs", "x"),
        ];
        check_is_test(&files, "src/protocol/fold.rs", false);
        check_is_test(&files, "src/protocol/fold/tests.rs", true);
        check_is_test(&files, "src/protocol/fold/tests/more.rs", true);
        check_is_test(&files, "src/protocol/model/mod.rs", true);
        check_is_test(&files, "src/protocol/tests.rs", false);
    }

    #[test]
    fn folders_of_tests_are_tests() {
        for (path, expected) in [
            ("crates/a/tests/x.rs", true),
            ("tests/x/y.rs", true),
            ("integration-tests/src/lib.rs", false),
            ("crates/a/src/tests/x.rs", false),
        ] {
            check_is_test(&[(path, "x")], path, expected);
        }
    }

    #[test]
    fn a_violation_reads_like_a_compiler_message() {
        let violation = Violation {
            path: "src/a.rs".into(),
            line: 3,
            rule: "pure",
            message: "no clocks here".into(),
        };
        assert_eq!(violation.to_string(), "src/a.rs:3: [pure] no clocks here");
    }

    #[test]
    fn every_rule_on_files_is_applied() {
        let banned = concat!("TO", "DO");
        let folder = concat!("/ho", "me/x");
        let text = format!("async fn a() {{ pulsar::b(Utc::now) }} // {banned} {folder} \n");
        let long = "\n".repeat(600);
        let attribute = "#[ignore]";
        let host = concat!("// crates", ".io");
        let tree = tree(&[
            ("src/protocol/fold.rs", &format!("{text}{attribute}\n{host}{long}")),
            ("src/protocol/invariants/ids.rs", "//! C-01"),
            ("crates/longhaul-broker/src/a.rs", "//! A.\nlet it = 1;"),
        ]);
        let found: BTreeSet<&str> = check(&tree).into_iter().map(|found| found.rule).collect();
        let expected = [
            "attributes",
            "clock",
            "crate-names",
            "hosts",
            "invariants",
            "length",
            "module-docs",
            "names",
            "paths",
            "pure",
            "whitespace",
            "words",
        ];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }
}
