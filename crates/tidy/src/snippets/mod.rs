//! The fenced blocks of the documentation: each is run, compiled or read by a test, or says why it
//! is not. Pure.
//!
//! | block | who judges it |
//! |---|---|
//! | `rust` | the compiler, because documentation of a crate includes the page; `ignore` is refused |
//! | `toml` with dependencies | this module: packages of the workspace, their versions and features |
//! | `sh`, `console`: lines of `longhaul` | the parser of the program, in a test of its package that reads all pages |
//! | the same: lines of `cargo` | this module: packages, features, examples and benchmarks |
//! | with a mark of `READERS` | the test that reads this page, and looks for its marks |
//! | with `<!-- not run: why -->` | nobody, and readers of the source see why |
//!
//! Everything else is a fault: a line of another program, a block of another language, a mark that
//! nobody reads.

mod block;
mod cargo;

use block::{Block, blocks};
use cargo::Package;
use std::collections::BTreeMap;

/// What comes behind `<!-- ` where no test looks at a block.
const NOT_RUN: &str = "not run: ";

/// The program whose command lines a test of its own package reads, on every page.
const PARSED: &str = "longhaul";

/// A page whose blocks a test reads.
struct Reader {
    page: &'static str,
    /// How its marks begin; without one the test reads every block of the page.
    mark: Option<&'static str>,
    /// The test, which names the page.
    test: &'static str,
}

const READERS: [Reader; 16] = [
    Reader { page: "README.md", mark: Some("test-command"), test: ".ci/run" },
    Reader { page: "README.md", mark: Some("tour: "), test: TOUR },
    Reader { page: "SECURITY.md", mark: Some("test: tokens"), test: TOKENS },
    Reader { page: "clients/go/README.md", mark: Some("test: "), test: PACKAGES },
    Reader { page: "clients/junit/README.md", mark: Some("test: "), test: PACKAGES },
    Reader { page: "clients/python/README.md", mark: Some("test: "), test: PACKAGES },
    Reader { page: "clients/typescript/README.md", mark: Some("test: "), test: PACKAGES },
    Reader { page: "docs/any-language.md", mark: Some("example: "), test: ANY_LANGUAGE },
    Reader { page: "docs/broker.md", mark: Some("test: roles"), test: ROLES },
    Reader { page: "docs/cli.md", mark: Some("test: settings"), test: SETTINGS },
    Reader { page: "docs/leases.md", mark: Some("tour: "), test: TOUR },
    Reader { page: "docs/http.md", mark: Some("tour: "), test: TOUR },
    Reader { page: "docs/order.md", mark: Some("tour: "), test: TOUR },
    Reader { page: "docs/start.md", mark: None, test: TOUR },
    Reader { page: "docs/embedded.md", mark: Some("test: junit"), test: PACKAGES },
    Reader { page: "docs/tour.md", mark: None, test: TOUR },
];
const ANY_LANGUAGE: &str = "integration-tests/tests/brokers/any_language.rs";
const PACKAGES: &str = "crates/longhaul-cli/tests/languages/packages.rs";
const ROLES: &str = "crates/longhaul-broker/src/auth/tests.rs";
const SETTINGS: &str = "crates/longhaul-cli/src/settings/tests.rs";
const TOKENS: &str = "crates/longhaul-server/src/auth/token_file.rs";
const TOUR: &str = "integration-tests/tests/brokers/tour/mod.rs";

/// What the blocks are judged by.
#[derive(Debug, Default)]
struct Repository {
    /// The pages, by their paths from the top.
    pages: BTreeMap<String, String>,
    /// The tests that `READERS` names, as far as they are there, by their paths.
    tests: BTreeMap<String, String>,
    /// The pages that the documentation of a crate includes.
    compiled: Vec<String>,
    /// The packages of the workspace.
    packages: Vec<Package>,
}

/// Every block that nobody judges, and every one that is wrong, with page and line.
fn faults(repository: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    for (page, text) in &repository.pages {
        for block in blocks(text) {
            if let Err(why) = judge(repository, page, &block) {
                faults.push(format!("{page}:{}: {why}", block.line));
            }
        }
    }
    for reader in &READERS {
        let name = reader.page.rsplit('/').next().unwrap_or_default();
        if !repository.tests.get(reader.test).is_some_and(|test| test.contains(name)) {
            faults.push(format!("{} does not read {}", reader.test, reader.page));
        }
    }
    faults
}

fn judge(repository: &Repository, page: &str, block: &Block) -> Result<(), String> {
    let mark = block.mark.as_deref().unwrap_or_default();
    if let Some(why) = mark.strip_prefix(NOT_RUN) {
        return if why.trim().is_empty() {
            Err("it is not run, for no reason".into())
        } else {
            Ok(())
        };
    }
    let is_read = |reader: &&Reader| {
        reader.page == page && reader.mark.is_none_or(|begin| mark.starts_with(begin))
    };
    if READERS.iter().any(|reader| is_read(&reader)) {
        return Ok(());
    }
    if !mark.is_empty() {
        return Err(format!("nobody reads the mark `{mark}`"));
    }
    match block.language.as_str() {
        "rust" if block.words.iter().any(|word| word == "ignore") => {
            Err("the compiler is told to ignore it".into())
        }
        "rust" if repository.compiled.iter().any(|path| path == page) => Ok(()),
        "rust" => Err("the documentation of no crate includes the page".into()),
        "toml" => cargo::manifest(&repository.packages, &block.text),
        "sh" | "console" => block.commands().try_for_each(|command| {
            line(&repository.packages, &command).map_err(|why| format!("`{command}`: {why}"))
        }),
        "" => Err("it has no language".into()),
        other => Err(format!("no test reads `{other}`: say `<!-- {NOT_RUN}why -->` above it")),
    }
}

/// Judges a command line by the program that it begins with.
fn line(packages: &[Package], command: &str) -> Result<(), String> {
    let words: Vec<_> = command.split_whitespace().collect();
    match words.split_first() {
        Some((&"cargo", rest)) => cargo::command(packages, rest),
        Some((program, _)) if *program == PARSED => Ok(()),
        _ => Err(format!("no test reads it: say `<!-- {NOT_RUN}why -->` above the block")),
    }
}

mod tests;
