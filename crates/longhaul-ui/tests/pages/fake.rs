//! A gateway with fixed answers, and one text wherever it shows untrusted input.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul_ui::UiOptions;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tower::ServiceExt;

/// The token that the gateway accepts, if it requires one.
pub(crate) const TOKEN: &str = "s3cret; with=odd, characters";

/// A request to the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// With its query, unchanged.
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

/// A dashboard in front of such a gateway.
pub(crate) struct Site {
    router: Router,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// The answer to a browser.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }
}

/// The options of the gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Like<'a> {
    /// The text shown wherever untrusted input appears.
    pub(crate) text: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) wants_token: bool,
    /// It has no broker.
    pub(crate) is_away: bool,
}

impl Default for Like<'_> {
    fn default() -> Self {
        Self { text: "plain", queue: "mails", wants_token: false, is_away: false }
    }
}

impl Site {
    pub(crate) fn new(like: Like<'_>, change: impl FnOnce(&mut UiOptions)) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (seen, text, queue) = (Arc::clone(&calls), like.text.to_owned(), like.queue.to_owned());
        let api = Router::new().fallback(move |request: Request<Body>| {
            let (seen, text, queue) = (Arc::clone(&seen), text.clone(), queue.clone());
            async move {
                let call = read(request).await;
                let is_known = call.authorization.as_deref() == Some(&format!("Bearer {TOKEN}"));
                seen.lock().unwrap().push(call.clone());
                if like.wants_token && !is_known {
                    return problem(StatusCode::UNAUTHORIZED, "token_unknown", "who is that?");
                }
                if like.is_away {
                    return problem(StatusCode::SERVICE_UNAVAILABLE, "broker_unreachable", &text);
                }
                answer(&call, &text, &queue)
            }
        });
        let mut options = UiOptions::default();
        change(&mut options);
        let router = longhaul_ui::router(api, options);
        Self { router, calls }
    }

    pub(crate) fn of(text: &str) -> Self {
        Self::new(Like { text, ..Like::default() }, |_| {})
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(String, String)]) -> Answer {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let fields =
            fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        let body = fields.collect::<Vec<_>>().join("&");
        let request =
            Request::post(path).header("content-type", "application/x-www-form-urlencoded");
        self.send(request.body(body.into()).unwrap()).await
    }

    /// The requests to the gateway since the last call.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// Every available page, by its path.
    pub(crate) async fn pages(&self) -> Vec<(&'static str, Answer)> {
        let mut pages = Vec::new();
        for place in PLACES {
            pages.push((place, self.get(place).await));
        }
        pages
    }
}

/// Every page of the dashboard for a queue of this name, and one that does not exist.
pub(crate) const PLACES: [&str; 21] = [
    "/ui",
    "/ui/names",
    "/ui/queues/mails/topics",
    "/ui/queues/mails",
    "/ui/queues/mails?level=high",
    "/ui/queues/mails/tasks",
    "/ui/queues/mails/tasks?status=failed&tag=eu&level=low",
    "/ui/queues/mails/tasks/12:0:-1",
    "/ui/queues/mails/tasks/12:0:-1?as=text",
    "/ui/queues/mails/tasks/12:0:-1?as=hex",
    "/ui/queues/mails/bulk?verb=cancel&task=12:0:-1&task=11:0:-1&level=normal",
    "/ui/queues/mails/bulk?verb=delete&all=true&tag=eu&level=normal",
    "/ui/queues/mails/reasons?level=normal&status=failed",
    "/ui/queues/mails/workers",
    "/ui/queues/mails/dead",
    "/ui/queues/mails/dead/12:0:-1",
    "/ui/queues/mails/schedules",
    "/ui/queues/mails/limits",
    "/ui/queues/mails/actions",
    "/ui/sign-in",
    "/ui/nothing",
];

async fn read(request: Request<Body>) -> Call {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let authorization = parts.headers.get("authorization");
    Call {
        method: parts.method,
        path: parts.uri.to_string(),
        authorization: authorization.map(|it| it.to_str().unwrap().to_owned()),
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
    }
}

