//! `longhaul migrate` between two embedded brokers: what it says, and what it leaves alone.

use super::stage::{Stage, longhaul};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Output, Stdio};

/// A stage whose selected context is its own broker, and which has no other settings.
fn source(queue: &str, partitions: &str) -> Stage {
    let stage = Stage::new();
    let (url, admin) = (stage.broker.service_url(), stage.broker.admin_url().unwrap());
    let add = ["context", "add", "prod", "--select", "--service-url", url, "--admin-url", &admin];
    assert!(run(&stage, &add).status.success());
    stage.told(&["topic", "setup", queue, "--partitions", partitions]);
    for text in ["a", "b", "c"] {
        stage.told(&["task", "submit", queue, text]);
    }
    stage
}

/// Runs the program with the file of contexts alone.
fn run(stage: &Stage, arguments: &[&str]) -> Output {
    let mut command = longhaul(arguments, stage.folder.path());
    let addresses = ["LONGHAUL_SERVICE_URL", "LONGHAUL_ADMIN_URL"];
    let variables = stage.variables().into_iter().filter(|(name, _)| !addresses.contains(name));
    command.envs(variables).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(stage: &Stage, arguments: &[&str]) -> Value {
    serde_json::from_str(&stage.told(&[arguments, &["-o", "json"]].concat())).unwrap()
}

fn partitions(stage: &Stage, queue: &str) -> usize {
    let topics = super::dev::topics(&stage.broker.admin_url().unwrap());
    let prefix = format!("persistent://public/default/{queue}-partition-");
    topics.iter().filter(|topic| topic.starts_with(&prefix)).count()
}

fn is_paused(stage: &Stage, queue: &str) -> bool {
    json(stage, &["queue", "stats", queue])["paused"] == true
}

/// With a context selected, the settings of the source applied to the target, and the source stayed
/// paused without a word.
#[test]
fn nothing_but_its_own_options_applies_to_the_target() {
    let (here, there) = (source("mails", "2"), Stage::new());
    let url = there.broker.service_url();
    let migrate = ["-y", "migrate", "mails", "--to-service-url", url, "-o", "json"];
    let missing = run(&here, &migrate);
    assert_eq!(missing.status.code(), Some(3), "{}", said(&missing));
    let setup = "run `longhaul topic setup mails --partitions 4` with the context or the addresses";
    assert!(said(&missing).contains(setup), "{}", said(&missing));
    let other = run(&here, &[&["--subscription", "billing"], &migrate[..]].concat());
    assert_eq!(other.status.code(), Some(2), "{}", said(&other));
    assert!(said(&other).contains("the subscription of the source is billing"), "{}", said(&other));
    assert_eq!((partitions(&here, "mails"), is_paused(&here, "mails")), (2, false));
    assert_eq!(partitions(&there, "mails"), 0);

    there.told(&["topic", "setup", "mails", "--partitions", "4"]);
    here.told(&["queue", "pause", "mails"]);
    let moved = run(&here, &migrate);
    assert!(moved.status.success(), "{}", said(&moved));
    let done: Value = serde_json::from_slice(&moved.stdout).unwrap();
    assert_eq!((&done["moved"], &done["open_at_source"]), (&3.into(), &0.into()), "{done}");
    assert!(said(&moved).contains("moves: 3 open tasks (3 ready)"), "{}", said(&moved));
    assert!(said(&moved).contains("there are no settings to move"), "{}", said(&moved));
    assert!(said(&moved).contains("is already paused"), "{}", said(&moved));
    assert!(said(&moved).contains("mails stays paused at the source"), "{}", said(&moved));
    assert_eq!((partitions(&here, "mails"), partitions(&there, "mails")), (2, 4));
    assert_eq!((is_paused(&here, "mails"), is_paused(&there, "mails")), (true, false));
    let ready = json(&there, &["task", "list", "mails", "--status", "ready"]);
    assert_eq!(ready.as_array().unwrap().len(), 3, "{ready}");
    let over = json(&here, &["task", "list", "mails", "--status", "cancelled"]);
    let reasons: Vec<_> = over.as_array().unwrap().iter().map(|task| &task["reason"]).collect();
    assert_eq!(reasons.len(), 3, "{over}");
    here.end();
    there.end();
}

#[test]
fn a_target_that_is_the_source_or_does_not_answer_is_refused_before_anything_is_changed() {
    let (here, there) = (source("mails", "1"), Stage::new());
    let itself = run(&here, &["-y", "migrate", "mails", "--to-context", "prod"]);
    assert_eq!(itself.status.code(), Some(2), "{}", said(&itself));
    assert!(said(&itself).contains("are the same queue"), "{}", said(&itself));
    let url = there.broker.service_url().to_owned();
    there.end();
    let away = run(&here, &["-y", "migrate", "mails", "--to-service-url", &url]);
    assert_eq!(away.status.code(), Some(5), "{}", said(&away));
    assert!(said(&away).starts_with("error: the target cannot be used"), "{}", said(&away));
    assert!(said(&away).contains("check --to-service-url"), "{}", said(&away));
    let nameless = run(&here, &["-y", "migrate", "mails", "--to-context", "elsewhere"]);
    assert_eq!(nameless.status.code(), Some(3), "{}", said(&nameless));
    let asked = run(&here, &["migrate", "mails", "--to-context", "prod", "--to-queue", "mails2"]);
    assert_eq!(asked.status.code(), Some(3), "{}", said(&asked));
    assert!(!is_paused(&here, "mails"));
    here.end();
}

/// Ctrl-C ends a migration at once, and says what is where. `--back` undoes it.
#[test]
fn an_interrupted_migration_says_what_is_paused_and_can_be_taken_back() {
    let here = Stage::with_worker();
    here.told(&["topic", "setup", "there"]);
    here.told(&["task", "submit", "tasks", "slow"]);
    here.told(&["task", "submit", "tasks", "later", "--delay", "1h"]);
    let url = here.broker.service_url().to_owned();
    let to = ["tasks", "--to-service-url", &url, "--to-queue", "there"];
    let migrate = [&["-y", "migrate"], &to[..]].concat();
    let mut command = longhaul(&migrate, here.folder.path());
    command.envs(here.variables()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut notes = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("waiting up to 10m") {
        line.clear();
        assert!(notes.read_line(&mut line).unwrap() > 0, "it does not wait");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut told = String::new();
    notes.read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{told}");
    assert!(told.contains("not finished: 0 tasks copied, 0 closed"), "{told}");
    assert!(
        told.contains("the source, tasks at pulsar://") && told.contains(", is paused\nthe target"),
        "{told}"
    );
    assert!(told.contains(", is not paused\n"), "{told}");
    assert!(told.contains("or with --back to delete the copies and resume both"), "{told}");
    assert!(is_paused(&here, "tasks") && !is_paused(&here, "there"));

    let still = [&migrate[..], &["--wait", "100ms"]].concat();
    let output = here.longhaul(&still);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains("1 task still running at the source"), "{}", said(&output));
    assert!(said(&output).contains("at shouter"), "{}", said(&output));

    here.told(&[&migrate[..], &["--back"]].concat());
    assert!(!is_paused(&here, "tasks") && !is_paused(&here, "there"));
    here.end();
}
