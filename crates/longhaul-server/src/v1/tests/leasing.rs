//! Leases through the native API.

use crate::config::ServerConfig;
use crate::testing::{TestGateway, TestResponse};
use longhaul::testing::TestEngine;
use longhaul::{Text, processor_fn};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

const LEASES: &str = "/v1/queues/tasks/leases";

fn ask(bench: &TestGateway, worker: &str) -> TestResponse {
    bench.post(LEASES, json!({"worker": worker, "wait": "30s"}))
}

fn report(bench: &TestGateway, lease: &Value, mut body: Value) -> TestResponse {
    body["lease"] = lease["lease"].clone();
    bench.post(&format!("{LEASES}:report"), body)
}

fn succeeded() -> Value {
    json!({"status": "SUCCEEDED", "result": "done"})
}

fn beyond_the_lease(engine: &TestEngine) {
    engine.advance(Duration::from_secs(31));
}

#[test]
fn a_task_is_leased_kept_and_done() {
    let bench = TestGateway::new();
    let body = json!({"payload": "work", "type": "resize", "properties": {"colour": "red"}, "max_attempts": 5, "max_duration": "1h"});
    let id = bench.post("/v1/queues/tasks/tasks", body).text("id");
    let answer = ask(&bench, "ann");
    assert!(answer.json()["now"].as_u64().is_some());
    let lease = &answer.json()["leases"][0];
    let expected = json!({
        "lease": lease["lease"], "task": id, "epoch": 1, "attempt": 1, "max_attempts": 5, "type": "resize", "payload": "work",
        "properties": lease["properties"], "lease_time": "PT30S", "expires_at": lease["expires_at"], "budget": lease["budget"],
    });
    assert_eq!(*lease, expected);
    assert_eq!(lease["properties"]["colour"], "red");
    let expires_at = lease["expires_at"].as_u64().unwrap();
    assert!(expires_at.abs_diff(bench.engine.now_ms() + 30_000) < 2_000, "{lease}");
    let holder = bench.get(&format!("/v1/queues/tasks/tasks/{id}/lease")).json();
    assert_eq!((&holder["worker"], &holder["epoch"]), (&json!("ann"), &json!(1)));
    assert_eq!(holder.get("lease"), None, "whoever may read may not report");
    let keep = json!({"status": "INFLIGHT", "progress": {"done": 1, "total": 2}, "lease_time": "1m", "log": ["half"]});
    let kept = report(&bench, lease, keep);
    assert_eq!((kept.status.as_u16(), &kept.json()["lease_time"]), (200, &json!("PT1M")));
    assert_eq!(kept.json()["cancelled"], false);
    bench.engine.advance(Duration::from_secs(59));
    let done = report(&bench, lease, succeeded());
    assert_eq!((done.status.as_u16(), done.json().get("expires_at")), (200, None));
    assert_eq!(report(&bench, lease, succeeded()).status, 200, "told once more");
    assert_eq!(&bench.get(&format!("/v1/queues/tasks/tasks/{id}/result")).bytes[..], b"done");
    report(&bench, lease, json!({"status": "FAILED"})).check_refused(409, "task_ended");
    let lease = format!("/v1/queues/tasks/tasks/{id}/lease");
    bench.get(&lease).check_refused(404, "lease_not_found");
}

#[test]
fn nothing_comes_of_a_poll_that_finds_nothing() {
    let bench = TestGateway::new();
    let before = bench.engine.time_passed();
    assert_eq!(ask(&bench, "ann").status, 204);
    assert_eq!((bench.engine.time_passed() - before).as_secs(), 30);
    let at_once = bench.post(LEASES, json!({"worker": "ann"}));
    assert_eq!(at_once.status, 204);
    assert!(bench.engine.time_passed() - before < Duration::from_secs(33));
}

#[test]
fn the_end_of_the_gateway_ends_a_poll() {
    let bench = TestGateway::new();
    let request = TestGateway::json_request("POST", LEASES, r#"{"worker":"ann","wait":"30s"}"#);
    let before = bench.engine.time_passed();
    let stops = bench.stops.clone();
    let tasks = TaskTracker::new();
    let end = async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        stops.drain.cancel();
    };
    bench.engine.run(async { drop(tasks.spawn(end)) });
    assert_eq!(bench.send(request).status, 204);
    assert!(bench.engine.time_passed() - before < Duration::from_secs(5));
}