fn answer(call: &Call, text: &str, queue: &str) -> Response {
    let path = call.path.split('?').next().unwrap();
    let body = match path.split('/').skip(2).collect::<Vec<_>>().as_slice() {
        // The broker dies at this task.
        _ if path.ends_with("/tasks/15:0:-1:cancel") => {
            return problem(StatusCode::SERVICE_UNAVAILABLE, "broker_unreachable", text);
        }
        _ if call.method != Method::GET => json!({"id": "13:0:-1"}),
        ["queues"] => json!({"queues": [queue], "now": 9_000}),
        ["queues", "new"] => return problem(StatusCode::NOT_FOUND, "queue_not_found", text),
        ["queues", _] => settings(text),
        ["queues", _, "topics"] => topics(text),
        ["queues", _, "tasks", _, "why"] => why(text),
        ["queues", _, "counts"] => counts(),
        ["queues", _, "series"] => series(),
        ["queues", _, "tasks"] => json!({"tasks": [task(text)], "next": "11:0:-1", "now": 9_000}),
        ["queues", _, "tasks", "11:0:-1"] => waiting(text),
        ["queues", _, "tasks", _] => task(text),
        ["queues", _, "tasks", _, "history"] => history(text),
        ["queues", _, "tasks", _, "payload" | "result"] => return text.to_owned().into_response(),
        ["queues", _, "workers"] => workers(text),
        ["queues", _, "dead"] => {
            json!({"dead_letters": [letter(text)], "next": null, "now": 9_000})
        }
        ["queues", _, "dead", _] => letter(text),
        ["queues", _, "schedules"] => schedules(text),
        ["queues", _, "actions"] => actions(text),
        _ => return problem(StatusCode::NOT_FOUND, "route_not_found", text),
    };
    body.to_string().into_response()
}

fn problem(status: StatusCode, code: &str, detail: &str) -> Response {
    (status, json!({"code": code, "detail": detail}).to_string()).into_response()
}

fn topics(text: &str) -> Value {
    let topic = |partitions: Option<u32>| json!({"name": text, "partitions": partitions, "stored_bytes": 5_000_000, "retention": text, "compacted": true});
    let finding =
        json!({"topic": text, "severity": text, "what": text, "risk": text, "remedy": text});
    json!({"topics": [topic(None), topic(Some(4))], "findings": [finding], "broker_version": text, "gateway_version": text, "now": 9_000})
}

fn why(text: &str) -> Value {
    let limits = json!({"max_attempts": 3, "max_duration": "PT1H", "max_total_duration": "PT2H", "expires_at": 20_000});
    json!({"task": "12:0:-1", "status": "running", "cause": "running", "sentence": text, "details": {}, "limits": limits, "now": 9_000})
}

fn settings(text: &str) -> Value {
    let limits = json!([
        {"limit": {"max_in_flight": 20, "rate": {"tokens": 5, "per": "PT1M"}}, "running": 20, "waiting": 1, "first_waiting": ["12:0:-1"], "opens_at": 12_000},
        {"key": text, "limit": {"max_in_flight": 1}, "running": 0, "waiting": 0}
    ]);
    json!({"limits": limits, "name": "mails", "version": 3, "levels": true, "settings": {"max_in_flight": 20, "rate": {"tokens": 5, "per": "PT1M"}, "description": text}, "now": 9_000})
}

fn counts() -> Value {
    let ended = json!({"completed": 5, "failed": 2, "cancelled": 1, "expired": 0});
    json!({"by_status": {"running": 1, "failed": 2}, "ever_ended": ended, "total": 1_234_567, "demand": 4, "oldest_ready": {"id": "12:0:-1", "since": 1_000}, "now": 9_000})
}

fn series() -> Value {
    let step = json!({"at": 0, "submitted": 3, "completed": 2, "not_completed": 2, "cancelled": 1, "latency_p50_ms": 5, "latency_p95_ms": 50});
    json!({"step_ms": 60_000, "steps": [step, step], "now": 9_000})
}

