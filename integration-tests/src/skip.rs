//! Reports and counts tests, or parts of tests, that cannot run on this machine.
//!
//! The test harness counts a skipped test as passed. So each skip writes a line to stderr, which
//! the harness does not capture, and appends the line to the file that `LONGHAUL_TEST_SKIPS` names.
//! `.ci/run` counts the lines of that file in its summary.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// The environment variable with the path of the file that lists the skips.
const FILE: &str = "LONGHAUL_TEST_SKIPS";

/// The lines that this process has reported: a test that asks for a broker twice counts once.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Reports that the running test, or a part of it, is skipped, and why.
///
/// # Panics
/// The file named by `LONGHAUL_TEST_SKIPS` cannot be written: the skip would not be counted.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("?"));
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.insert(line.clone()) {
        return;
    }
    // Not `eprintln!`, whose output is shown for failed tests only. A closed stderr is no reason to
    // fail.
    std::io::stderr().write_all(line.as_bytes()).ok();
    if let Some(path) = std::env::var_os(FILE) {
        let file = File::options().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "cannot write {}: {written:?}", path.display());
    }
}