#[test]
fn payloads_that_are_no_text_are_base64() {
    let bench = TestGateway::new();
    bench.post("/v1/queues/tasks/tasks", json!({"payload_base64": "/w=="}));
    let lease = bench.lease("tasks", "ann");
    assert_eq!((&lease["payload_base64"], lease.get("payload")), (&json!("/w=="), None));
    let result = json!({"status": "SUCCEEDED", "result_base64": "/w=="});
    assert_eq!(report(&bench, &lease, result).status, 200);
    let id = lease["task"].as_str().unwrap();
    assert_eq!(&bench.get(&format!("/v1/queues/tasks/tasks/{id}/result")).bytes[..], [255]);
}

#[test]
fn a_silent_lease_is_fenced_and_a_checkpoint_goes_on() {
    let bench = TestGateway::new();
    bench.submit("tasks", "work");
    let first = bench.lease("tasks", "ann");
    let keep = json!({"status": "IN_PROGRESS", "checkpoint_base64": "cGFnZSA3"});
    let kept = report(&bench, &first, keep);
    assert_eq!((kept.status.as_u16(), &kept.json()["checkpoint_stored"]), (200, &json!(true)));
    beyond_the_lease(&bench.engine);
    report(&bench, &first, succeeded()).check_refused(409, "lease_expired");
    let second = bench.lease("tasks", "bob");
    assert_eq!((&second["attempt"], &second["checkpoint_base64"]), (&json!(2), &json!("cGFnZSA3")));
    let stale = report(&bench, &first, succeeded());
    stale.check_refused(409, "stale_lease_id");
    assert_eq!(stale.json()["current_epoch"], second["epoch"]);
    assert_eq!(report(&bench, &second, succeeded()).status, 200);
}

/// A lapsed lease is a failed attempt, and the next one waits for the backoff, even for a worker
/// that polls constantly. The gateway that granted the lease ends it by other code than a gateway
/// that takes over.
#[test]
fn a_task_whose_holder_fell_silent_comes_back_after_its_backoff() {
    for granted_by_another in [false, true] {
        let bench = TestGateway::new();
        let task = json!({"payload": "work", "retry": {"intervals": ["1m", "2m"]}});
        assert_eq!(bench.post("/v1/queues/tasks/tasks", task).status, 201);
        let other = granted_by_another.then(|| bench.beside(ServerConfig::default()));
        other.as_ref().unwrap_or(&bench).lease("tasks", "ann");
        drop(other);
        for (attempt, backoff) in [(2, 60), (3, 120)] {
            let leased = bench.engine.time_passed();
            let poll = || bench.post(LEASES, json!({"worker": "bob", "wait": "1s"}));
            let next = std::iter::repeat_with(poll).find(|answer| answer.status != 204).unwrap();
            let pause = (bench.engine.time_passed() - leased).as_secs();
            assert_eq!(next.json()["leases"][0]["attempt"], attempt, "{next:?}");
            // The lease itself lasts 30 s.
            assert!((30 + backoff..35 + backoff).contains(&pause), "{attempt}: after {pause} s");
        }
    }
}

