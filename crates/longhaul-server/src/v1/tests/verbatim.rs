//! JSON of callers: kept byte for byte, and read without much memory.

use crate::config::{Dialect, ServerConfig};
use crate::testing::{TestGateway, TestResponse};
use serde_json::{Value, json};
use std::process::Command;

const TASKS: &str = "/v1/queues/jobs/tasks";
const LEASES: &str = "/v1/queues/jobs/leases";

/// Values that a parser changes: a double by a unit in the last place, a long integer, the order of
/// keys, a key that is there twice, spaces, escapes.
const VALUES: [&str; 5] = [
    "51.248178375505404",
    "12345678901234567890123",
    r#"{"b":1,"a":[ 1 , 2.50 ],"b":2}"#,
    r#"{ "half": "\ud800", "slash": "\/", "long": 1e999 }"#,
    "null",
];

fn gateway() -> TestGateway {
    let (dialects, dialect_queue) = (vec![Dialect::DQueue], "jobs".to_owned());
    TestGateway::with(ServerConfig { dialects, dialect_queue, ..ServerConfig::default() })
}

/// Sends this text as JSON.
fn post(bench: &TestGateway, path: &str, body: String) -> TestResponse {
    bench.send(TestGateway::json_request("POST", path, body))
}

fn stored(bench: &TestGateway, task: &str, what: &str) -> String {
    let found = bench.get(&format!("{TASKS}/{task}/{what}"));
    assert_eq!(found.status, 200, "{found:?}");
    String::from_utf8(found.bytes.into()).unwrap()
}

#[test]
fn payloads_and_results_in_json_are_kept_as_they_were_sent() {
    let bench = gateway();
    for value in VALUES {
        let task = format!(r#"{{"payload_json": {value} }}"#);
        let one = post(&bench, TASKS, task.clone()).text("id");
        let batch = post(&bench, &format!("{TASKS}:batch"), format!(r#"{{"tasks":[{task}]}}"#));
        let many = batch.json()["outcomes"][0]["id"].as_str().unwrap_or_default().to_owned();
        for (task, is_batch) in [(one, false), (many, true)] {
            assert_eq!(stored(&bench, &task, "payload"), value);
            let leased = bench.post(LEASES, json!({"worker": "ann", "wait": 5})).json();
            assert_eq!(leased["leases"][0]["payload"], json!(value), "{leased}");
            let lease = &leased["leases"][0]["lease"];
            let report =
                format!(r#"{{"lease":{lease},"status":"SUCCEEDED","result_json": {value}}}"#);
            let reported = if is_batch {
                let reports = format!(r#"{{"reports":[{report}]}}"#);
                post(&bench, &format!("{LEASES}:report-batch"), reports)
            } else {
                post(&bench, &format!("{LEASES}:report"), report)
            };
            assert_eq!(reported.status, 200, "{reported:?}");
            assert_eq!(bench.get(&format!("{TASKS}/{task}/wait")).status, 200);
            assert_eq!(stored(&bench, &task, "result"), value);
        }
    }
}

#[test]
fn dqueue_keeps_json_as_it_was_sent() {
    let bench = gateway();
    for value in VALUES {
        let shows = |answer: &TestResponse| {
            let text = String::from_utf8_lossy(&answer.bytes);
            assert!(text.contains(&format!(r#""payload":{value},"#)), "{value}: {text}");
        };
        let submitted = post(&bench, "/tasks", format!(r#"{{"payload": {value} }}"#));
        assert_eq!(submitted.status, 201, "{submitted:?}");
        let answer = String::from_utf8_lossy(&submitted.bytes);
        let task = answer.split('"').nth(3).unwrap();
        assert_eq!(stored(&bench, task, "payload"), value);
        shows(&bench.get(&format!("/tasks/{task}")));
        shows(&bench.post("/tasks/lease", json!({"worker_id": "ann", "wait": 5})));
        let result = format!(r#"{{"worker_id":"ann","result": {value} }}"#);
        assert_eq!(post(&bench, &format!("/tasks/{task}/ack"), result).status, 200);
        assert_eq!(bench.get(&format!("{TASKS}/{task}/wait")).status, 200);
        assert_eq!(stored(&bench, task, "result"), value);
    }
    let text = post(&bench, "/tasks", r#"{"payload":"\u00e4"}"#.to_owned());
    assert_eq!(stored(&bench, &text.text("id"), "payload"), "ä");
    let half = post(&bench, "/tasks", r#"{"payload":"\ud800"}"#.to_owned());
    half.check_refused(400, "json_malformed");
}

/// Set in the process that measures its memory.
const MEASURES: &str = "LONGHAUL_TEST_MEASURES_MEMORY";

/// The peak of this process's memory, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Small entries that are parsed take 80 times the memory of their text.
#[test]
#[cfg(target_os = "linux")]
fn large_bodies_of_small_values_take_little_memory() {
    if std::env::var_os(MEASURES).is_none() {
        // The peak counts for a process, in which other tests run, too.
        let name = "v1::tests::verbatim::large_bodies_of_small_values_take_little_memory";
        let mut test = Command::new(std::env::current_exe().unwrap());
        let run = test.args(["--exact", name, "--nocapture"]).env(MEASURES, "1").output().unwrap();
        let told = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let bench = gateway();
    let many = |value: &str| vec![value; 8 * 1024 * 1024 / (value.len() + 1)].join(",");
    let (tasks, reports) = (format!("{TASKS}:batch"), format!("{LEASES}:report-batch"));
    for (path, body, code, says) in [
        (&tasks, format!(r#"{{"tasks":[{}]}}"#, many(r#"{"a":0}"#)), "request_unfit", "1048576"),
        (&reports, format!(r#"{{"reports":[{}]}}"#, many("0")), "request_unfit", "4194304"),
        (&tasks, format!("[{}]", many("0")), "json_unfit", "found an array"),
    ] {
        let before = peak();
        let refused = post(&bench, path, body);
        let grown = peak() - before;
        refused.check_refused(422, code);
        assert!(refused.text("detail").contains(says), "{refused:?}");
        assert!(grown < 32 * 1024, "{path} {code}: {grown} KiB");
    }
}

/// JSON that is not parsed has no limit on its depth.
#[test]
fn deep_json_is_kept() {
    let bench = gateway();
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let id = post(&bench, TASKS, format!(r#"{{"payload_json":{deep}}}"#)).text("id");
    assert_eq!(stored(&bench, &id, "payload"), deep);
}

/// An entry that cannot be read does not spoil the others.
#[test]
fn each_entry_of_a_batch_is_read_by_itself() {
    let bench = gateway();
    let tasks = r#"{"tasks":[{"payload":"a"},{"payload":"\ud800"},{"max_attempts":1e999}]}"#;
    let answer = post(&bench, &format!("{TASKS}:batch"), tasks.to_owned()).json();
    let outcomes = answer["outcomes"].as_array().unwrap();
    let codes: Vec<_> = outcomes.iter().map(|it| it["error"]["code"].as_str()).collect();
    assert_eq!(codes, [None, Some("request_unfit"), Some("request_unfit")], "{answer}");
    assert_ne!(outcomes[0]["id"], Value::Null);
}
