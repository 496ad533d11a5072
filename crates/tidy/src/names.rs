//! Each type has a name of its own in the workspace, so that one word means one thing.

use crate::tree::{Tree, assert_none, repository, tree};
use std::collections::BTreeMap;

/// Names that stand for one thing in two builds.
const LISTED: [&str; 2] = [
    // With and without the feature `admin`.
    "Preflight",
    // With and without the feature `otel`.
    "OpenSpan",
];

/// Files whose names nobody meets beside those of the product.
const APART: [&str; 7] =
    ["bench/", "fuzz/", "mutants/", "proofs/", "examples/", "integration-tests/", "crates/tidy/"];

fn violations(tree: &Tree) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, file) in tree {
        if file.is_test || file.code.is_none() || APART.iter().any(|it| path.starts_with(it)) {
            continue;
        }
        let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for name in code.lines().filter_map(defined) {
            places.entry(name.to_owned()).or_default().push(path);
        }
    }
    let twice = places
        .into_iter()
        .filter(|(name, places)| places.len() > 1 && !LISTED.contains(&name.as_str()));
    twice
        .map(|(name, places)| format!("`{name}` names several types: {}", places.join(", ")))
        .collect()
}

/// The type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let is_nested = line.starts_with(' ');
    let mut rest = line.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        let public = public.trim_start();
        rest = if public.starts_with('(') { public.split_once(')')?.1 } else { public };
    }
    let (kind, rest) = rest.trim_start().split_once(' ')?;
    // A trait has types of its own.
    let defines =
        matches!(kind, "struct" | "enum" | "trait" | "union") || kind == "type" && !is_nested;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let name = &rest[..end.unwrap_or(rest.len())];
    (defines && name.starts_with(|letter: char| letter.is_uppercase())).then_some(name)
}

#[test]
fn each_type_has_a_name_of_its_own() {
    assert_none(&violations(repository()));
}

#[test]
fn a_name_that_is_taken_is_found() {
    let first = ("src/a.rs", "pub struct Place;\n");
    for (path, text, is_found) in [
        ("crates/longhaul-core/src/b.rs", "enum Place {}\n", true),
        ("src/b.rs", "pub(super) type Place = u8;\n", true),
        ("src/b.rs", "mod a {\n    pub(in crate::a) trait Place<'a> {}\n}\n", true),
        ("src/b.rs", "struct PlaceOf;\n", false),
        ("src/b.rs", "trait A {\n    type Place;\n}\n", false),
        ("src/b.rs", "/// A struct Place\nfn a() {}\n", false),
        ("src/b.rs", "#[cfg(test)]\nmod tests {\n    struct Place;\n}\n", false),
        ("proofs/src/b.rs", "struct Place;\n", false),
    ] {
        let violations = violations(&tree([first, (path, text)]));
        assert_eq!(violations.len(), usize::from(is_found), "{path}: {text}: {violations:?}");
    }
}