#[test]
fn failures_are_retried_fatal_ones_are_not_and_what_is_given_back_costs_nothing() {
    let bench = TestGateway::new();
    let id = bench.submit("tasks", "work");
    let first = bench.lease("tasks", "ann");
    let failed = json!({"status": "FAILED", "debug_info": "no luck", "retry_after": "2s", "log": ["opened the file"]});
    assert_eq!(report(&bench, &first, failed).status, 200);
    let second = bench.lease("tasks", "ann");
    assert_eq!(second["attempt"], 2);
    assert_eq!(report(&bench, &second, json!({"status": "RELEASED", "after": "1s"})).status, 200);
    let third = bench.lease("tasks", "ann");
    assert_eq!(third["attempt"], 2);
    let fatal = json!({"status": "FAILED", "reason": "no such file", "fatal": true, "log": ["opened nothing"]});
    assert_eq!(report(&bench, &third, fatal).status, 200);
    let shown = bench.get(&format!("/v1/queues/tasks/tasks/{id}")).json();
    assert_eq!(shown["status"], "failed", "{shown}");
    assert!(shown["reason"].as_str().unwrap().contains("no such file"), "{shown}");
    assert_eq!(shown["log"], json!(["opened nothing"]), "{shown}");
    let history = bench.get(&format!("/v1/queues/tasks/tasks/{id}/history")).json();
    let entries = history["entries"].as_array().unwrap().iter();
    let lines: Vec<_> =
        entries.filter_map(|it| it.get("log").map(|log| (&it["epoch"], log))).collect();
    let (first, last) = (json!(["opened the file"]), json!(["opened nothing"]));
    assert_eq!(lines, [(&json!(1), &first), (&json!(3), &last)], "of all attempts: {history}");
}

/// It ends within about a second of its deadline, without requests for tasks: `look_after_leases`
/// has opened the queue.
#[test]
fn a_silent_lease_of_a_gateway_that_is_gone_is_ended_by_another_one() {
    let mut config = ServerConfig::default();
    config.dialects = vec![crate::config::Dialect::DQueue];
    config.dialect_queue = "tasks".to_owned();
    let one = TestGateway::with(config.clone());
    let other = one.beside(config);
    let (service, end) = (Arc::clone(&other.service), other.stops.drain.clone());
    let tasks = TaskTracker::new();
    let looking = async move { service.look_after_leases(end).await };
    other.engine.run(async { drop(tasks.spawn(looking)) });
    one.engine.advance(Duration::from_secs(1));
    let id = one.submit("tasks", "work");
    one.lease("tasks", "ann");
    drop(one);
    other.engine.advance(Duration::from_secs(33));
    let history = other.get(&format!("/v1/queues/tasks/tasks/{id}")).json();
    // The answer is immediate: a dialect uses the queue.
    assert_eq!(
        (&history["attempts"], &history["status"]),
        (&json!(1), &json!("ready")),
        "{history}"
    );
}

#[test]
fn a_holder_hears_of_a_cancellation() {
    let bench = TestGateway::new();
    let id = bench.submit("tasks", "work");
    let lease = bench.lease("tasks", "ann");
    assert_eq!(bench.post(&format!("/v1/queues/tasks/tasks/{id}:cancel"), json!({})).status, 204);
    bench.engine.advance(Duration::from_secs(1));
    let path = format!("{LEASES}/{}:keep-alive", lease["lease"].as_str().unwrap());
    let kept = bench.post(&path, json!({}));
    assert_eq!((kept.status.as_u16(), &kept.json()["cancelled"]), (200, &json!(true)));
    report(&bench, &lease, succeeded()).check_refused(409, "task_ended");
}

