//! What the program had read at a broker alone: tasks at an instant, the properties of a message,
//! and the end of a task that no worker shows.

use crate::testing::TestGateway;
use longhaul::{TaskContext, TaskError, Text, processor_fn};
use serde_json::{Value, json};
use std::time::Duration;

const TASKS: &str = "/v1/queues/tasks/tasks";

#[test]
fn tasks_are_listed_and_counted_as_they_were() {
    let bench = TestGateway::new();
    let first = bench.submit("tasks", "a");
    bench.engine.advance(Duration::from_secs(10));
    let second = bench.submit("tasks", "b");
    assert_eq!(bench.delete(&format!("{TASKS}/{first}")).status, 204);
    assert_eq!(bench.get(TASKS).texts("tasks", "id"), [first.clone(), second]);
    let created = bench.get(&format!("{TASKS}/{first}")).json()["created_at"].as_u64().unwrap();
    let past = |at: u64| bench.get(&format!("{TASKS}?at={at}")).texts("tasks", "id");
    assert_eq!(past(created), [""; 0], "nobody had touched it");
    assert_eq!(past(created + 20_000), [first.as_str()], "nobody has touched the other one");
    let counts = bench.get(&format!("/v1/queues/tasks/counts?at={}", created + 20_000)).json();
    assert_eq!((&counts["total"], &counts["by_status"]), (&json!(1), &json!({"cancelled": 1})));
    bench.get(&format!("{TASKS}?at={created}&why=true")).check_refused(400, "query_invalid");
    let changed = bench.get(&format!("{TASKS}?changed_from={created}&status=cancelled"));
    assert_eq!(changed.texts("tasks", "id"), [first]);
}

#[test]
fn the_properties_of_a_task_are_told() {
    let bench = TestGateway::new();
    let task = json!({"payload": "a", "type": "report", "properties": {"customer": "acme"}});
    let id = bench.post(TASKS, task).text("id");
    let told = bench.get(&format!("{TASKS}/{id}/properties")).json();
    assert_eq!((&told["customer"], &told["TASK_TYPE"]), (&json!("acme"), &json!("report")));
    bench.get(&format!("{TASKS}/99:99:-1/properties")).check_refused(404, "task_not_found");
}

/// Such a wait ended when a worker was delivered the task: with a delay, hours later.
#[test]
fn a_wait_sees_the_end_of_a_task_that_no_worker_shows() {
    let bench = TestGateway::new();
    let id = bench.post(TASKS, json!({"payload": "a", "delay": "1h"})).text("id");
    assert_eq!(bench.get(&format!("{TASKS}/{id}")).text("status"), "scheduled");
    assert_eq!(bench.delete(&format!("{TASKS}/{id}?reason=mistake")).status, 204);
    let before = bench.engine.time_passed();
    let over = bench.get(&format!("{TASKS}/{id}/wait"));
    assert_eq!((over.status.as_u16(), over.text("status")), (200, "cancelled".to_owned()));
    assert!(bench.engine.time_passed() - before < Duration::from_secs(15));
}

#[test]
fn purges_and_dead_letters_take_times() {
    let bench = TestGateway::new();
    let refuse = processor_fn(async |_: Text, _: TaskContext| {
        Err::<Text, _>(TaskError::fatal("status 503"))
    });
    let worker = bench.engine.start(bench.engine.worker("tasks", refuse));
    let old = bench.submit("tasks", "a");
    bench.engine.advance(Duration::from_secs(60));
    let new = bench.submit("tasks", "b");
    bench.engine.advance(Duration::from_secs(60));
    bench.engine.run(worker.drain(Duration::from_secs(1))).unwrap();
    let letters = |query: &str| {
        bench.get(&format!("/v1/queues/tasks/dead{query}")).texts("dead_letters", "task")
    };
    let failed_at =
        |id: &str| bench.get(&format!("/v1/queues/tasks/dead/{id}")).json()["at"].as_u64().unwrap();
    let between = failed_at(&old) + 1;
    assert_eq!(letters(&format!("?failed_to={between}")), [old]);
    let purged = json!({"failed_from": between});
    assert_eq!(bench.post("/v1/queues/tasks/dead:purge", purged).json()["purged"], json!(1));
    assert!(!letters("").contains(&new));
    let key = |key: &str| bench.post(TASKS, json!({"payload": "c", "key": key})).text("id");
    let (kept, deleted) = (key("kept"), key("gone"));
    let purge = |body: Value| bench.post("/v1/queues/tasks:purge", body).json()["deleted"].clone();
    assert_eq!(purge(json!({"key": "gone"})), json!(1));
    assert_eq!(purge(json!({"created_to": 1, "key": "kept"})), json!(0));
    let status = |id: &str| bench.get(&format!("{TASKS}/{id}")).text("status");
    assert_eq!((status(&kept), status(&deleted)), ("ready".to_owned(), "cancelled".to_owned()));
}
