//! What callers are shown, and how they are named; who may call what is in `authorization`.

use crate::auth::TokenScope;
use crate::config::{Dialect, ServerConfig};
use crate::testing::{TestGateway, TestResponse};
use axum::body::Body;
use axum::http::Request;
use ring::digest::{SHA256, digest};
use std::fmt::Write;

pub(super) fn hex(token: &str) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, token.as_bytes()).as_ref() {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// A file with one token per scope, named like the scope.
pub(super) fn token_file() -> tempfile::NamedTempFile {
    let entry = |it: TokenScope| {
        let (name, hash) = (it.word(), hex(it.word()));
        format!(r#"{{"name":"{name}","sha256":"{hash}","scopes":["{name}"]}}"#)
    };
    let entries = TokenScope::ALL.map(entry).join(",");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!(r#"{{"tokens":[{entries}]}}"#)).unwrap();
    file
}

/// A gateway with these tokens.
fn bench() -> (TestGateway, tempfile::NamedTempFile) {
    let file = token_file();
    let token_file = Some(file.path().to_owned());
    let dialects = vec![Dialect::Jobs, Dialect::DQueue];
    let config = ServerConfig { token_file, dialects, ..ServerConfig::default() };
    (TestGateway::with(config), file)
}

/// A request with a token and a JSON body.
pub(super) fn request(
    method: &str,
    path: &str,
    token: &str,
    body: impl Into<Body>,
) -> Request<Body> {
    let mut request = TestGateway::json_request(method, path, body);
    let token = format!("Bearer {token}");
    request.headers_mut().insert("authorization", token.parse().unwrap());
    request
}

pub(super) fn authorized(
    bench: &TestGateway,
    method: &str,
    path: &str,
    token: &str,
    body: impl Into<Body>,
) -> TestResponse {
    bench.send(request(method, path, token, body))
}

/// The status of the answer, and its code. A stream has no end: only its head is read.
pub(super) fn status(
    bench: &TestGateway,
    method: &str,
    path: &str,
    token: &str,
    body: impl Into<Body>,
) -> (u16, String) {
    let (parts, body) = bench.open(request(method, path, token, body)).into_parts();
    if parts.headers.get("content-type").is_some_and(|it| it == "text/event-stream") {
        return (parts.status.as_u16(), String::new());
    }
    let bytes = bench.engine.run(http_body_util::BodyExt::collect(body)).unwrap().to_bytes();
    let asked = format!("{method} {path}");
    let answer = TestResponse { asked, status: parts.status, headers: parts.headers, bytes };
    (answer.status.as_u16(), answer.code())
}

/// Under an idempotency key, the payload may be that of another caller.
#[test]
fn a_token_that_may_not_read_is_answered_no_payload() {
    let (bench, _file) = bench();
    let send = |token: &str, path: &str, body: &'static str| {
        authorized(&bench, "POST", path, token, body).json()
    };
    let first = send("admin", "/tasks", r#"{"payload":"canary","idempotency_key":"k"}"#);
    assert_eq!(first["payload"], serde_json::json!("canary"));
    let again = send("submit", "/tasks", r#"{"payload":"","idempotency_key":"k"}"#);
    assert_eq!((&again["id"], &again["hidden"]), (&first["id"], &serde_json::json!(true)));
    let leased = send("work", "/tasks/lease", r#"{"worker_id":"ann","wait":5}"#);
    assert_eq!(leased["payload"], serde_json::json!("canary"), "a worker gets it with its lease");
    let path = format!("/tasks/{}/ack", first["id"].as_str().unwrap());
    let acked = send("work", &path, r#"{"worker_id":"bob"}"#);
    assert_eq!(acked["code"], serde_json::json!("not_current_lease_owner"));
    for worker in [r#"{"worker_id":"ann"}"#, r#"{"worker_id":"bob"}"#] {
        let acked = send("work", &path, worker);
        assert_eq!((&acked["state"], &acked["payload"]), (&"COMPLETED".into(), &().into()));
    }
}

#[test]
fn a_stream_ends_when_its_token_is_revoked() {
    use http_body_util::BodyExt;
    let (bench, file) = bench();
    let stream = bench.open(request("GET", "/v1/queues/tasks/events", "read", ""));
    std::fs::write(file.path(), r#"{"tokens":[]}"#).unwrap();
    // The file is checked at most once a second, in real time.
    while authorized(&bench, "GET", "/v1/queues/tasks", "read", "").status != 401 {}
    let before = bench.engine.time_passed();
    bench.engine.run(stream.into_body().collect()).unwrap();
    let took = bench.engine.time_passed() - before;
    assert!(took.as_secs() <= 15, "{took:?}");
}

/// The log of actions names the token of the caller.
#[test]
fn actions_are_logged_under_the_name_of_the_token() {
    let (bench, _file) = bench();
    let authorized = |method: &str, path: &str, body: &'static str| {
        authorized(&bench, method, path, "admin", body)
    };
    let id = authorized("POST", "/v1/queues/tasks/tasks", r#"{"payload":"a"}"#).text("id");
    let deleted = authorized("DELETE", &format!("/v1/queues/tasks/tasks/{id}?reason=mistake"), "");
    assert_eq!(deleted.status, 204);
    let log = authorized("GET", "/v1/queues/tasks/actions", "").json();
    assert_eq!(log["actions"][0]["operator"], serde_json::json!("admin"), "{log}");
    let queue = "/v1/queues/tasks";
    let schedule = format!("{queue}/schedules/nightly");
    let why = r#"{"reason":"night"}"#;
    let new = r#"{"schedule":{"every":"1h"},"task":{"payload":"a"},"reason":"night"}"#;
    let times = r#"{"expected_version":1,"schedule":{"every":"2h"},"reason":"night"}"#;
    let settings = r#"{"expected_version":2,"settings":{"max_attempts":2},"reason":"night"}"#;
    for (method, path, body) in [
        ("POST", format!("{queue}:pause"), why),
        ("POST", format!("{queue}:resume"), why),
        ("PATCH", queue.to_owned(), settings),
        ("POST", schedule.clone(), new),
        ("PATCH", schedule.clone(), times),
        ("POST", format!("{schedule}:pause"), why),
        ("POST", format!("{schedule}:resume"), why),
        ("POST", format!("{schedule}:trigger"), why),
        ("DELETE", format!("{schedule}?reason=night"), ""),
    ] {
        let done = authorized(method, &path, body);
        assert!(done.status.is_success(), "{method} {path}: {done:?}");
    }
    let log = authorized("GET", "/v1/queues/tasks/actions?limit=9", "").json();
    let upon = |it: &serde_json::Value| {
        assert_eq!((&it["operator"], &it["reason"]), (&"admin".into(), &"night".into()), "{it}");
        let schedule = it["schedule"].as_str().unwrap_or("the queue").to_owned();
        format!("{schedule} {}", it["action"].as_str().unwrap())
    };
    let found: Vec<String> = log["actions"].as_array().unwrap().iter().map(upon).collect();
    let expected = [
        "the queue pause",
        "the queue resume",
        "the queue update",
        "nightly create",
        "nightly update",
        "nightly pause",
        "nightly resume",
        "nightly trigger",
        "nightly delete",
    ];
    assert_eq!(found, expected);
}