/// In a batch, a replaced holder must get its own outcome, rather than that the lease is over: its
/// successor continues.
#[test]
fn a_batch_of_reports_has_an_outcome_for_each() {
    let bench = TestGateway::new();
    bench.submit("tasks", "replaced");
    let replaced = bench.lease("tasks", "ann");
    let failed = json!({"status": "FAILED", "retry_after": "0s"});
    assert_eq!(report(&bench, &replaced, failed).status, 200);
    let current = bench.lease("tasks", "bob");
    assert_eq!((&current["task"], &current["attempt"]), (&replaced["task"], &json!(2)));
    for number in 0..4 {
        bench.submit("tasks", &number.to_string());
    }
    let mut leases: Vec<Value> = Vec::new();
    while leases.len() < 4 {
        let answer = bench.post(LEASES, json!({"worker": "ann", "count": 4, "wait": 30}));
        leases.extend(answer.json()["leases"].as_array().unwrap().iter().cloned());
    }
    let token = |at: usize| leases[at]["lease"].as_str().unwrap().to_owned();
    assert_eq!(report(&bench, &leases[3], succeeded()).status, 200);
    let of_another_owner = |token: &str| {
        let (attempt, _) = token.rsplit_once('~').unwrap();
        format!("{attempt}~000000000000000000000000000000ab")
    };
    let unknown = "900:7:-1~1~000000000000000000000000000000ab";
    let batch = json!({"reports": [
        {"lease": token(0), "status": "SUCCEEDED"},
        {"lease": token(1), "status": "INFLIGHT"},
        {"lease": token(2).replace('~', "/"), "status": "FAILED", "debug_info": "no luck"},
        {"lease": unknown, "status": "SUCCEEDED"},
        {"lease": of_another_owner(&token(1)), "status": "SUCCEEDED"},
        {"lease": replaced["lease"], "status": "SUCCEEDED"},
        {"lease": token(3), "status": "FAILED"},
        {"lease": token(1), "status": "DANCING"},
        {"lease": "x", "status": "SUCCEEDED"},
        {"status": "SUCCEEDED"},
        7,
    ]});
    let send = |batch: Value| {
        let outcomes = bench.post(&format!("{LEASES}:report-batch"), batch).json();
        outcomes["outcomes"].as_array().unwrap().clone()
    };
    let outcomes = send(batch);
    let said = |outcome: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&outcome["outcome"]), text(&outcome["error"]["code"]))
    };
    let expected = [
        ("RESULT_OK", ""),
        ("RESULT_OK", ""),
        ("RESULT_OK", ""),
        ("NOT_FOUND", "task_not_found"),
        ("STALE_ATTEMPT", "not_current_lease_owner"),
        ("STALE_ATTEMPT", "stale_lease_id"),
        ("NOT_IN_PROGRESS", "task_ended"),
        ("REJECTED", "request_unfit"),
        ("REJECTED", "lease_invalid"),
        ("REJECTED", "request_unfit"),
        ("REJECTED", "request_unfit"),
    ];
    let expected = expected.map(|(word, code)| (word.to_owned(), code.to_owned()));
    assert_eq!(outcomes.iter().map(said).collect::<Vec<_>>(), expected);
    assert_eq!(outcomes[1]["lease"]["lease_time"], "PT30S");
    assert_eq!(outcomes[5]["error"]["current_epoch"], current["epoch"]);
    assert_eq!(report(&bench, &current, succeeded()).status, 200, "it was not disturbed");
    beyond_the_lease(&bench.engine);
    let late = send(json!({"reports": [{"lease": token(1), "status": "SUCCEEDED"}]}));
    assert_eq!(said(&late[0]), ("NOT_IN_PROGRESS".to_owned(), "lease_expired".to_owned()));
    let many = json!({"reports": vec![json!({}); 101]});
    bench.post(&format!("{LEASES}:report-batch"), many).check_refused(422, "request_unfit");
}

#[test]
fn another_owner_is_told_that_it_is_not_the_one() {
    let bench = TestGateway::new();
    bench.submit("tasks", "work");
    let mut lease = bench.lease("tasks", "ann");
    let text = lease["lease"].as_str().unwrap().to_owned();
    let (start, _) = text.rsplit_once('~').unwrap();
    lease["lease"] = json!(format!("{start}~000000000000000000000000000000ab"));
    report(&bench, &lease, succeeded()).check_refused(409, "not_current_lease_owner");
    lease["lease"] = json!("900:7:-1~1~000000000000000000000000000000ab");
    report(&bench, &lease, succeeded()).check_refused(404, "task_not_found");
}

