//! The dialect `dqueue`, line by line.

use super::{Proof, config, keyed, post, prove, request};
use crate::config::Dialect;
use crate::testing::TestGateway;
use Proof::{Elsewhere, Here};
use serde_json::{Value, json};
use std::time::Duration;

const LOG_TESTS: &str =
    "the quorum of Pulsar, or the log of the embedded broker: integration-tests";

#[test]
fn the_dialect_dqueue_line_by_line() {
    prove(
        Dialect::DQueue,
        &[
            ("2.1", Elsewhere(LOG_TESTS)),
            (
                "2.2",
                Elsewhere("one binary: `longhaul server`, `longhaul worker run`, `longhaul task`"),
            ),
            (
                "2.3",
                Elsewhere(
                    "HTTP here; between gateway and broker Pulsar's protocol in place of gRPC",
                ),
            ),
            ("2.4", Here(submits)),
            ("2.5", Here(hint)),
            ("2.6", Here(leases)),
            ("2.7", Here(lease_outlives_its_gateway)),
            ("2.8", Here(holder_alone)),
            ("2.9", Here(history)),
            ("2.10", Here(states)),
            ("2.11", Here(expiry)),
            ("2.12", Here(nack)),
            ("2.13", Here(any_gateway_sees_it)),
            ("2.14", Here(expiry)),
            ("2.15", Here(lease_outlives_its_gateway)),
            ("2.16", Here(history)),
            ("2.17", Elsewhere("the ledger's compaction: protocol and storage tests")),
            ("2.18", Here(worker)),
            ("2.19", Here(statistics)),
            ("2.20", Here(keys)),
            ("2.21", Here(priority)),
            ("2.22", Here(nack)),
            ("2.23", Elsewhere("/metrics and the log: tests/gateway, v1/tests")),
            ("2.24", Elsewhere("`longhaul dev`: longhaul-cli")),
            (
                "2.25",
                Elsewhere("not yet: `longhaul dev` needs no Compose file, and Pulsar has its own"),
            ),
            ("2.26", Here(health)),
        ],
    );
}

fn submit(bench: &TestGateway, body: Value) -> String {
    let (status, task) = post(bench, "/tasks", body);
    assert_eq!((status, &task["state"]), (201, &json!("PENDING")), "{task}");
    task["id"].as_str().unwrap().to_owned()
}

fn lease(bench: &TestGateway, worker: &str) -> Value {
    let (status, task) = post(bench, "/tasks/lease", json!({"worker_id": worker, "wait": "60s"}));
    assert_eq!((status, &task["state"]), (200, &json!("LEASED")), "{task}");
    task
}

fn report(bench: &TestGateway, verb: &str, worker: &str, task: &Value) -> (u16, Value) {
    let path = format!("/tasks/{}/{verb}", task["id"].as_str().unwrap());
    post(bench, &path, json!({"worker_id": worker, "lease_id": task["lease_id"]}))
}

fn state(bench: &TestGateway, id: &str) -> String {
    bench.get(&format!("/tasks/{id}")).text("state")
}

fn submits(bench: &TestGateway) {
    let id = submit(bench, json!({"payload": {"to": "ann"}}));
    let other = bench.beside(config(Dialect::DQueue));
    let task = lease(&other, "w1");
    assert_eq!((&task["id"], &task["payload"]), (&json!(id), &json!({"to": "ann"})));
    for body in ["", "{", "[]", r#"{"payload":1,"priority":"high"}"#] {
        assert_eq!(bench.send(TestGateway::request("POST", "/tasks", body)).status, 400, "{body}");
    }
    assert_eq!(bench.get("/tasks/900:7:-1").status, 404);
    assert_eq!(bench.get("/tasks/x").status, 404);
}

