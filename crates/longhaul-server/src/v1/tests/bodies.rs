//! Answers to JSON bodies that a route does not accept, and bodies that the document marks as
//! optional.

use crate::testing::TestGateway;
use axum::body::Body;
use serde_json::{Value, json};

/// The routes of the document that take JSON: method, path, and whether the body is required.
fn routes() -> Vec<(String, String, bool)> {
    let document: Value = serde_json::from_str(crate::route::document()).unwrap();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let body = &operation["requestBody"];
            if body["content"].get("application/json").is_some() {
                let at = path.replace("{queue}", "tasks").replace("{task}", "1:2:-1");
                let at = at
                    .replace("{name}", "nightly")
                    .replace("{lease}", &format!("1:2:-1~1~{}", "0".repeat(32)));
                routes.push((method.to_uppercase(), at, body["required"] == json!(true)));
            }
        }
    }
    assert!(routes.len() > 20, "{routes:?}");
    routes
}

/// Sends JSON as it is; returns the status, the code and the text of the answer.
pub(super) fn raw(
    bench: &TestGateway,
    (method, path): (&str, &str),
    body: impl Into<Body>,
) -> (u16, String, String) {
    let answer = bench.send(TestGateway::json_request(method, path, body));
    (answer.status.as_u16(), answer.code(), answer.text("detail"))
}

/// Answers to a non-object name JSON kinds, not Rust types.
#[test]
fn what_is_no_object_is_told_in_the_words_of_json() {
    let bench = TestGateway::new();
    for (method, path, _) in routes() {
        for (body, is) in [
            ("null", "found `null`"),
            (" [null]", "found an array"),
            ("[{}]", "found an array"),
            ("7", "found a number"),
            ("true", "found a boolean"),
            (r#""{}""#, "found a string"),
        ] {
            let (status, code, detail) = raw(&bench, (&method, &path), body);
            assert_eq!((status, &*code), (422, "json_unfit"), "{method} {path} {body}: {detail}");
            let told = detail.ends_with(is) && detail.contains("expected an object");
            assert!(told, "{method} {path} {body}: {detail}");
        }
    }
}

/// Rust type names mean nothing to callers.
#[test]
fn what_is_wrong_within_an_object_is_told_in_the_words_of_json() {
    let bench = TestGateway::new();
    let (tasks, schedule) = ("/v1/queues/tasks/tasks", "/v1/queues/tasks/schedules/nightly");
    for (path, body, says) in [
        (tasks, json!({"payload": "a", "retry": 7}), "expected an object"),
        (tasks, json!({"payload": "a", "retry": "x"}), "expected an object"),
        (tasks, json!({"payload": "a", "properties": []}), "expected an object"),
        (tasks, json!({"payload": "a", "tags": {}}), "expected an array"),
        (schedule, json!({"schedule": null, "task": {}}), "expected an object"),
        (schedule, json!({"schedule": {"every": "1h"}, "task": null}), "expected an object"),
    ] {
        let (status, code, detail) = raw(&bench, ("POST", path), body.to_string());
        assert_eq!((status, &*code), (422, "json_unfit"), "{body}: {detail}");
        assert!(detail.contains(says) && !detail.contains("struct "), "{body}: {detail}");
    }
    let batch = bench.post(&format!("{tasks}:batch"), json!({"tasks": [{"retry": 7}]})).json();
    let told = batch.pointer("/outcomes/0/error/detail").unwrap().to_string();
    assert!(told.contains("expected an object"), "{told}");
}

/// A generated client need not send an optional body.
#[test]
fn a_body_may_be_left_out_where_the_document_says_so_and_nowhere_else() {
    let bench = TestGateway::new();
    let mut optional = 0;
    for (method, path, is_required) in routes() {
        let answer = bench.send(TestGateway::request(&method, &path, ""));
        let code = answer.code();
        let missing = [
            "json_malformed",
            "content_type_not_json",
            "content_type_missing",
            "selection_unclear",
        ];
        assert_eq!(missing.contains(&&*code), is_required, "{method} {path}: {answer:?}");
        optional += usize::from(!is_required);
    }
    assert!(optional > 8, "{optional}");
}

/// Some programs begin a text with a byte order mark, and each of their bodies was refused.
#[test]
fn a_byte_order_mark_is_no_part_of_the_json_behind_it() {
    let bench = TestGateway::new();
    let submit = |body: &'static str| {
        bench.send(TestGateway::json_request("POST", "/v1/queues/tasks/tasks", body)).status
    };
    assert_eq!(submit("\u{feff}{\"payload\":\"a\"}"), 201);
    assert_eq!(submit("\u{feff}\u{feff}{\"payload\":\"a\"}"), 400);
}