/// A worker leases only the types that it asks for; without types it gets the rest.
#[test]
fn tasks_are_leased_by_their_types() {
    let bench = TestGateway::new();
    let mut ids = Vec::new();
    for task_type in [Some("mail"), Some("resize"), None, Some("mail")] {
        let task = match task_type {
            Some(task_type) => json!({"payload": "work", "type": task_type}),
            None => json!({"payload": "work"}),
        };
        ids.push(bench.post("/v1/queues/tasks/tasks", task).text("id"));
    }
    let ask = |types: &[&str]| {
        let body = json!({"worker": "ann", "wait": "5s", "types": types});
        let answer = bench.post(LEASES, body);
        if answer.status == 204 {
            return None;
        }
        let lease = answer.json()["leases"][0].clone();
        assert_eq!(report(&bench, &lease, succeeded()).status, 200);
        Some(lease["task"].as_str().unwrap().to_owned())
    };
    assert_eq!(ask(&["resize", "print"]).as_ref(), Some(&ids[1]));
    assert_eq!(ask(&["print"]), None);
    assert_eq!(ask(&["mail"]).as_ref(), Some(&ids[0]), "the first of them");
    let untyped = bench.post(LEASES, json!({"worker": "ann", "wait": "5s", "types": null})).json();
    assert_eq!(untyped["leases"][0]["task"], json!(ids[2]), "any: the first that is left");
    assert_eq!(ask(&["print", "mail"]).as_ref(), Some(&ids[3]));
    assert_eq!(ask(&["mail", "resize"]), None);
}

/// An invalid report is refused with a reason, and the lease continues.
#[test]
fn what_cannot_be_used_changes_nothing() {
    let bench = TestGateway::new();
    for (body, code) in [
        (json!({}), "json_unfit"),
        (json!({"worker": ""}), "request_unfit"),
        (json!({"worker": "a\u{0}"}), "request_unfit"),
        (json!({"worker": "w".repeat(257)}), "request_unfit"),
        (json!({"worker": "ann", "count": 0}), "request_unfit"),
        (json!({"worker": "ann", "count": 101}), "request_unfit"),
        (json!({"worker": "ann", "lease_time": "1ms"}), "request_unfit"),
        (json!({"worker": "ann", "lease_time": "8d"}), "request_unfit"),
        (json!({"worker": "ann", "lease_time": "1 month"}), "json_unfit"),
        (json!({"worker": "ann", "lease_time": 700_000}), "request_unfit"),
        (json!({"worker": "ann", "wait": "soon"}), "json_unfit"),
        (json!({"worker": "ann", "types": []}), "request_unfit"),
        (json!({"worker": "ann", "types": vec!["a"; 17]}), "request_unfit"),
        (json!({"worker": "ann", "types": [""]}), "request_unfit"),
        (json!({"worker": "ann", "types": ["t".repeat(129)]}), "request_unfit"),
        (json!({"worker": "ann", "types": "a"}), "json_unfit"),
        (json!({"worker": "ann", "types": [1]}), "json_unfit"),
        (json!({"worker": "ann", "types": [null]}), "json_unfit"),
        (json!({"worker": "ann", "colour": "red"}), "json_unfit"),
    ] {
        bench.post(LEASES, body).check_refused(422, code);
    }
    let none = bench.post(LEASES, json!({"worker": "ann", "count": 0})).text("detail");
    assert_eq!(none, "`count` must be 1 to 100 leases, not 0");
    let longest = bench.post(LEASES, json!({"worker": "ann", "lease_time": "7d"}));
    assert_eq!(longest.status, 204, "{longest:?}");
    let id = bench.submit("tasks", "work");
    let lease = bench.lease("tasks", "ann");
    for (body, status, code) in [
        (json!({"status": "DANCING"}), 422, "json_unfit"),
        (
            json!({"status": "SUCCEEDED", "result": "a", "result_base64": "YQ=="}),
            422,
            "request_unfit",
        ),
        (json!({"status": "SUCCEEDED", "result_base64": "***"}), 422, "request_unfit"),
        (json!({"status": "SUCCEEDED", "reason": "a"}), 422, "request_unfit"),
        (json!({"status": "FAILED", "result": "a"}), 422, "request_unfit"),
        (json!({"status": "FAILED", "lease_time": "1m"}), 422, "request_unfit"),
        (json!({"status": "IN_PROGRESS", "lease_time": "1ms"}), 422, "request_unfit"),
        (json!({"status": "SUCCEEDED", "result": "a".repeat(1_100_000)}), 413, "too_large"),
    ] {
        report(&bench, &lease, body).check_refused(status, code);
    }
    let report = |path: &str, body: Value| bench.post(&format!("{LEASES}{path}"), body);
    // It names no lease.
    report(":report", succeeded()).check_refused(422, "request_unfit");
    report("/x:report", succeeded()).check_refused(400, "lease_invalid");
    report("/1:2:-1~x~0:keep-alive", json!({})).check_refused(400, "lease_invalid");
    let mut named = succeeded();
    named["lease"] = lease["lease"].clone();
    let path = format!("/{}:report", lease["lease"].as_str().unwrap());
    // It names the lease twice.
    report(&path, named).check_refused(422, "request_unfit");
    assert_eq!(report(&path.replace('~', "%2F"), succeeded()).status, 200, "percent-encoded");
    let shown = bench.get(&format!("/v1/queues/tasks/tasks/{id}")).json();
    assert_eq!((&shown["status"], &shown["attempts"]), (&json!("completed"), &json!(1)));
}

