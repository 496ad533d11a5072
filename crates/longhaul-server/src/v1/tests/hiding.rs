//! A gateway that hides payloads, through every route that reads, dialects included.

use super::allowed;
use super::streaming::read_until;
use crate::auth::TokenScope;
use crate::config::{Dialect, ServerConfig};
use crate::dialects;
use crate::route::{self, Method, RouteAccess};
use crate::testing::{TestGateway, TestResponse};
use axum::body::Body;
use axum::http::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const QUEUE: &str = "jobs";
const PAYLOAD: &str = "payload-canary";
const RESULT: &str = "result-canary-";
const CHECKPOINT: &str = "checkpointcanary";

struct Hiding {
    bench: TestGateway,
    config: ServerConfig,
    _tokens: Option<tempfile::NamedTempFile>,
    done: String,
    dead: String,
}

fn request(method: &str, path: &str, scope: TokenScope, body: &Value) -> Request<Body> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    allowed::request(method, path, scope.word(), body)
}

fn shows(text: &str) -> bool {
    let texts = [PAYLOAD, RESULT, CHECKPOINT];
    texts.iter().any(|it| text.contains(it) || text.contains(&STANDARD.encode(it)))
}

impl Hiding {
    /// A queue with a completed task, one that failed for good, and one that runs, with a
    /// checkpoint.
    fn new(hide_payloads: bool, has_tokens: bool) -> Self {
        let tokens = has_tokens.then(allowed::token_file);
        let config = ServerConfig {
            hide_payloads,
            token_file: tokens.as_ref().map(|file| file.path().to_owned()),
            dialects: vec![Dialect::Jobs, Dialect::DQueue],
            dialect_queue: QUEUE.to_owned(),
            ..ServerConfig::default()
        };
        let bench = TestGateway::with(config.clone());
        let (done, dead) = (String::new(), String::new());
        let mut it = Self { bench, config, _tokens: tokens, done, dead };
        it.done = it.worked(&json!({"status": "SUCCEEDED", "result": RESULT}));
        it.dead = it.worked(&json!({"status": "FAILED", "reason": "no luck", "fatal": true}));
        it.worked(
            &json!({"status": "IN_PROGRESS", "checkpoint_base64": STANDARD.encode(CHECKPOINT)}),
        );
        it.bench.engine.advance(Duration::from_secs(1));
        it
    }

    fn ask(&self, method: &str, path: &str, scope: TokenScope, body: &Value) -> TestResponse {
        self.bench.send(request(method, path, scope, body))
    }

    /// A task that a worker has leased, with its payload, and reported on.
    fn worked(&self, report: &Value) -> String {
        let queue = format!("/v1/queues/{QUEUE}");
        let task = json!({"payload": PAYLOAD});
        let id = self.ask("POST", &format!("{queue}/tasks"), TokenScope::Submit, &task).text("id");
        let wants = json!({"worker": "ann", "wait": 5});
        let leased = self.ask("POST", &format!("{queue}/leases"), TokenScope::Work, &wants).json();
        let lease = &leased["leases"][0];
        assert_eq!((&lease["task"], &lease["payload"]), (&json!(id), &json!(PAYLOAD)), "{leased}");
        let path = format!("{queue}/leases/{}:report", lease["lease"].as_str().unwrap());
        let reported = self.ask("POST", &path, TokenScope::Work, report);
        assert_eq!(reported.status, 200, "{reported:?}");
        id
    }

    /// The answers of all routes that read, with or without payloads and results.
    fn looks(&self, scope: TokenScope) -> Vec<(String, String)> {
        let mut answers = Vec::new();
        for route in route::all().into_iter().chain(dialects::routes(&self.config)) {
            let info = route.info;
            if info.method != Method::Get || info.access == RouteAccess::Open {
                continue;
            }
            for id in [&self.done, &self.dead] {
                let path = info.path.replace("{queue}", QUEUE).replace("{task}", id);
                let path = path.replace("{name}", "nightly");
                let text = if path.ends_with("/events") {
                    self.events(&path, scope)
                } else {
                    String::from_utf8(self.ask("GET", &path, scope, &Value::Null).bytes.into())
                        .unwrap()
                };
                answers.push((info.path.to_owned(), text));
            }
        }
        answers
    }

    /// The events so far.
    fn events(&self, path: &str, scope: TokenScope) -> String {
        let request = request("GET", &format!("{path}?from=earliest"), scope, &Value::Null);
        let mut body = self.bench.open(request).into_body();
        self.bench.engine.run(read_until(&mut body, "event: caught-up"))
    }

    fn show(&self, scope: TokenScope) -> BTreeSet<String> {
        let all = self.looks(scope);
        assert!(all.len() > 30, "{}", all.len());
        all.into_iter().filter(|(_, text)| shows(text)).map(|(path, _)| path).collect()
    }
}

