//! Each transcript in `tests/cmd` has its own broker, so that its tasks always have the same ids.

use super::dev::ask;
use super::stage::{Stage, longhaul};
use std::io::Write as _;
use trycmd::TestCases;

#[track_caller]
fn play(stage: Stage, transcript: &str) {
    let variables = stage.variables();
    play_with(stage, transcript, variables);
}

#[track_caller]
fn play_with(stage: Stage, transcript: &str, variables: Vec<(&'static str, String)>) {
    let cases = TestCases::new();
    for (name, value) in variables {
        cases.env(name, value);
    }
    cases.register_bin("longhaul", std::path::PathBuf::from(env!("CARGO_BIN_EXE_longhaul")));
    cases.case(format!("tests/cmd/{transcript}.trycmd"));
    cases.run();
    stage.end();
}

#[test]
fn the_first_minute() {
    play(Stage::with_worker(), "first-minute");
}

#[test]
fn tasks_that_fail_or_hang_are_found_and_mended() {
    play(Stage::with_worker(), "bad-night");
}

#[test]
fn a_worker_is_drained_by_its_name() {
    play(Stage::with_worker(), "drain");
}

#[test]
fn queues_are_limited_paused_and_purged() {
    play(Stage::with_queue("jobs-of-acme"), "queues");
}

/// The same commands through a gateway, without the broker's address.
#[test]
fn a_gateway_is_asked_as_a_broker_is() {
    let stage = Stage::with_gateway();
    let mut variables = stage.variables();
    variables.retain(|(name, _)| !matches!(*name, "LONGHAUL_SERVICE_URL" | "LONGHAUL_ADMIN_URL"));
    variables.push(("LONGHAUL_SERVICE_URL", "pulsar://127.0.0.1:1".to_owned()));
    variables.push(("LONGHAUL_GATEWAY", stage.gateway()));
    play_with(stage, "gateway", variables);
}

#[test]
fn schedules_are_made_and_changed() {
    play(Stage::with_queue("reports"), "schedules");
}

#[test]
fn topics_are_set_up_and_checked() {
    play(Stage::new(), "topics");
}

#[test]
fn settings_come_from_where_they_should() {
    play(Stage::new(), "settings");
}

#[test]
fn wrong_input_is_told() {
    play(Stage::new(), "wrong");
}

/// A failure reason that clears the screen must not affect a reader's terminal.
#[test]
fn control_characters_of_tasks_reach_no_terminal() {
    let stage = Stage::with_worker();
    let task = stage.told(&["task", "submit", "tasks", "fail", "-q"]);
    let task = task.trim();
    let ended = stage.longhaul(&["task", "wait", task]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let looks: [&[&str]; 6] = [
        &["task", "get", task],
        &["task", "get", task, "-o", "json"],
        &["task", "history", task],
        &["task", "list", "tasks"],
        &["dead", "list", "tasks"],
        &["dead", "show", task],
    ];
    for arguments in looks {
        let told = stage.told(arguments);
        assert!(!told.contains('\u{1b}'), "{arguments:?}: {told:?}");
        assert!(told.contains("does not exist"), "{arguments:?} does not say why: {told:?}");
    }
    assert!(!ended.stdout.contains(&0x1b) && !ended.stderr.contains(&0x1b), "{ended:?}");
    stage.end();
}

/// A verification must not say `sound` when it has read nothing: here the tasks are unpartitioned
/// and the ledger is partitioned.
#[test]
fn a_verification_says_what_it_has_not_read() {
    let stage = Stage::new();
    let admin = stage.broker.admin_url().unwrap();
    for (topic, body) in [("other", ""), ("other-ledger/partitions", "4")] {
        let path = format!("/admin/v2/persistent/public/default/{topic}");
        let answer = ask(&admin, "PUT", &path, body).unwrap();
        assert!(answer.contains(" 204 "), "{answer}");
    }
    let told = stage.longhaul(&["verify", "other"]);
    let (out, error) =
        (String::from_utf8(told.stdout).unwrap(), String::from_utf8(told.stderr).unwrap());
    assert_eq!(told.status.code(), Some(1), "{out}{error}");
    assert!(out.contains("as far as it was read"), "{out}");
    assert!(
        out.contains("other has no partitions, and ") && out.contains("has 4 partitions"),
        "{out}"
    );
    assert!(error.contains("not all entries of the queue could be checked"), "{error}");
    stage.end();
}

#[test]
fn lines_are_tasks() {
    use std::process::Stdio;
    let stage = Stage::with_worker();
    let arguments = ["task", "submit", "tasks", "--lines", "-q"];
    let mut child = longhaul(&arguments, stage.folder.path());
    let child = child.envs(stage.variables()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo\n\nthree\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let tasks = String::from_utf8(output.stdout).unwrap();
    let results: Vec<_> =
        tasks.lines().map(|task| stage.told(&["task", "result", task, "--wait"])).collect();
    assert_eq!(results, ["ONE", "TWO", "THREE"]);
    stage.end();
}

#[test]
fn a_bench_has_figures() {
    let stage = Stage::new();
    let told = stage.told(&["bench", "load", "--tasks", "50", "--workers", "1", "-o", "json"]);
    let figures: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&figures["tasks"], &figures["not_completed"]), (&50.into(), &0.into()));
    assert!(figures["end_to_end"]["p50"].as_f64().unwrap() > 0.0, "{told}");
    let counts = stage.told(&["task", "count", "load", "-o", "json"]);
    let counts: serde_json::Value = serde_json::from_str(&counts).unwrap();
    assert_eq!(counts["by_status"]["completed"], 50);
    stage.end();
}

/// The scripts had the whole tree of commands, up to 480 KB, and a shell read that at each start.
#[test]
fn a_shell_asks_the_program_for_completions() {
    let folder = tempfile::TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = longhaul(&["completions", shell], folder.path()).output().unwrap().stdout;
        assert!((100..8_192).contains(&script.len()), "{shell}: {} bytes", script.len());
    }
    let mut asking = longhaul(&["--", "longhaul", "task", "sub"], folder.path());
    asking.env("LONGHAUL_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2");
    let told = asking.output().unwrap().stdout;
    assert_eq!(String::from_utf8(told).unwrap().trim(), "submit");
}

#[test]
fn manual_pages_are_made() {
    let stage = Stage::new();
    let folder = stage.folder.path().join("man");
    stage.told(&["man", folder.to_str().unwrap()]);
    let page = std::fs::read_to_string(folder.join("longhaul-task-submit.1")).unwrap();
    assert!(page.contains("\\-\\-max\\-duration"), "{page}");
    stage.end();
}