#[test]
fn a_gateway_leases_as_many_queues_as_it_may() {
    let mut config = ServerConfig::default();
    config.limits.leased_queues = 1;
    let bench = TestGateway::with(config);
    let other = || bench.post("/v1/queues/other/leases", json!({"worker": "ann"}));
    for _ in 0..2 {
        // A queue without work makes room for the one that is asked for.
        assert_eq!(bench.post(LEASES, json!({"worker": "ann"})).status, 204);
        assert_eq!(other().status, 204);
    }
    bench.submit("tasks", "work");
    let lease = bench.lease("tasks", "ann");
    let refused = other();
    refused.check_refused(503, "too_many_queues");
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(report(&bench, &lease, succeeded()).status, 200);
    bench.engine.advance(Duration::from_secs(2));
    assert_eq!(other().status, 204);
}

/// A task of high priority is leased first.
#[test]
fn priorities_are_leased_in_their_order() {
    let bench = TestGateway::new();
    assert_eq!(bench.post(LEASES, json!({"worker": "ann"})).status, 204);
    for priority in ["low", "normal", "high"] {
        let body = json!({"payload": priority, "priority": priority});
        assert_eq!(bench.post("/v1/queues/tasks/tasks", body).status, 201);
    }
    bench.engine.advance(Duration::from_secs(1));
    let mut order = Vec::new();
    for _ in 0..3 {
        let lease = bench.lease("tasks", "ann");
        order.push(lease["payload"].as_str().unwrap().to_owned());
        assert_eq!(report(&bench, &lease, succeeded()).status, 200);
    }
    assert_eq!(order, ["high", "normal", "low"]);
}

/// The gateway must adopt the heartbeat interval on the queue's ledger: with its own default, the
/// ledger would refuse it for ever.
#[test]
fn a_gateway_takes_over_the_settings_of_the_queues_ledger() {
    let bench = TestGateway::new();
    let worker = bench.engine.worker("tasks", processor_fn(async |_: Text, _| Ok(())));
    let worker = worker.heartbeat(Duration::from_secs(5));
    let worker = bench.engine.start(worker);
    bench.engine.run(worker.ready());
    bench.engine.run(worker.drain(Duration::ZERO)).unwrap();
    bench.submit("tasks", "work");
    let lease = bench.lease("tasks", "ann");
    assert_eq!(report(&bench, &lease, succeeded()).status, 200);
}

/// A gateway looks after every queue, even without requests. It must not write its settings to an
/// empty ledger, which would refuse a first worker with other settings.
#[test]
fn a_gateway_that_leases_nothing_leaves_the_settings_to_workers() {
    let bench = TestGateway::new();
    assert_eq!(bench.post(LEASES, json!({"worker": "ann"})).status, 204);
    bench.engine.advance(Duration::from_secs(60));
    let worker = bench.engine.worker("tasks", processor_fn(async |_: Text, _| Ok(())));
    let worker = worker.heartbeat(Duration::from_secs(5));
    let worker = bench.engine.start(worker);
    bench.engine.run(worker.ready());
    bench.engine.advance(Duration::from_secs(60));
    bench.engine.run(worker.drain(Duration::ZERO)).unwrap();
    bench.submit("tasks", "work");
    let lease = bench.lease("tasks", "ann");
    assert_eq!(report(&bench, &lease, succeeded()).status, 200);
}
