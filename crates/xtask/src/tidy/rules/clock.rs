//! `clock.rs` of `longhaul-transport` alone reads time in the library.
//!
//! Why: a second reader would escape the simulated clock, and would choose its own answer to which clock stops when the
//! machine sleeps.

use super::violation;
use crate::tidy::text::{CodePath, code_paths};
use crate::tidy::{Tree, Violation, is_module, lies_under};

const TRANSPORT: &str = "crates/longhaul-transport/src";
const CLOCK: &str = "crates/longhaul-transport/src/clock";

/// Types whose `now` asks the system.
const TYPES: &[&str] =
    &["Instant", "SystemTime", "Utc", "Local", "Timestamp", "Zoned", "OffsetDateTime"];

/// Finds readers of time outside the clock.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust_files().filter(|(file, _)| is_watched(&file.path)) {
        for path in code_paths(&source.production) {
            if let Some(name) = reading(&path) {
                let message = format!("`{name}` reads time: only the clock does");
                violations.push(violation(file, path.line, "clock", message));
            }
        }
    }
    violations
}

fn is_watched(path: &str) -> bool {
    (lies_under(path, "src") || lies_under(path, TRANSPORT))
        && !is_module(path, CLOCK)
        && !lies_under(path, CLOCK)
}

fn reading(path: &CodePath) -> Option<String> {
    let reads = match path.segments.as_slice() {
        [.., owner, name] if name == "now" => TYPES.contains(&owner.as_str()),
        [name] if name == "elapsed" => path.before == "." && path.called_bare,
        [.., name] => name == "clock_gettime",
        [] => false,
    };
    reads.then(|| path.segments.join("::"))
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[track_caller]
    fn check_code(path: &str, code: &str, caught: bool) {
        let expected: &[usize] = if caught { &[1] } else { &[] };
        assert_eq!(lines_found(check, path, code), expected, "{path}: {code}");
    }

    #[test]
    fn readers_of_time_are_caught() {
        for code in [
            "std::time::Instant::now()",
            "let read = Instant::now;",
            "tokio::time::Instant::now()",
            "chrono::Utc::now()",
            "SystemTime::now().duration_since(UNIX_EPOCH)",
            "start.elapsed()",
            "rustix::time::clock_gettime(id)",
        ] {
            check_code("src/worker/driver.rs", code, true);
        }
    }

    #[test]
    fn asking_the_clock_passes() {
        for code in [
            "self.clock.now()",
            "Clock::now(&clock)",
            "clock::now()",
            "record.elapsed(now)",
            "// Instant::now()",
            "#[cfg(test)] fn a() { Instant::now(); }",
        ] {
            check_code("src/worker/driver.rs", code, false);
        }
    }

    #[test]
    fn only_the_library_is_watched_and_not_its_clock() {
        for path in [
            "crates/longhaul-transport/src/clock.rs",
            "crates/longhaul-transport/src/clock/boot.rs",
            "crates/longhaul-memory/src/clock.rs",
            "integration-tests/src/sandbox.rs",
        ] {
            check_code(path, "Instant::now()", false);
        }
        check_code("src/clock.rs", "Instant::now()", true);
        check_code("crates/longhaul-transport/src/clockwork.rs", "Instant::now()", true);
    }
}