/// A gateway that cannot serve a request names another live one.
fn hint(bench: &TestGateway) {
    let named = |url: &str| {
        let mut config = config(Dialect::DQueue);
        config.advertised_url = Some(url.to_owned());
        config.limits.leased_queues = 1;
        bench.beside(config)
    };
    let (one, other) = (named("http://one:7070"), named("http://other:7070"));
    assert_eq!(post(&other, "/tasks/lease", json!({"worker_id": "w"})).0, 204);
    // This gateway is at its limit, and cannot lease tasks of the queue.
    one.submit("else", "work");
    let wait = json!({"worker": "w", "wait": "60s"});
    assert_eq!(one.post("/v1/queues/else/leases", wait.clone()).status, 200);
    one.engine.run(one.service.look_around());
    let refused = one.post("/tasks/lease", json!({"worker_id": "w"}));
    assert_eq!(refused.status, 503);
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    assert_eq!(refused.headers["longhaul-gateway"], "http://other:7070");
    let refused = one.post("/v1/queues/jobs/leases", wait);
    assert_eq!(refused.status, 503);
    assert!(!refused.headers.contains_key("longhaul-gateway"), "only this dialect: {refused:?}");
}

fn leases(bench: &TestGateway) {
    assert_eq!(post(bench, "/tasks/lease", json!({})).0, 400);
    assert_eq!(post(bench, "/tasks/lease", json!({"worker_id": "w1"})).0, 204);
    let id = submit(bench, json!({"payload": "work"}));
    bench.engine.advance(Duration::from_secs(1));
    let asked = json!({"worker_id": "w1", "visibility_timeout": 90, "wait": 1});
    let (status, task) = post(bench, "/tasks/lease", asked);
    assert_eq!((status, &task["id"], &task["worker_id"]), (200, &json!(id), &json!("w1")));
    bench.engine.advance(Duration::from_secs(85));
    assert_eq!(state(bench, &id), "LEASED");
    assert_eq!(report(bench, "ack", "w1", &task).0, 200);
}

fn lease_outlives_its_gateway(bench: &TestGateway) {
    let (one, other) =
        (bench.beside(config(Dialect::DQueue)), bench.beside(config(Dialect::DQueue)));
    let id = submit(&one, json!({"payload": "work"}));
    let task = lease(&one, "w1");
    drop(one);
    assert_eq!(report(&other, "ack", "w1", &task).0, 200);
    assert_eq!(state(&other, &id), "COMPLETED");
}

fn holder_alone(bench: &TestGateway) {
    submit(bench, json!({"payload": "work"}));
    let task = lease(bench, "w1");
    for verb in ["ack", "nack"] {
        let (status, problem) = report(bench, verb, "w2", &task);
        assert_eq!((status, &problem["code"]), (409, &json!("not_current_lease_owner")));
        let path = format!("/tasks/{}/{verb}", task["id"].as_str().unwrap());
        assert_eq!(post(bench, &path, json!({})).0, 400);
        let stale = json!({"worker_id": "w1", "lease_id": 0});
        assert_eq!(post(bench, &path, stale).1["code"], "stale_lease_id");
    }
    // Without the lease's number, the worker's name decides.
    let path = format!("/tasks/{}/ack", task["id"].as_str().unwrap());
    assert_eq!(post(bench, &path, json!({"worker_id": "w1", "result": {"n": 1}})).0, 200);
    assert_eq!(post(bench, &path, json!({"worker_id": "w1"})).0, 200, "told once more");
    assert_eq!(report(bench, "nack", "w1", &task).0, 409);
}

/// The log of a task, in order: the event, its lease and its worker.
fn log_of(bench: &TestGateway, id: &str) -> Vec<String> {
    let history = bench.get(&format!("/v1/queues/jobs/tasks/{id}/history")).json();
    assert_eq!(history["is_whole"], json!(true), "{history}");
    let line = |entry: &Value| {
        let leased_to = entry.get("leased_to").unwrap_or_else(|| &entry["worker"]["name"]);
        let words = ["event", "state", "outcome", "epoch"].map(|field| &entry[field]);
        let words = words.into_iter().chain([leased_to]).filter(|word| !word.is_null());
        words.map(|word| word.to_string().replace('"', "")).collect::<Vec<_>>().join(" ")
    };
    history["entries"].as_array().unwrap().iter().map(line).collect()
}

