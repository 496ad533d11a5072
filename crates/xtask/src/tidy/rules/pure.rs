//! The pure core stays pure: no async code, no clock, no randomness, no I/O, no logging.
//!
//! Why: the model and the simulation replay the core, and a replay is worth nothing if the core can look at the world.

use super::violation;
use crate::tidy::text::{CodePath, code_paths};
use crate::tidy::{Tree, Violation, is_module, lies_under};

/// The modules that are pure, each with everything below it.
pub const PURE: &[&str] = &[
    "src/protocol",
    "src/schedule/firing",
    "src/schedule/when",
    "src/worker/agenda",
    "src/worker/machine",
    "src/worker/metadata",
    "src/worker/partition",
    "src/worker/judge",
    "crates/longhaul-broker/src/compaction/plan",
    "crates/longhaul-broker/src/log/composer",
    "crates/longhaul-broker/src/machine",
    "crates/longhaul-broker/src/state",
    "crates/longhaul-transport/src/moment",
    "crates/longhaul-transport/src/position",
    "crates/longhaul-transport/src/properties",
    "crates/longhaul-wire/src",
    "src/transport/session/machine",
];

/// Words that no pure file has outside its tests.
const WORDS: &[&str] =
    &["async", "await", "tokio", "tracing", "SystemTime", "fastrand", "rand", "getrandom"];

/// Paths that no pure file names, whatever follows them.
const PATHS: &[&[&str]] = &[
    &["std", "time", "Instant"],
    &["std", "time", "*"],
    &["time", "Instant"],
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "process"],
    &["std", "thread"],
];

/// Finds what a pure file must not have.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust_files().filter(|(file, _)| is_pure(&file.path)) {
        for path in code_paths(&source.production) {
            if let Some(name) = impurity(&path) {
                let message = format!("pure code names `{name}`: pass the value in instead");
                violations.push(violation(file, path.line, "pure", message));
            }
        }
    }
    violations
}

/// Whether the file belongs to the pure core.
#[must_use]
pub fn is_pure(path: &str) -> bool {
    PURE.iter().any(|module| is_module(path, module) || lies_under(path, module))
}

fn impurity(path: &CodePath) -> Option<String> {
    let word = WORDS.iter().find(|word| path.has(word)).map(|word| (*word).to_owned());
    let banned = PATHS.iter().find(|banned| path.begins_with(banned));
    let asks_now = path.called_bare && path.segments.last().is_some_and(|last| last == "now");
    word.or_else(|| banned.map(|banned| banned.join("::")))
        .or_else(|| asks_now.then(|| "now()".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[track_caller]
    fn check_code(code: &str, caught: bool) {
        let expected: &[usize] = if caught { &[2] } else { &[] };
        let text = format!("//! Doc.\n{code}\n");
        assert_eq!(lines_found(check, "src/protocol/fold.rs", &text), expected, "{code}");
    }

    #[test]
    fn impure_code_is_caught() {
        for code in [
            "async fn a() {}",
            "let a = b.await;",
            "use tokio::sync::watch;",
            "tracing::debug!(a);",
            "use std::time::Instant;",
            "use std::{collections::BTreeMap, time::{Duration, Instant}};",
            "use std::time::*;",
            "let a = time::Instant::from(b);",
            "fn a(now: std::time::SystemTime) {}",
            "let now = self.clock.now();",
            "let now = Clock::now();",
            "let a = fastrand::f64();",
            "use rand::Rng as _;",
            "std::thread::yield_now();",
            "std::fs::read(a);",
        ] {
            check_code(code, true);
        }
    }

    #[test]
    fn pure_code_passes() {
        for code in [
            "use std::time::Duration;",
            "use std::{collections::BTreeMap, fmt};",
            "fn a(now: Millis, operand: u8) -> Millis { now }",
            "let a = self.now(b);",
            "// the tokio task calls now() and awaits",
            "let a = \"async .await tokio::time std::time::Instant now()\";",
            "#[cfg(test)] mod tests { async fn a() { tokio::time::Instant::now(); rand::random() } }",
        ] {
            check_code(code, false);
        }
    }

    #[test]
    fn the_list_covers_files_and_folders() {
        for (path, pure) in [
            ("src/protocol/mod.rs", true),
            ("src/protocol/deep/er.rs", true),
            ("src/worker/machine.rs", true),
            ("src/worker/machine/own.rs", true),
            ("src/worker/partition.rs", true),
            ("src/worker/judge/mod.rs", true),
            ("src/worker/machinery.rs", false),
            ("src/worker/driver.rs", false),
            ("integration-tests/src/protocol/fold.rs", false),
        ] {
            assert_eq!(is_pure(path), pure, "{path}");
        }
    }
}
