//! Each dialect against its table: one case per numbered line of its document (docs/features.md),
//! on an in-memory engine.

mod dqueue;
mod jobs;
mod jobs_leases;
mod jobs_submits;
mod logged;
mod native;

use crate::config::{Dialect, ServerConfig};
use crate::testing::{TestGateway, TestResponse};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a line is tested.
enum Proof {
    Here(fn(&TestGateway)),
    /// Tested elsewhere, by this test, or not at all, for this reason.
    Elsewhere(&'static str),
}

fn config(dialect: Dialect) -> ServerConfig {
    let dialect_queue = "jobs".to_owned();
    ServerConfig { dialects: vec![dialect], dialect_queue, ..ServerConfig::default() }
}

/// Runs the cases of all lines, each with its own gateway, and lists the failed ones.
fn prove(dialect: Dialect, lines: &[(&str, Proof)]) {
    let mut failed = Vec::new();
    for (number, proof) in lines {
        match proof {
            Proof::Here(case) => {
                let prove = || case(&TestGateway::with(config(dialect)));
                if catch_unwind(AssertUnwindSafe(prove)).is_err() {
                    failed.push(*number);
                }
            }
            Proof::Elsewhere(by) => assert!(by.len() > 10, "{number} needs a reason"),
        }
    }
    assert!(failed.is_empty(), "lines that do not hold, each with its panic above: {failed:?}");
}

fn post(bench: &TestGateway, path: &str, body: Value) -> (u16, Value) {
    let answer = bench.post(path, body);
    (answer.status.as_u16(), answer.json())
}

fn request(path: &str, body: &Value) -> Request<Body> {
    TestGateway::request("POST", path, body.to_string())
}

fn keyed(path: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = TestGateway::request("POST", path, body);
    request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

/// Enqueues a job of the dialect `jobs`.
fn enqueue(bench: &TestGateway, payload: &str) -> String {
    let (status, body) = post(bench, "/enqueue", json!({"payload": payload}));
    assert_eq!(status, 200, "{body}");
    body["job_id"].as_str().unwrap().to_owned()
}

fn poll(bench: &TestGateway, worker: &str) -> Value {
    let answer: TestResponse = bench.post("/poll", json!({"worker_id": worker}));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Reports on a polled job; returns status and code.
fn report(bench: &TestGateway, verb: &str, worker: &str, job: &Value) -> (u16, String) {
    let body = json!({"worker_id": worker, "job_id": job["id"], "lease_id": job["lease_id"]});
    let answer = bench.post(verb, body);
    (answer.status.as_u16(), answer.code())
}

const OK: fn() -> (u16, String) = || (200, String::new());

fn conflict(code: &str) -> (u16, String) {
    (409, code.to_owned())
}

/// The job from `/jobs`.
fn shown(bench: &TestGateway, id: &str) -> Value {
    bench.get("/jobs").json()[id].clone()
}

fn state(bench: &TestGateway, id: &str) -> String {
    shown(bench, id)["state"].as_str().unwrap_or_default().to_owned()
}
