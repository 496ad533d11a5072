//! Draining workers by name.

use crate::testing::TestGateway;
use longhaul::{TaskContext, TaskError, Text, WorkerHandle, processor_fn};
use serde_json::{Value, json};
use std::time::Duration;

/// A worker of this name that needs a minute per task.
fn worker(bench: &TestGateway, name: &str) -> WorkerHandle {
    let slow = processor_fn(async |text: Text, _: TaskContext| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok::<_, TaskError>(text)
    });
    let worker =
        bench.engine.worker("tasks", slow).name(name).drain_limit(Duration::from_secs(600));
    let worker = bench.engine.start(worker);
    bench.engine.run(worker.ready());
    worker
}

fn path(name: &str) -> String {
    format!("/v1/queues/tasks/workers/{name}:drain")
}

#[test]
fn a_worker_finishes_what_it_runs_and_leaves_and_the_reason_is_logged() {
    let bench = TestGateway::new();
    // Names may contain characters with a meaning in paths.
    let first = worker(&bench, "pod:1/a");
    let id = bench.submit("tasks", "a");
    bench.engine.advance(Duration::from_secs(5));
    let second = worker(&bench, "pod:2");
    let told = bench.post(&path("pod:1%2Fa"), json!({"reason": "its machine goes"}));
    assert_eq!(told.status, 200, "{told:?}");
    let told = told.json();
    assert_eq!(told["worker"]["name"], json!("pod:1/a"), "{told}");
    let again = bench.post(&path("pod:1%2Fa"), json!({}));
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json()["worker"], told["worker"], "it drains already");
    bench.engine.run(first.join()).unwrap();
    assert_eq!(bench.get(&format!("/v1/queues/tasks/tasks/{id}")).text("status"), "completed");
    let listed = bench.get("/v1/queues/tasks/workers").json();
    let names: Vec<&Value> =
        listed["workers"].as_array().unwrap().iter().map(|it| &it["worker"]["name"]).collect();
    assert_eq!(names, ["pod:2"], "{listed}");
    let log = bench.get("/v1/queues/tasks/actions").json();
    let actions = log["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 1, "{log}");
    assert_eq!(
        ["action", "worker", "reason"].map(|field| actions[0][field].as_str().unwrap()),
        ["drain", "pod:1/a", "its machine goes"]
    );
    assert_eq!(actions[0].get("task"), None);
    // The worker has left by now.
    let left = bench.post(&path("pod:1%2Fa"), json!({}));
    left.check_refused(404, "worker_not_found");
    assert!(left.text("detail").ends_with("its workers are pod:2"), "{left:?}");
    drop(second);
}

#[test]
fn what_cannot_be_drained_by_its_name_is_refused_with_what_to_do() {
    let bench = TestGateway::new();
    bench.post(&path("nobody"), json!({})).check_refused(404, "worker_not_found");
    let long = bench.post(&path("nobody"), json!({"reason": "x".repeat(1_001)}));
    assert_eq!(long.status, 422);
    // The gateway itself is a worker of the queue after the first request for a lease.
    let id = bench.submit("tasks", "a");
    let leased = bench.post("/v1/queues/tasks/leases", json!({"worker": "ann", "wait": "10s"}));
    assert_eq!(leased.status, 200, "{leased:?}");
    let listed = bench.get("/v1/queues/tasks/workers").json();
    let gateway = &listed["workers"][0];
    assert_eq!(gateway["worker"]["grants_leases"], json!(true), "{listed}");
    let name = gateway["worker"]["name"].as_str().unwrap();
    let refused = bench.post(&path(name), json!({}));
    refused.check_refused(409, "worker_is_gateway");
    assert!(refused.text("detail").contains("SIGTERM"), "{refused:?}");
    bench.post(&path("ann"), json!({})).check_refused(409, "worker_holds_leases");
    let told = json!({"worker": "bob", "instance": "b1"});
    assert_eq!(bench.post("/v1/queues/tasks/leases", told.clone()).status, 204);
    bench.submit("tasks", "b");
    assert_eq!(bench.post("/v1/queues/tasks/leases", told.clone()).status, 200);
    assert_eq!(bench.post(&path("bob"), json!({})).json()["worker"]["name"], json!("bob"));
    bench.post("/v1/queues/tasks/leases", told).check_refused(409, "worker_drained");
    for instance in ["\u{1f}", &"x".repeat(65)] {
        let unfit = json!({"worker": "bob", "instance": instance});
        assert_eq!(bench.post("/v1/queues/tasks/leases", unfit).code(), "request_unfit");
    }
    let lease = format!("/v1/queues/tasks/tasks/{id}/lease");
    assert_eq!(bench.get(&lease).text("worker"), "ann", "its lease goes on");
    let twins = [worker(&bench, "twin"), worker(&bench, "twin")];
    bench.post(&path("twin"), json!({})).check_refused(409, "worker_ambiguous");
    let log = bench.get("/v1/queues/tasks/actions").json();
    assert_eq!(log["actions"].as_array().map(Vec::len), Some(1), "bob's: {log}");
    drop(twins);
}
