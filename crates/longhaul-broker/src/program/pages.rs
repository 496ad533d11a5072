//! Command lines of the documentation, read by the parser of the program.

use super::arguments::Arguments;
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 5] = [".git", ".venv", "corpus", "node_modules", "target"];

fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
                folders.push(path);
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// What is typed behind the name of the program. The documentation quotes none of it.
fn typed(line: &str) -> Option<&str> {
    let line = line.trim().trim_start_matches("$ ");
    let built = || line.strip_prefix("cargo run --release -p longhaul-broker -- ");
    let typed = line.strip_prefix("longhaul-broker ").or_else(built)?;
    typed.split(['|', '>', '&', ';', '#']).next()
}

#[test]
fn commands_of_all_pages_can_be_typed() {
    let mut count = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap().replace("\\\n", " ");
        for typed in page.lines().filter_map(typed) {
            let words = ["longhaul-broker"].into_iter().chain(typed.split_whitespace());
            if let Err(error) = Arguments::try_parse_from(words) {
                panic!("{}: `{typed}` cannot be typed: {error}", path.display());
            }
            count += 1;
        }
    }
    assert!(count >= 8, "{count} commands");
}
