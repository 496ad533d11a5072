//! The program itself, with little to do: it runs, judges, and writes what it has found.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;

/// Runs a measurement on the embedded broker and returns what it has written as JSON.
fn measured(arguments: &[&str]) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(arguments)
        .args(["--broker", "embedded", "--rounds", "1", "--json"])
        .arg(&json)
        .output()?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {complaints}", output.status);
    Ok(serde_json::from_slice(&std::fs::read(json)?)?)
}

fn median(figures: &Value, side: usize, name: &str) -> Result<f64> {
    let value = figures.pointer(&format!("/sides/{side}/medians/{name}"));
    value.and_then(Value::as_f64).with_context(|| format!("no {name} of side {side}: {figures}"))
}

#[test]
fn a_drain_is_measured_beside_a_peer() -> Result<()> {
    let figures = measured(&["drain", "--tasks", "2000", "--peer", "echo drain 50/s"])?;
    // In the path of a figure a slash is written as ~1.
    let median = |side| median(&figures, side, "tasks~1s");
    let (ours, peer, ratio) = (median(0)?, median(1)?, median(2)?);
    assert_eq!(peer, 50.0);
    assert!(ours > 0.0 && (ratio - ours / 50.0).abs() < 1e-6, "{figures}");
    Ok(())
}

#[test]
fn each_task_of_a_steady_pace_is_timed() -> Result<()> {
    let figures = measured(&["latency", "--rate", "50", "--seconds", "1"])?;
    let (p50, max) = (median(&figures, 0, "p50 ms")?, median(&figures, 0, "max ms")?);
    assert!(p50 > 0.0 && p50 <= max, "{figures}");
    Ok(())
}