fn worker(text: &str) -> Value {
    json!({"name": text, "host": text, "process": 7, "version": text, "label": text, "instance": text, "slots": 8})
}

/// A task that waits for its time.
fn waiting(text: &str) -> Value {
    let mut task = task(text);
    (task["id"], task["status"]) = ("11:0:-1".into(), "scheduled".into());
    task
}

fn task(text: &str) -> Value {
    json!({
        "id": "12:0:-1", "queue": "mails", "status": "running", "attempts": 2, "cancel_requested": false, "created_at": 1_000, "changed_at": 2_000, "epoch": 2, "worker": worker(text),
        "progress": {"done": 1, "total": 3, "message": text}, "reason": text, "warning": text, "log": [text], "result_bytes": 3, "codec": text, "tags": [text],
        "type": text, "key": text, "now": 9_000
    })
}

fn history(text: &str) -> Value {
    let entry = |at: u64, event: &str, epoch: u32| json!({"at": at, "event": event, "epoch": epoch, "attempt": epoch, "worker": worker(text), "reason": text});
    let mut late = entry(4_000, "completed", 1);
    late["ignored"] = json!("replaced");
    let mut leased = entry(5_000, "leased", 3);
    leased["leased_to"] = json!(text);
    leased["operator"] = json!(text);
    let mut shown = entry(5_200, "shown", 3);
    (shown["state"], shown["log"], shown["lines_lost"]) =
        ("running".into(), json!([text]), 7.into());
    let silences = json!([
        {"epoch": 1, "since": 1_500, "until": 3_000, "every": "PT0.5S", "missed": 2, "worker": worker(text)},
        {"epoch": 3, "since": 5_500, "every": "PT0.5S", "missed": 6}
    ]);
    json!({"task": "12:0:-1", "is_whole": true, "silences": silences, "entries": [entry(1_000, "claimed", 1), entry(3_000, "claimed", 2), late, entry(4_500, text, 2), leased, shown], "now": 9_000})
}

fn workers(text: &str) -> Value {
    let one = |owner: &str, name: &str, missed: u64, running: &[&str]| {
        let mut worker = worker(text);
        worker["name"] = json!(name);
        json!({"partition": -1, "owner": owner, "worker": worker, "started_at": 2_000, "last_heartbeat_at": 8_000, "missed_heartbeats": missed, "running": running})
    };
    let of_text = one(text, text, 1, &["12:0:-1"]);
    json!({"workers": [of_text, one("b", "alive", 0, &[]), one("c", "late", 1, &[]), one("d", "dead", 2, &["99:0:-1"])], "now": 9_000})
}

fn letter(text: &str) -> Value {
    json!({
        "task": "12:0:-1", "queue": "mails", "at": 5_000, "attempts": 3, "reason": text, "cause": text, "detail": text, "replay_of": "9:0:-1", "type": text, "tags": [text],
        "properties": {"TASK_CODEC": text, text: text}, "payload_bytes": text.len(), "payload_base64": STANDARD.encode(text), "now": 9_000
    })
}

fn schedules(text: &str) -> Value {
    let one = json!({
        "name": text, "version": 1, "schedule": {"cron": text, "time_zone": text}, "last": {"slot": 1_000, "task": "12:0:-1"}, "next": [10_000, 11_000], "now": 9_000
    });
    json!({"schedules": [one], "now": 9_000})
}

fn actions(text: &str) -> Value {
    let one = json!({"at": 1_000, "task": "12:0:-1", "worker": text, "operator": text, "action": text, "reason": text, "replay": "13:0:-1"});
    let other =
        json!({"at": 2_000, "schedule": text, "operator": text, "action": "pause", "reason": text});
    let whole = json!({"at": 3_000, "operator": "ann", "action": "resume", "reason": ""});
    json!({"actions": [one, other, whole], "now": 9_000})
}
