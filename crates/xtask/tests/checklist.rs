//! `docs/security.md` names a test for each item: each of them is there.

use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 4] = ["src", "crates", "integration-tests/src", "integration-tests/tests"];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names behind `fn` in all sources.
fn functions() -> anyhow::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut open: Vec<_> = FOLDERS.iter().map(|folder| top().join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = std::fs::read_to_string(&path)?;
                let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
                let names = text.split("fn ").skip(1);
                found.extend(
                    names.map(|it| it.chars().take_while(|it| is_word(*it)).collect::<String>()),
                );
            }
        }
    }
    Ok(found)
}

#[test]
fn every_test_of_the_page_is_there() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(top().join("docs/security.md"))?;
    let functions = functions()?;
    let mut count = 0;
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |")) {
        let tests = line.trim_end_matches('|').rsplit('|').next().context("a row has cells")?;
        // Between two marks, in each second place.
        for name in tests.split('`').skip(1).step_by(2).filter(|it| !it.contains(['/', '.', ' '])) {
            ensure!(
                functions.contains(name),
                "docs/security.md names `{name}`, which is nowhere: {line}"
            );
            count += 1;
        }
    }
    ensure!(count > 40, "the page names {count} tests");
    Ok(())
}
