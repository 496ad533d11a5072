//! Tests, or parts of them, that cannot be done here: said at once, and counted.
//!
//! A test that is skipped passes, as far as the test harness knows. So each says a line on stderr,
//! which the harness does not capture, and adds it to the file that `LONGHAUL_TEST_SKIPS` names.
//! `.ci/run` counts the lines of that file in its summary.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Names the file that lists what was skipped.
const FILE: &str = "LONGHAUL_TEST_SKIPS";

/// What this process has said: a test that asks for a broker twice is one test.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says that the running test, or a part of it, is skipped, and why.
///
/// # Panics
/// The file named by `LONGHAUL_TEST_SKIPS` cannot be written: what is not counted would be hidden.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("?"));
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.insert(line.clone()) {
        return;
    }
    // Not `eprintln!`, which is shown for failed tests only. That a closed stderr takes no message
    // is no reason to fail.
    std::io::stderr().write_all(line.as_bytes()).ok();
    if let Some(path) = std::env::var_os(FILE) {
        let file = File::options().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "cannot write {}: {written:?}", path.display());
    }
}