/// The routes that show payloads and results if they are not hidden.
fn that_show() -> BTreeSet<String> {
    let task = "/v1/queues/{queue}/tasks/{task}";
    let mut routes = BTreeSet::from(["/jobs", "/dead", "/tasks/{task}"].map(str::to_owned));
    routes.extend([format!("{task}/payload"), format!("{task}/result")]);
    // A short result is told with its task.
    let queue = "/v1/queues/{queue}";
    routes.extend([task.to_owned(), format!("{task}/wait"), format!("{queue}/events")]);
    routes.insert("/v1/queues/{queue}/dead/{task}".to_owned());
    routes
}

#[test]
fn no_route_shows_what_is_hidden_but_to_admins() {
    let hiding = Hiding::new(true, true);
    assert_eq!(hiding.show(TokenScope::Read), BTreeSet::new());
    assert_eq!(hiding.show(TokenScope::Admin), that_show());
    assert_eq!(Hiding::new(true, false).show(TokenScope::Admin), BTreeSet::new(), "without tokens");
    assert_eq!(Hiding::new(false, true).show(TokenScope::Read), that_show(), "unless it is said");
}

#[test]
fn whoever_may_not_see_something_is_told_so() {
    let hiding = Hiding::new(true, true);
    let (done, dead) = (&hiding.done, &hiding.dead);
    let get = |path: &str| hiding.ask("GET", path, TokenScope::Read, &Value::Null);
    let queue = format!("/v1/queues/{QUEUE}");
    for path in [format!("{done}/result"), format!("{done}/payload"), format!("{dead}/payload")] {
        let refused = get(&format!("{queue}/tasks/{path}"));
        refused.check_refused(403, "payload_hidden");
        assert!(refused.text("detail").contains("`admin`"), "{refused:?}");
    }
    // The state of a task is not hidden.
    assert_eq!(get(&format!("{queue}/tasks/{dead}/result")).code(), "task_failed");
    assert_eq!(get(&format!("{queue}/tasks/900:7:-1/payload")).status, 404);
    let waited = get(&format!("{queue}/tasks/{done}/wait")).json();
    assert_eq!((&waited["status"], &waited["hidden"]), (&json!("completed"), &json!(true)));
    assert_eq!(waited["result_bytes"], json!(RESULT.len()));
    let letter = get(&format!("{queue}/dead/{dead}")).json();
    assert_eq!((&letter["hidden"], &letter["payload_base64"]), (&json!(true), &Value::Null));
    assert_eq!(
        (&letter["reason"], &letter["payload_bytes"]),
        (&json!("Processing error: no luck"), &json!(PAYLOAD.len()))
    );
    assert_eq!(letter["cause"], json!("error"));
    assert_eq!(get(&format!("{queue}/tasks/{dead}")).json()["cause"], json!("error"));
    let listed = get(&format!("{queue}/tasks")).json();
    let mut listed = listed["tasks"].as_array().unwrap().iter();
    assert!(listed.clone().all(|it| it["hidden"] == json!(true)));
    assert!(listed.any(|it| it["cause"] == json!("error")));
    let jobs = get("/jobs").json();
    let jobs = jobs.as_object().unwrap().values();
    assert_eq!(jobs.filter(|it| it["payload"] == "" && it["hidden"] == json!(true)).count(), 3);
    let task = get(&format!("/tasks/{done}")).json();
    assert_eq!((&task["payload"], &task["hidden"]), (&Value::Null, &json!(true)));
    // The field is absent for callers from whom nothing is hidden.
    let seen = hiding.ask("GET", &format!("/tasks/{done}"), TokenScope::Admin, &Value::Null).json();
    assert_eq!((&seen["payload"], seen.get("hidden")), (&json!(PAYLOAD), None));
}

/// A submitter does not see the payload that another caller submitted under the same key, and a
/// worker does not see payloads after its lease.
#[test]
fn workers_are_shown_the_payloads_of_their_leases_alone() {
    let hiding = Hiding::new(true, true);
    let new = json!({"payload": PAYLOAD, "idempotency_key": "once"});
    let submitted = hiding.ask("POST", "/tasks", TokenScope::Submit, &new);
    assert_eq!(submitted.status, 201, "{submitted:?}");
    assert_eq!(submitted.json()["hidden"], json!(true));
    let leased = hiding.ask(
        "POST",
        "/tasks/lease",
        TokenScope::Work,
        &json!({"worker_id": "ann", "wait": 5}),
    );
    assert_eq!((leased.text("payload"), leased.json().get("hidden")), (PAYLOAD.to_owned(), None));
    let path = format!("/tasks/{}/ack", leased.text("id"));
    let acked = hiding.ask("POST", &path, TokenScope::Work, &json!({"worker_id": "ann"}));
    assert_eq!((acked.status.as_u16(), &acked.json()["hidden"]), (200, &json!(true)));
    assert!(!shows(&String::from_utf8_lossy(&acked.bytes)), "{acked:?}");
    let job = hiding.ask("POST", "/enqueue", TokenScope::Submit, &json!({"payload": PAYLOAD}));
    assert_eq!(job.status, 200, "{job:?}");
    let polled = hiding.ask("POST", "/poll", TokenScope::Work, &json!({"worker_id": "ann"}));
    assert_eq!(
        (polled.text("id"), polled.text("payload")),
        (job.text("job_id"), PAYLOAD.to_owned())
    );
}
