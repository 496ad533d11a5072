//! The packages of `clients/` pass, and the suite finds its planted faults.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

/// The tools of the packages, which the tests of the program use as well.
#[path = "../../../crates/longhaul-cli/tests/support/tools.rs"]
mod tools;

use futures::{StreamExt, stream};
use serde_json::Value;
use std::process::{Output, Stdio};
use tempfile::TempDir;
use tokio::process::Command;
use tools::{go_program, needs, skip, top, typescript_package, version};

/// Faults tested concurrently. Each has its own broker and gateway, and mostly waits.
const AT_ONCE: usize = 17;

/// A fault of `clients/python/tests/faulty.py`, the check that must find it, and the required text.
const FAULTS: &[(&str, &str, &str)] = &[
    ("deaf", "cancelled", "the task did not end within"),
    ("believes-pages", "proxy-page", ""),
    ("confirms-once", "cut-answer", "attempts, not 1"),
    ("confirms-once", "stopped-gateway", "attempts, not 1"),
    ("dies-of-nonsense", "nonsense", "the task did not end within"),
    ("drains-one", "two-workers", "did not give back its task"),
    ("ends-after-the-pause", "end-in-a-pause", "after a keep-alive was told to wait"),
    ("endless-refusal", "too-large", "as Some(Final) after 3 attempts"),
    ("fails-what-it-gives-back", "drain", "did not give back"),
    ("forgets-the-unknown", "unknown-outcome", "did not send a repeated confirmation"),
    ("gives-up-without-a-token", "token-rotated", ""),
    ("greedy", "several", "up to 4 tasks at once, not 3"),
    ("hasty", "long-drain", "the task did not end within"),
    ("impatient", "told-to-wait", "although Retry-After was 2 s"),
    ("killed-by-a-signal", "drain", "signal: 15"),
    ("never-for-good", "fatal", "after 3"),
    ("no-checkpoint", "checkpoint", "not with the result"),
    ("no-keep-alive", "keep-alive", "Lease expired"),
    ("no-time-for-the-next", "retry-after", "not 2,500"),
    ("one-at-a-time", "several", "up to 1 tasks at once, not 3"),
    ("one-gateway", "gateway-gone", ""),
    ("raw-reasons", "odd-reason", "not with the result"),
    ("reads-little", "large-leases", ""),
    ("slow-news", "progress", "was not shown with progress"),
    ("starts-unconfirmed", "unconfirmed", "did not send a confirmation"),
    ("strict-news", "odd-news", "not with the result"),
    ("success-after-loss", "taken-away", "after a report on it was refused"),
    ("tells-once", "answer-lost", "did not send the repeated report"),
    ("text-alone", "results", "not with the result"),
    ("works-on", "frozen", "the task did not end within"),
];

#[tokio::test]
async fn the_package_for_python_passes() {
    if let Err(why) = version("python3", "--version") {
        return skip(&why);
    }
    passes(&["python3", "-m", "longhaul.conformance"]).await;
    passes(&["python3", "-m", "tests.coroutines"]).await;
}

#[tokio::test]
async fn the_package_for_typescript_passes() {
    if let Err(why) = needs("typescript") {
        return skip(&why);
    }
    let built = TempDir::new().unwrap();
    typescript_package(built.path());
    let program = built.path().join("dist/conformance.js");
    passes(&["node", program.to_str().unwrap()]).await;
}

#[tokio::test]
async fn the_package_for_go_passes() {
    if let Err(why) = version("go", "version") {
        return skip(&why);
    }
    let built = TempDir::new().unwrap();
    let program = go_program(&top().join("clients/go"), "./conformance", built.path());
    passes(&[program.to_str().unwrap()]).await;
}

#[tokio::test]
async fn each_planted_fault_is_found() {
    if let Err(why) = version("python3", "--version") {
        return skip(&why);
    }
    let faults = stream::iter(FAULTS).map(|(fault, check, why)| async move {
        let program = ["python3", "-m", "tests.faulty", fault];
        let output = judge(&["--only", check], &program).await;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{fault}: {output:?}");
        let findings: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(findings[0]["check"], *check, "{told}");
        let found = findings[0]["why"].as_str().unwrap_or_default();
        assert!(found.contains(why), "{fault}: {found}");
    });
    faults.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// The promises of leases hold while everything fails: see `src/storm/`. The other packages take the
/// same time, and are tried by hand.
#[tokio::test]
async fn a_storm_breaks_no_promise() {
    if let Err(why) = version("python3", "--version") {
        return skip(&why);
    }
    let output = run(&["--storm", "150", "python3", "-m", "longhaul.conformance"]).await;
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn a_storm_finds_planted_faults() {
    if let Err(why) = version("python3", "--version") {
        return skip(&why);
    }
    let faults = [
        ("believes-pages", "40", "has ended as Failed"),
        ("tells-once", "100", "its worker gave up"),
    ];
    let faults = stream::iter(faults).map(|(fault, tasks, why)| async move {
        let output = run(&["--storm", tasks, "python3", "-m", "tests.faulty", fault]).await;
        assert_eq!(output.status.code(), Some(1), "{fault}: {output:?}");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(told.contains(why), "{fault}: {told}");
    });
    faults.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// The documented checks are the existing ones.
#[tokio::test]
async fn the_table_of_the_documentation_is_the_list() {
    let output = judge(&["--list"], &[]).await;
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = std::fs::read_to_string(top().join("docs/leases.md")).unwrap();
    let rows: Vec<String> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            format!(
                "| `{}` | {} |",
                row["check"].as_str().unwrap(),
                row["demand"].as_str().unwrap()
            )
        })
        .collect();
    assert!(!rows.is_empty() && page.contains(&rows.join("\n")), "{rows:#?}");
}

#[tokio::test]
async fn mistakes_are_named() {
    let output = judge(&["--only", "keepalive"], &["true"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("invalid value 'keepalive'") && told.contains("keep-alive"), "{told}");
    let output = judge(&["--only", "results"], &["./no-such-program"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("cannot start ./no-such-program"), "{told}");
}

async fn passes(program: &[&str]) {
    let output = judge(&["--jobs", "6"], program).await;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}", output.status);
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(findings.as_array().unwrap().iter().all(|finding| finding["passed"] == true));
}

async fn judge(options: &[&str], program: &[&str]) -> Output {
    run(&[&["--json"], options, program].concat()).await
}

async fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    command.args(arguments);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(top().join("clients/python")).stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.unwrap()
}
