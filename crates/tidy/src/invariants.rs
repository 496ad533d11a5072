//! Each invariant of the protocol has one id, the same in the code, in the document and in a test.
//!
//! An id is `C-` and two digits. A test uses an id if its code has the id or the constant of it;
//! a comment does not count.

use crate::tree::{Tree, assert_none, repository, tree};
use std::collections::BTreeMap;

const DEFINITIONS: &str = "crates/longhaul-core/src/protocol/invariants/ids.rs";
const DOCUMENT: &str = "docs/register.md";
/// Sources that serve tests only.
const TEST_SUPPORT: [&str; 2] = ["integration-tests/", "proofs/"];
/// The mark of an id.
const MARK: &str = "C-";

fn violations(tree: &Tree) -> Vec<String> {
    let definitions = &tree[DEFINITIONS].text;
    // `pub const NAME: &str = "C-01";`
    let constants: BTreeMap<String, &str> = definitions
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split_once(':'))
        .filter_map(|(name, rest)| Some((ids(rest).pop()?, name)))
        .collect();
    let described = ids(&tree[DOCUMENT].text);
    let mut tested = Vec::new();
    for (path, file) in tree {
        let serves_tests =
            file.is_test || TEST_SUPPORT.iter().any(|folder| path.starts_with(folder));
        let words = file.code.iter().flat_map(|code| &code.words);
        tested.extend(words.filter(|word| word.is_test || serves_tests).map(|word| &*word.path));
    }
    let mut violations = Vec::new();
    for (id, name) in &constants {
        if !described.contains(id) {
            violations.push(format!("{DEFINITIONS}: {id} is not described in {DOCUMENT}"));
        }
        let names_it =
            |word: &&str| word.rsplit("::").next() == Some(name) || ids(word).contains(id);
        if !tested.iter().any(names_it) {
            violations.push(format!("{DEFINITIONS}: {id} is used in no test"));
        }
    }
    for (path, file) in tree.iter().filter(|(_, file)| file.code.is_some()) {
        for id in ids(&file.text).into_iter().filter(|id| !constants.contains_key(id)) {
            violations.push(format!("{path}: {id} is not defined in {DEFINITIONS}"));
        }
    }
    violations
}

fn ids(text: &str) -> Vec<String> {
    let is_part = |it: char| it.is_alphanumeric() || it == '_' || it == '-';
    let found = text.match_indices(MARK).filter(|(at, _)| !text[..*at].ends_with(is_part));
    let digits = found.filter_map(|(at, mark)| {
        let rest = &text[at + mark.len()..];
        let digits = rest.find(|it: char| !it.is_alphanumeric()).map_or(rest, |end| &rest[..end]);
        (digits.len() == 2 && digits.chars().all(|it| it.is_ascii_digit())).then_some(digits)
    });
    digits.map(|digits| format!("{MARK}{digits}")).collect()
}

#[test]
fn each_invariant_is_described_and_tested() {
    let tree = repository();
    assert!(ids(&tree[DEFINITIONS].text).len() > 15);
    assert_none(&violations(tree));
}

#[test]
fn planted_ids_are_found() {
    // In two parts, so that this file passes its own rule.
    let (one, seven) = (format!("{MARK}01"), format!("{MARK}07"));
    assert_eq!(ids(&format!("{one}, ({seven}) {MARK}1 {MARK}001 RF{one}")), [one.as_str(), &seven]);
    let definitions = format!("pub const EPOCHS: &str = \"{one}\";\n");
    let check = |document: &str, path: &str, test: &str, expected: &[&str]| {
        let files = [(DEFINITIONS, definitions.as_str()), (DOCUMENT, document), (path, test)];
        let violations = violations(&tree(files));
        assert_eq!(violations.len(), expected.len(), "{test}: {violations:?}");
        assert!(
            violations.iter().zip(expected).all(|(it, why)| it.contains(why)),
            "{violations:?}"
        );
    };
    let support = "proofs/src/model.rs";
    check(&one, support, "check(ids::EPOCHS);", &[]);
    check(&one, "src/a.rs", &format!("#[cfg(test)] mod tests {{ f(\"{one}\"); }}"), &[]);
    check(&one, "src/a.rs", "check(ids::EPOCHS);", &["is used in no test"]);
    check(&one, support, &format!("// {one}\n/// EPOCHS\nfn a() {{}}"), &["is used in no test"]);
    check("", support, "check(EPOCHS);", &["is not described"]);
    check(&one, support, &format!("check(EPOCHS); // {seven}"), &["is not defined"]);
}