/// The state is a fold of the log, and every gateway computes the same. The number of entries alone
/// proves little: a command could be missing, or stored twice, with the state still right. ENQUEUE
/// is the message on the task topic, NACK `failed`, ACK `completed`, and DEAD_LETTER `ended failed`
/// with a dead letter.
fn history(bench: &TestGateway) {
    let other = bench.beside(config(Dialect::DQueue));
    let id = submit(bench, json!({"payload": "work"}));
    assert_eq!((state(&other, &id), log_of(&other, &id)), ("PENDING".to_owned(), vec![]));
    assert_eq!(report(bench, "nack", "w1", &lease(bench, "w1")).0, 200);
    let current = lease(bench, "w2");
    assert_eq!(report(bench, "ack", "w2", &current).0, 200);
    assert_eq!(report(bench, "ack", "w2", &current).0, 200, "told once more");
    bench.engine.advance(Duration::from_secs(5));
    assert_eq!(state(&other, &id), "COMPLETED");
    let first = ["leased 1 w1", "shown running 1 w1", "failed 1 w1", "shown retrying 1 w1"];
    let second = ["leased 2 w2", "shown running 2 w2", "completed 2 w2", "shown completed 2 w2"];
    assert_eq!(log_of(&other, &id), [first, second].concat());
    let poison = submit(bench, json!({"payload": "poison", "max_retries": 1}));
    assert_eq!(report(bench, "nack", "w1", &lease(bench, "w1")).0, 200);
    assert_eq!(report(bench, "nack", "w2", &lease(bench, "w2")).0, 200);
    bench.engine.advance(Duration::from_secs(5));
    assert_eq!(state(&other, &poison), "DEAD_LETTER");
    let second = ["leased 2 w2", "shown running 2 w2", "ended failed 2 w2", "shown failed 2 w2"];
    assert_eq!(log_of(&other, &poison), [first, second].concat());
    let letters = other.get("/v1/queues/jobs/dead").json();
    let letters = letters["dead_letters"].as_array().unwrap();
    let letters: Vec<_> = letters.iter().map(|letter| &letter["task"]).collect();
    assert_eq!(letters, [&json!(poison)], "of these two alone");
}

fn states(bench: &TestGateway) {
    let id = submit(bench, json!({"payload": "work", "max_retries": 1}));
    let task = lease(bench, "w1");
    assert_eq!(state(bench, &id), "LEASED");
    let (_, failed) = report(bench, "nack", "w1", &task);
    assert_eq!(failed["state"], "FAILED", "its next attempt is ahead");
    assert!(failed["next_attempt_at"].is_u64() && failed["max_retries"] == 1, "{failed}");
    assert_eq!(report(bench, "nack", "w1", &task).1["code"], "not_current_lease_owner");
    let task = lease(bench, "w1");
    assert_eq!(report(bench, "nack", "w1", &task).1["state"], "DEAD_LETTER");
    let other = submit(bench, json!({"payload": "work"}));
    let shown = bench.get(&format!("/tasks/{other}")).json();
    let leased = lease(bench, "w1");
    assert!(shown["max_retries"].is_u64() && shown["max_retries"] == leased["max_retries"]);
    assert_eq!(report(bench, "ack", "w1", &leased).1["state"], "COMPLETED");
    assert_eq!(state(bench, &other), "COMPLETED");
}

/// The backoff of a first attempt is too short to measure; that of later ones is not.
fn expiry(bench: &TestGateway) {
    let id = submit(bench, json!({"payload": "work", "max_retries": 9}));
    let stalled = lease(bench, "w1");
    for _ in 0..6 {
        bench.engine.advance(Duration::from_secs(31));
        assert_eq!(state(bench, &id), "PENDING");
        let before = bench.engine.time_passed();
        let current = lease(bench, "w2");
        assert_eq!(current["id"], json!(id));
        assert!(bench.engine.time_passed() - before < Duration::from_secs(1), "at once");
    }
    let current = bench.get(&format!("/tasks/{id}")).json();
    assert_eq!(report(bench, "ack", "w1", &stalled).1["code"], "stale_lease_id");
    assert_eq!(report(bench, "ack", "w2", &current).0, 200);
}

