//! The dialect `jobs`: submits and their keys.

use super::{enqueue, keyed, post, request};
use crate::testing::TestGateway;
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

pub(super) fn enqueues(bench: &TestGateway) {
    let (status, body) = post(bench, "/enqueue", json!({"payload": "work"}));
    assert_eq!((status, body.as_object().unwrap().len()), (200, 1));
    assert!(Uuid::parse_str(body["job_id"].as_str().unwrap()).is_ok(), "{body}");
    assert_ne!(enqueue(bench, "work"), body["job_id"].as_str().unwrap());
    // Scripts may send it like this: curl declares a form by default.
    let mut form = request("/enqueue", &json!({"payload": "work", "unknown": 1}));
    let kind = "application/x-www-form-urlencoded".parse().unwrap();
    form.headers_mut().insert("content-type", kind);
    assert_eq!(bench.send(form).status, 200);
}

pub(super) fn errors(bench: &TestGateway) {
    for method in ["GET", "PUT", "DELETE"] {
        assert_eq!(
            bench.send(TestGateway::request(method, "/enqueue", "")).status,
            405,
            "{method}"
        );
    }
    for body in ["", "{", "7", "[]", r#"{"payload":7}"#, r#"{"payload":"a"}}"#, "\0"] {
        assert_eq!(
            bench.send(TestGateway::request("POST", "/enqueue", body)).status,
            400,
            "{body}"
        );
    }
    assert_eq!(bench.get("/jobs").json(), json!({}));
}

pub(super) fn at_once(bench: &TestGateway) {
    let body = json!({"payload": "work"});
    let submits = (0..50).map(|_| request("/enqueue", &body));
    let looks = (0..10).map(|_| TestGateway::request("GET", "/jobs", ""));
    let answers = bench.send_all(submits.chain(looks));
    assert!(answers.iter().all(|answer| answer.status == 200));
    let ids: BTreeSet<String> = answers.iter().take(50).map(|it| it.text("job_id")).collect();
    let jobs = bench.get("/jobs").json();
    assert_eq!(jobs.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>(), ids);
    assert_eq!(ids.len(), 50);
}

pub(super) fn same_key(bench: &TestGateway) {
    let enqueue = |payload: &str| {
        let body = json!({"payload": payload}).to_string();
        let answer = bench.send(keyed("/enqueue", "key-1", body));
        assert_eq!(answer.status, 200);
        answer.text("job_id")
    };
    let first = enqueue("work");
    assert_eq!((enqueue("work"), enqueue("another payload")), (first.clone(), first.clone()));
    let jobs = bench.get("/jobs").json();
    let shown = jobs.as_object().unwrap();
    assert_eq!((shown.len(), &shown[&first]["payload"]), (1, &json!("work")));
    // Another gateway knows the key, too: it is bound in the log.
    let other = bench.beside(super::config(crate::config::Dialect::Jobs));
    let again = other.send(keyed("/enqueue", "key-1", json!({"payload": "work"}).to_string()));
    assert_eq!(again.text("job_id"), first);
}

pub(super) fn in_progress(bench: &TestGateway) {
    let submit = || keyed("/enqueue", "key-1", r#"{"payload":"work"}"#);
    let answers = bench.send_all([submit(), submit()]);
    assert_eq!(answers[0].status, 200);
    assert_eq!((answers[1].status.as_u16(), answers[1].bytes.len()), (409, 0));
    let later = bench.send(submit());
    assert_eq!(later.text("job_id"), answers[0].text("job_id"));
}

pub(super) fn race(bench: &TestGateway) {
    let submits = (0..20).map(|_| keyed("/enqueue", "key-1", r#"{"payload":"work"}"#));
    let answers = bench.send_all(submits);
    let ids: BTreeSet<String> = answers
        .iter()
        .filter(|answer| answer.status != 409)
        .map(|answer| answer.text("job_id"))
        .collect();
    assert_eq!(ids.len(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.status == 200 || answer.status == 409));
    assert_eq!(bench.get("/jobs").json().as_object().unwrap().len(), 1);
}

pub(super) fn malformed_is_free(bench: &TestGateway) {
    let malformed = bench.send(keyed("/enqueue", "key-1", "{"));
    assert_eq!(malformed.status, 400);
    let long = "k".repeat(300);
    assert_eq!(bench.send(keyed("/enqueue", &long, r#"{"payload":"a"}"#)).status, 400);
    let mut two = keyed("/enqueue", "key-1", r#"{"payload":"a"}"#);
    two.headers_mut().append("idempotency-key", "key-2".parse().unwrap());
    bench.send(two).check_refused(400, "idempotency_key_invalid");
    assert_eq!(bench.send(keyed("/enqueue", "key-1", r#"{"payload":"a"}"#)).status, 200);
}
