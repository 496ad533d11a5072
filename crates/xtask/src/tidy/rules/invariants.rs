//! Every invariant of the protocol has one id, and the same id in the code, in the document and in a test.
//!
//! An id is `C-` and two digits. `src/protocol/invariants/ids.rs` defines the ids; a test uses one by naming the id or the
//! constant that carries it in its code. What a comment says does not count.
//!
//! Where the protocol is decided nothing is asserted in debug builds only: production asks the invariants always.

use super::violation;
use crate::tidy::text::{code_paths, has_word};
use crate::tidy::{File, Tree, Violation, lies_under};
use std::collections::{BTreeMap, BTreeSet};

const DEFINITIONS: &str = "src/protocol/invariants/ids.rs";
const DOCUMENT: &str = "docs/protocol.md";

/// The tidy rules plant ids of their own.
const PLANTED: &str = "crates/xtask";

/// The folder whose sources serve tests only.
const TEST_SUPPORT: &str = "integration-tests";

/// Where the protocol is decided.
const DECIDING: &[&str] = &["src/protocol", "src/worker/machine", "src/worker/partition"];

const RULE: &str = "invariants";

/// Finds ids that are undefined, undescribed or untested, and rules that production does not ask.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = check_ids(tree);
    let deciding = |path: &str| DECIDING.iter().any(|folder| lies_under(path, folder));
    for (file, source) in tree.rust_files().filter(|(file, _)| deciding(&file.path)) {
        for path in code_paths(&source.production) {
            if path.segments.last().is_some_and(|name| name.starts_with("debug_assert")) {
                let message = "a debug assertion guards nothing in production: ask an invariant";
                violations.push(violation(file, path.line, RULE, message));
            }
        }
    }
    violations
}

fn check_ids(tree: &Tree) -> Vec<Violation> {
    let Some(definitions) = tree.get(DEFINITIONS) else { return Vec::new() };
    let Some(document) = tree.get(DOCUMENT) else {
        let message = format!("its ids must be described in {DOCUMENT}, which does not exist");
        return vec![violation(definitions, 0, RULE, message)];
    };
    let defined = first_lines(definitions);
    let described: BTreeSet<String> = ids(&document.text).into_iter().collect();
    let constants = constants(&definitions.text);
    let tests = test_text(tree);
    let mut violations = Vec::new();
    for (id, line) in &defined {
        if !described.contains(id) {
            let message = format!("{id} is not described in {DOCUMENT}");
            violations.push(violation(definitions, *line, RULE, message));
        }
        let constant = constants.get(id).filter(|name| !name.is_empty());
        if !has_word(&tests, id) && !constant.is_some_and(|name| has_word(&tests, name)) {
            let message = format!("{id} is used in no test");
            violations.push(violation(definitions, *line, RULE, message));
        }
    }
    let others = tree
        .rust_files()
        .filter(|(file, _)| file.path != DEFINITIONS && !lies_under(&file.path, PLANTED));
    for (file, _) in others {
        for (id, line) in first_lines(file).into_iter().filter(|(id, _)| !defined.contains_key(id))
        {
            let message = format!("{id} is not defined in {DEFINITIONS}");
            violations.push(violation(file, line, RULE, message));
        }
    }
    violations
}

/// The ids of the file, each with its first line.
fn first_lines(file: &File) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for (index, line) in file.text.lines().enumerate() {
        for id in ids(line) {
            lines.entry(id).or_insert(index + 1);
        }
    }
    lines
}

/// The constant that carries each id; empty when a constant carries several, since its use says nothing of one of them.
fn constants(definitions: &str) -> BTreeMap<String, String> {
    let mut carriers: BTreeMap<String, String> = BTreeMap::new();
    let mut carried: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in definitions.lines() {
        let code = line.split("//").next().unwrap_or_default();
        if let Some((_, declaration)) = code.split_once("const ") {
            current = code_paths(declaration)
                .first()
                .and_then(|path| path.segments.first().cloned())
                .unwrap_or_default();
        }
        for id in ids(code) {
            carried.entry(current.clone()).or_default().insert(id.clone());
            carriers.entry(id).or_insert_with(|| current.clone());
        }
    }
    for name in carriers.values_mut() {
        if carried.get(name).is_some_and(|ids| ids.len() > 1) {
            name.clear();
        }
    }
    carriers
}

/// The code of tests with its literals, but without comments: a sentence about an invariant checks nothing.
fn test_text(tree: &Tree) -> String {
    let mut text = String::new();
    for (file, source) in tree.rust_files().filter(|(file, _)| !lies_under(&file.path, PLANTED)) {
        let serves_tests = lies_under(&file.path, TEST_SUPPORT);
        for (index, line) in file.text.lines().enumerate() {
            if serves_tests || source.is_test_line(index) {
                text.push_str(line.split("//").next().unwrap_or_default());
                text.push('\n');
            }
        }
    }
    text
}