fn nack(bench: &TestGateway) {
    let id = submit(bench, json!({"payload": "poison", "max_retries": 2}));
    for attempt in 1..=3 {
        let task = lease(bench, "w1");
        assert_eq!(
            (&task["id"], &task["attempts"], &task["max_retries"]),
            (&json!(id), &json!(attempt), &json!(2))
        );
        assert_eq!(report(bench, "nack", "w1", &task).0, 200);
    }
    assert_eq!(state(bench, &id), "DEAD_LETTER");
    assert_eq!(post(bench, "/tasks/lease", json!({"worker_id": "w1", "wait": 30})).0, 204);
    bench.engine.advance(Duration::from_secs(5));
    let letters = bench.get("/v1/queues/jobs/dead").json();
    assert_eq!(letters["dead_letters"][0]["task"], json!(id), "{letters}");
}

fn any_gateway_sees_it(bench: &TestGateway) {
    let other = bench.beside(config(Dialect::DQueue));
    for number in 0..5 {
        let id = submit(bench, json!({"payload": number}));
        assert_eq!(state(&other, &id), "PENDING", "as soon as it was answered");
    }
}

fn worker(bench: &TestGateway) {
    for number in 0..10 {
        submit(bench, json!({"payload": number}));
    }
    let mut done = 0;
    while done < 10 {
        let task = lease(bench, "w1");
        let verb = if task["attempts"] == 1 && task["payload"].as_u64().unwrap().is_multiple_of(3) {
            "nack"
        } else {
            "ack"
        };
        assert_eq!(report(bench, verb, "w1", &task).0, 200);
        done += u32::from(verb == "ack");
    }
    assert_eq!(bench.get("/stats").json()["completed"], 10);
}

fn statistics(bench: &TestGateway) {
    for number in 0..4 {
        submit(bench, json!({"payload": number}));
    }
    assert_eq!(report(bench, "ack", "w1", &lease(bench, "w1")).0, 200);
    lease(bench, "w1");
    bench.engine.advance(Duration::from_secs(1));
    let stats = bench.get("/stats").json();
    let of = |name: &str| stats[name].as_u64().unwrap();
    assert_eq!(
        (of("pending"), of("leased"), of("completed"), of("total")),
        (2, 1, 1, 4),
        "{stats}"
    );
    assert_eq!((of("failed"), of("dead_letter")), (0, 0));
}

fn keys(bench: &TestGateway) {
    let first = submit(bench, json!({"payload": "work", "idempotency_key": "key-1"}));
    let again = bench.send(keyed("/tasks", "key-1", r#"{"payload":"work"}"#));
    assert_eq!(again.text("id"), first);
    let mut two = keyed("/tasks", "key-1", r#"{"payload":"work"}"#);
    two.headers_mut().append("idempotency-key", "key-2".parse().unwrap());
    bench.send(two).check_refused(400, "idempotency_key_invalid");
    assert_eq!(
        bench.send(request("/tasks", &json!({"idempotency_key": "k".repeat(300)}))).status,
        400
    );
}

/// The queue has three levels, so only the sign of a priority counts. Numbers of one sign share a
/// level and go in the order of submission; the answer shows the level. A single task per sign
/// could not tell the sign from a threshold such as 5.
fn priority(bench: &TestGateway) {
    assert_eq!(post(bench, "/tasks/lease", json!({"worker_id": "w1"})).0, 204);
    let numbers = [-1, i64::MIN, 0, 1, 9, -5, 0, i64::MAX, 2];
    for priority in numbers {
        submit(bench, json!({"payload": priority, "priority": priority}));
    }
    submit(bench, json!({"payload": "none"}));
    bench.engine.advance(Duration::from_secs(1));
    let mut order = Vec::new();
    for _ in 0..=numbers.len() {
        let task = lease(bench, "w1");
        order.push((task["priority"].as_i64().unwrap(), task["payload"].clone()));
        assert_eq!(report(bench, "ack", "w1", &task).0, 200);
    }
    let high = [1, 9, i64::MAX, 2].map(|number| (1, json!(number)));
    let normal = [json!(0), json!(0), json!("none")].map(|payload| (0, payload));
    let low = [-1, i64::MIN, -5].map(|number| (-1, json!(number)));
    assert_eq!(order, [&high[..], &normal, &low].concat());
}

fn health(bench: &TestGateway) {
    assert_eq!(bench.get("/health").status, 200);
}
