//! No file names a developer's folder or a registry, or has marks of unfinished work or spaces at
//! the ends of lines. Each Rust file begins with its purpose.
//!
//! A path of one machine works nowhere else, and a registry's name defeats the mirrors of users.

use crate::tree::{Tree, assert_none, repository, tree};

/// In two parts each, so that this file passes its own rule.
const WORDS: [(&str, &str); 18] = [
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/ho", "me/"),
    ("/Us", "ers/"),
    ("C:\\Us", "ers\\"),
    ("crates", ".io"),
    ("repo.maven", ".apache.org"),
    ("repo1.maven", ".org"),
    ("npmjs", ".org"),
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("proxy.golang", ".org"),
    ("docker", ".io"),
    ("ghcr", ".io"),
    ("quay", ".io"),
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
];

/// Cargo's own name of the default registry, whatever mirror it was read from.
const LOCK_SOURCE: (&str, &str) = ("registry+https://github.com/rust-lang/crates", ".io-index");

/// Whether the line has the text, and not as a part of a longer path, host or name.
fn has(line: &str, text: &str) -> bool {
    let is_path = text.ends_with(['/', '\\']);
    let is_word = |it: char| it.is_alphanumeric() || it == '_';
    let goes_on = |it: char| is_word(it) || it == '-' || (is_path && matches!(it, '.' | '}' | '~'));
    line.match_indices(text).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + text.len()..]);
        !before.ends_with(goes_on) && (is_path || !after.starts_with(is_word))
    })
}

fn violations(tree: &Tree) -> Vec<String> {
    let joined = |(one, other): (&str, &str)| format!("{one}{other}");
    let (words, lock_source) = (WORDS.map(joined), joined(LOCK_SOURCE));
    let mut violations = Vec::new();
    for (path, file) in tree {
        // Not `str::lines`, which would hide a carriage return.
        for (line, number) in file.text.split('\n').zip(1..) {
            let own = if path.ends_with("Cargo.lock") {
                line.replace(&lock_source, "")
            } else {
                line.to_owned()
            };
            for word in words.iter().filter(|word| has(&own, word)) {
                violations.push(format!("{path}:{number}: `{word}`"));
            }
            // An empty line of a patch begins with a space.
            if line.ends_with(char::is_whitespace) && !path.ends_with(".patch") {
                violations.push(format!("{path}:{number}: white space at the end of the line"));
            }
        }
        let first = file.text.lines().next().unwrap_or_default();
        if file.code.is_some() && !path.ends_with("/tests.rs") && !first.starts_with("//! ") {
            violations.push(format!("{path}:1: no `//!` says what the file is for"));
        }
    }
    violations
}

#[test]
fn no_file_has_what_belongs_to_one_machine_or_is_unfinished() {
    assert_none(&violations(repository()));
}

#[test]
fn planted_text_is_found() {
    for (one, other) in WORDS {
        for around in ["see {}", "(`{}`)", "https://index.{}", "a = '{}: b'"] {
            let text = around.replace("{}", &format!("{one}{other}"));
            let is_inner_folder = other.ends_with(['/', '\\']) && around.contains("index");
            let expected = usize::from(!is_inner_folder);
            let violations = violations(&tree([("docs/a.md", format!("a\n{text}\n").as_str())]));
            assert_eq!(violations.len(), expected, "{text}: {violations:?}");
        }
    }
    for (path, text) in [("a.sh", "b \n"), ("a.sh", "b\r\n"), ("src/a.rs", "// Not a doc.\n")] {
        assert_eq!(violations(&tree([(path, text)])).len(), 1, "{text:?}");
    }
    let source = format!("source = \"{}{}\"\n", LOCK_SOURCE.0, LOCK_SOURCE.1);
    assert_eq!(violations(&tree([("Cargo.lock", source.as_str()), ("a.toml", &source)])).len(), 1);
    for line in
        ["src/work/a", "./home/a", "$HOME/a", "${base}/work/a", "/homely/a", "mktemp a.XXXXXX"]
    {
        assert_none(&violations(&tree([("docs/a.md", line)])));
    }
}
