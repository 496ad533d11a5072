//! Command lines in the documentation, parsed by the program.

use super::{Cli, words};
use crate::exec::SUPERVISE;
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders without pages of ours.
const SKIPPED: [&str; 5] = [".git", ".venv", "corpus", "node_modules", "target"];

/// All pages, and the alerts, which contain commands.
fn pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
                folders.push(path);
            } else if name.ends_with(".md") || name == "longhaul.rules.yaml" {
                pages.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    pages
}

/// The parts of a page in order: its text, and its fenced blocks, each with its language.
fn parts(page: &str) -> Vec<(Option<&str>, &str)> {
    let mut parts = Vec::new();
    for (at, part) in page.split("```").enumerate() {
        match (at % 2, part.split_once('\n')) {
            (0, _) => parts.push((None, part)),
            (_, Some((language, block))) => parts.push((Some(language), block)),
            (_, None) => panic!("a block without an end: {part}"),
        }
    }
    parts
}

/// The command lines of the program in shell blocks, without prompts; a line that ends with a
/// backslash continues.
fn typed(page: &str) -> Vec<String> {
    let blocks = parts(page).into_iter().flat_map(|(language, block)| {
        let block = block.replace("\\\n", " ");
        let lines = block.lines().map(str::trim);
        let typed: Vec<_> = match language {
            Some("console") => lines.filter_map(|line| line.strip_prefix("$ ")).collect(),
            Some("sh") => lines.collect(),
            _ => Vec::new(),
        };
        typed.into_iter().map(str::to_owned).collect::<Vec<_>>()
    });
    let typed = blocks.map(|line| match line.split_once(" -p longhaul-cli -- ") {
        Some((_, built)) => format!("longhaul {built}"),
        None => line,
    });
    typed.filter(|line| line.starts_with("longhaul ")).collect()
}

/// The commands named in the text. Lines of manifests begin with the same word.
fn named(page: &str) -> Vec<String> {
    let texts = parts(page).into_iter().filter(|(language, _)| language.is_none());
    let named = texts.flat_map(|(_, text)| text.split('`').skip(1).step_by(2));
    let commands = named.filter(|it| it.starts_with("longhaul ") && !it.starts_with("longhaul = "));
    commands.map(|it| it.replace('\n', " ")).collect()
}

/// Whether a command is only named, without its arguments or the value of its last option.
fn is_named(error: &clap::Error) -> bool {
    let is_incomplete = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::DisplayHelp
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    // For a wrong value the error contains that value.
    let nothing = ContextValue::String(String::new());
    is_incomplete || error.get(ContextKind::InvalidValue) == Some(&nothing)
}

#[test]
fn commands_of_all_pages_can_be_typed() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (page, text) in pages() {
        for line in typed(&text) {
            count += 1;
            if let Err(error) = Cli::try_parse_from(words(&line)) {
                wrong.push(format!("{page}: `{line}` cannot be typed: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 40, "{count} commands");
}

/// People type the commands of a page at night. Words in upper case are placeholders.
#[test]
fn commands_that_pages_name_are_there() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (page, text) in pages().into_iter().filter(|(page, _)| !page.ends_with("CHANGELOG.md")) {
        for command in named(&text).into_iter().filter(|it| !it.contains(SUPERVISE)) {
            count += 1;
            let typed = command.replace("QUEUE", "hello").replace("TASK", "hello@4:0:-1");
            match Cli::try_parse_from(words(&typed)) {
                Err(error) if !is_named(&error) => {
                    wrong.push(format!("{page}: `{command}` is not there: {error}"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} commands");
}
