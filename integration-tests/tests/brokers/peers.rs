//! Clients of the dialects that are written without longhaul in mind: scripts with Python's standard
//! library in `integration-tests/peers`. They start `longhaul dev`, cause the failures that the
//! original queues describe, and check the answers.
//!
//! They mostly wait: leases of the dialect `jobs` last 30 s.

use anyhow::Result;
use integration_tests::example::{self, Process};
use integration_tests::{say, skip};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// Plays all failures of a script.
async fn play(script: &str) -> Result<()> {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).status().await;
    if !found.is_ok_and(|status| status.success()) {
        skip("the clients of the dialects: `python3` is not installed");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let program = example::binary("longhaul", folder.path()).await?;
    let mut python = Command::new("python3");
    // Python leaves no files beside the scripts.
    python.arg("-B").arg(Path::new(SCRIPTS).join(script)).arg(program).stdout(Stdio::piped());
    for line in Process::start(&mut python)?.finished().await? {
        say(&line);
    }
    Ok(())
}

#[tokio::test]
async fn the_failures_of_the_dialect_jobs() -> Result<()> {
    play("jobs.py").await
}

#[tokio::test]
async fn the_failures_of_the_dialect_dqueue() -> Result<()> {
    play("dqueue.py").await
}