fn ids(text: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for (at, prefix) in text.match_indices("C-") {
        let rest = text.get(at..).unwrap_or_default();
        let id: String = rest.chars().take(prefix.len() + 2).collect();
        let digits = id.chars().skip(prefix.len()).filter(char::is_ascii_digit).count();
        if digits == 2 && has_id_boundaries(text, at, &id) {
            ids.push(id);
        }
    }
    ids
}

fn has_id_boundaries(text: &str, at: usize, id: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let before = text.get(..at).unwrap_or_default();
    let after = text.get(at + id.len()..).unwrap_or_default();
    !before.ends_with(is_part) && !after.starts_with(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! Ids.\npub const EPOCHS_RISE: &str = \"C-01\";\n";

    #[track_caller]
    fn check_tree(files: &[(&str, &str)], expected: &[&str]) {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let found = check(&Tree::new(files));
        let messages: Vec<String> =
            found.iter().map(|v| format!("{}:{} {}", v.path, v.line, v.message)).collect();
        assert_eq!(messages, expected);
    }

    #[test]
    fn ids_have_two_digits_and_boundaries() {
        assert_eq!(ids("C-01, (C-20) `C-33`."), ["C-01", "C-20", "C-33"]);
        assert!(ids("C-1 C-001 MAC-01 RFC-C-01 C-0a C-").is_empty());
    }

    #[test]
    fn an_id_that_is_described_and_tested_passes() {
        let document = (DOCUMENT, "C-01: epochs rise.");
        for test in ["check(invariants::EPOCHS_RISE);\n", "f(\"C-01\")\n"] {
            let tests = ("integration-tests/tests/model.rs", test);
            check_tree(&[(DEFINITIONS, CODE), document, tests], &[]);
            let unit = format!("#[cfg(test)]\nmod tests {{\n{test}}}\n");
            check_tree(&[(DEFINITIONS, CODE), document, ("src/a.rs", &unit)], &[]);
        }
    }

    #[test]
    fn an_untested_id_is_caught() {
        let untested = &["src/protocol/invariants/ids.rs:2 C-01 is used in no test"];
        let files =
            [(DEFINITIONS, CODE), (DOCUMENT, "C-01"), ("src/a.rs", "EPOCHS_RISE; \"C-01\"")];
        check_tree(&files, untested);
    }

    /// An id in any comment of a test counted as a test of it.
    #[test]
    fn an_id_in_a_comment_is_no_test() {
        let untested = &["src/protocol/invariants/ids.rs:2 C-01 is used in no test"];
        for test in ["// C-01\n", "/// EPOCHS_RISE\nfn a() {}\n", "f(); // C-01\n"] {
            let tests = ("integration-tests/tests/model.rs", test);
            check_tree(&[(DEFINITIONS, CODE), (DOCUMENT, "C-01"), tests], untested);
        }
    }

    #[test]
    fn a_list_of_all_ids_tests_none_of_them() {
        let code = "pub const ALL: &[&str] = &[\n    \"C-01\",\n    \"C-02\",\n];\n";
        let tests = ("tests/a.rs", "check(ALL, \"C-02\");");
        let untested = &["src/protocol/invariants/ids.rs:2 C-01 is used in no test"];
        check_tree(&[(DEFINITIONS, code), (DOCUMENT, "C-01 C-02"), tests], untested);
    }

    #[test]
    fn an_undescribed_id_is_caught() {
        let tests = ("tests/a.rs", "f(\"C-01\")");
        let expected =
            &["src/protocol/invariants/ids.rs:2 C-01 is not described in docs/protocol.md"];
        check_tree(&[(DEFINITIONS, CODE), (DOCUMENT, "C-02"), tests], expected);
    }

    #[test]
    fn an_undefined_id_is_caught() {
        let tests = ("tests/a.rs", "f(\"C-01\")\n// C-07\n");
        let expected = &["tests/a.rs:2 C-07 is not defined in src/protocol/invariants/ids.rs"];
        check_tree(&[(DEFINITIONS, CODE), (DOCUMENT, "C-01"), tests], expected);
    }

    /// What a claim and a start must not break was looked at by nothing but debug builds.
    #[test]
    fn a_debug_assertion_is_caught_where_the_protocol_is_decided() {
        let planted = "fn a() {\n    debug_assert!(true);\n}\n";
        let message = "a debug assertion guards nothing in production: ask an invariant";
        for path in ["src/protocol/a.rs", "src/worker/machine/a.rs", "src/worker/partition/a.rs"] {
            check_tree(&[(path, planted)], &[&format!("{path}:2 {message}")]);
        }
        let test = format!("#[cfg(test)]\nmod tests {{\n{planted}}}\n");
        check_tree(&[("src/protocol/a.rs", &test), ("src/ledger.rs", planted)], &[]);
    }

    #[test]
    fn a_missing_document_is_caught_when_there_are_ids() {
        let message = "its ids must be described in docs/protocol.md, which does not exist";
        check_tree(
            &[(DEFINITIONS, CODE)],
            &[&format!("src/protocol/invariants/ids.rs:0 {message}")],
        );
        check_tree(&[("src/a.rs", "C-01")], &[]);
    }
}
