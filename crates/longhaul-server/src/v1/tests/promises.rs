//! Promises of the API that no other test would miss.

use crate::config::{Dialect, ServerConfig};
use crate::testing::TestGateway;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::task::TaskTracker;

const QUEUE: &str = "/v1/queues/tasks";
const LEASES: &str = "/v1/queues/tasks/leases";

fn task(bench: &TestGateway, id: &Value) -> Value {
    bench.engine.advance(Duration::from_secs(2));
    bench.get(&format!("{QUEUE}/tasks/{}", id.as_str().unwrap())).json()
}

fn settings(bench: &TestGateway, version: u64, settings: &Value) {
    let update = json!({"expected_version": version, "settings": settings});
    assert_eq!(bench.call("PATCH", QUEUE, update).status, 200);
}

/// A worker that does not know of the purge must not bring a purged task back, nor keep the slot of
/// a limit.
#[test]
fn reports_on_purged_work_are_refused_by_every_gateway() {
    let bench = TestGateway::new();
    let other = bench.beside(ServerConfig::default());
    settings(&bench, 0, &json!({"max_in_flight": 2}));
    let leases = ["a", "b"].map(|payload| {
        bench.submit("tasks", payload);
        bench.lease("tasks", "ann")
    });
    assert_eq!(other.post(LEASES, json!({"worker": "bob"})).status, 204, "it has the queue open");
    let purged = bench.post(&format!("{QUEUE}:purge"), json!({"all": true}));
    assert_eq!(purged.status, 200, "{purged:?}");
    let [first, second] = &leases;
    let report = |lease: &Value, body: Value| {
        let lease = lease["lease"].as_str().unwrap();
        other.post(&format!("{LEASES}/{lease}:report"), body)
    };
    let done = report(first, json!({"status": "SUCCEEDED", "result": "late"}));
    done.check_refused(409, "task_ended");
    report(second, json!({"status": "IN_PROGRESS"})).check_refused(409, "task_ended");
    for lease in &leases {
        let shown = task(&bench, &lease["task"]);
        assert_eq!((&shown["status"], &shown["result"]), (&json!("cancelled"), &Value::Null));
    }
    for payload in ["c", "d"] {
        bench.submit("tasks", payload);
    }
    let both = json!({"worker": "ann", "wait": "5s"});
    assert_eq!([(); 2].map(|()| bench.post(LEASES, both.clone()).status.as_u16()), [200, 200]);
}

/// A worker must be able to tell a pause from an error: it polls on.
#[test]
fn requests_for_leases_of_a_paused_queue_are_answered_and_find_nothing() {
    for dialect in [Dialect::Jobs, Dialect::DQueue] {
        let dialect_queue = "tasks".to_owned();
        let config =
            ServerConfig { dialects: vec![dialect], dialect_queue, ..ServerConfig::default() };
        let bench = TestGateway::with(config);
        bench.submit("tasks", "work");
        assert_eq!(bench.post(&format!("{QUEUE}:pause"), json!({})).status, 200);
        let (path, body) = match dialect {
            Dialect::Jobs => ("/poll", json!({"worker_id": "w"})),
            Dialect::DQueue => ("/tasks/lease", json!({"worker_id": "w", "wait": 2})),
        };
        assert_eq!(bench.post(path, body).status, 204);
        assert_eq!(bench.post(LEASES, json!({"worker": "ann", "wait": 2})).status, 204);
    }
}

#[test]
fn a_resume_answers_a_waiting_request_within_a_second() {
    let bench = TestGateway::new();
    bench.submit("tasks", "work");
    assert_eq!(bench.post(&format!("{QUEUE}:pause"), json!({})).status, 200);
    let resume = bench.sending(TestGateway::request("POST", &format!("{QUEUE}:resume"), ""));
    let tasks = TaskTracker::new();
    let resume = async move {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(resume.await.status, 200);
    };
    bench.engine.run(async { drop(tasks.spawn(resume)) });
    let before = bench.engine.time_passed();
    let answer = bench.post(LEASES, json!({"worker": "ann", "wait": "30s"}));
    assert_eq!(answer.status, 200);
    let took = bench.engine.time_passed() - before;
    assert!((10_000..11_000).contains(&took.as_millis()), "{took:?}");
}

/// With the field accepted and ignored, all other tests of the gateway pass.
#[test]
fn a_later_task_replaces_the_waiting_one_of_its_dedupe_key() {
    let bench = TestGateway::new();
    let submit = |task: Value| {
        let answer = bench.post(&format!("{QUEUE}/tasks"), task);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["id"].clone()
    };
    let old = submit(json!({"payload": "old", "dedupe_key": "report", "delay": "1h"}));
    let new = submit(json!({"payload": "new", "dedupe_key": "report", "overwrite": true}));
    assert_ne!(old, new);
    let lease = bench.lease("tasks", "ann");
    assert_eq!((&lease["task"], &lease["payload"]), (&new, &json!("new")));
    let shown = task(&bench, &old);
    let end = (&shown["status"], &shown["superseded_by"]);
    assert_eq!(end, (&json!("cancelled"), &new), "{shown}");
}

/// `debug_info` of a report was looked at by no test: the field could have been dropped.
#[test]
fn the_debug_info_of_a_report_is_the_reason_of_task_and_dead_letter() {
    let bench = TestGateway::new();
    bench.post(&format!("{QUEUE}/tasks"), json!({"payload": "x", "retry": {"intervals": ["1s"]}}));
    let mut id = Value::Null;
    for info in ["disk is full", "disk is still full"] {
        let lease = bench.lease("tasks", "ann");
        id = lease["task"].clone();
        let report = json!({"lease": lease["lease"], "status": "FAILED", "debug_info": info});
        assert_eq!(bench.post(&format!("{LEASES}:report"), report).status, 200);
        let reason = task(&bench, &id)["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(info), "{reason}");
    }
    let letter = bench.get(&format!("{QUEUE}/dead/{}", id.as_str().unwrap())).json();
    assert!(letter["reason"].as_str().unwrap().contains("disk is still full"), "{letter}");
}
