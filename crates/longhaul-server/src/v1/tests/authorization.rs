//! Authorization: every route with every scope, binding and level, judged by a table. The table is
//! written by hand and uses nothing that the routes declare.

use super::allowed::{authorized, hex, status};
use crate::config::{Dialect, ServerConfig};
use crate::dialects;
use crate::route;
use crate::testing::TestGateway;
use serde_json::json;
use std::collections::BTreeSet;

/// The least scope that a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Least {
    Nothing,
    Submit,
    Work,
    Read,
    Admin,
}

/// The queues that a token must be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The queue of the request.
    Queue,
    /// No binding: it tells about all queues.
    All,
    /// Any: it shows what the token may use.
    Own,
}

/// Where a request names the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LevelIn {
    Query,
    /// In front of the id of the task.
    Task,
    Body,
    Nowhere,
    /// It is a route without a queue in its path.
    NoQueue,
}

use Least::{Admin, Nothing, Read, Submit, Work};
use LevelIn::{Body, NoQueue, Nowhere, Query, Task};
use Reach::{All, Own, Queue};

/// Route, least scope, reach, level, and the answers to a caller who may use it.
type Row = (&'static str, Least, Reach, LevelIn, &'static [u16]);

/// 501: the gateway of the test has no admin API. 404: task, schedule and worker do not exist. 204:
/// no task came, or ended.
const TABLE: [Row; 69] = [
    ("GET /healthz", Nothing, Own, NoQueue, &[200]),
    ("GET /livez", Nothing, Own, NoQueue, &[200]),
    ("GET /readyz", Nothing, Own, NoQueue, &[200]),
    ("GET /v1/openapi.json", Nothing, Own, NoQueue, &[200]),
    ("GET /health", Nothing, Own, NoQueue, &[200]),
    ("GET /metrics", Read, All, NoQueue, &[200, 503]),
    ("GET /v1/queues", Read, Own, NoQueue, &[501]),
    ("GET /v1/queues/{queue}", Read, Queue, Nowhere, &[200]),
    ("PUT /v1/queues/{queue}", Admin, Queue, Nowhere, &[501]),
    ("PATCH /v1/queues/{queue}", Admin, Queue, Nowhere, &[409]),
    ("DELETE /v1/queues/{queue}", Admin, Queue, Nowhere, &[501]),
    ("POST /v1/queues/{queue}:pause", Admin, Queue, Nowhere, &[200]),
    ("POST /v1/queues/{queue}:resume", Admin, Queue, Nowhere, &[200]),
    ("POST /v1/queues/{queue}:purge", Admin, Queue, Query, &[200]),
    ("POST /v1/queues/{queue}/tasks", Submit, Queue, Body, &[201]),
    ("POST /v1/queues/{queue}/tasks:batch", Submit, Queue, Body, &[200]),
    ("GET /v1/queues/{queue}/tasks", Read, Queue, Query, &[200]),
    ("GET /v1/queues/{queue}/counts", Read, Queue, Query, &[200]),
    ("GET /v1/queues/{queue}/tasks/{task}", Read, Queue, Task, &[404]),
    ("GET /v1/queues/{queue}/tasks/{task}/wait", Read, Queue, Task, &[204]),
    ("GET /v1/queues/{queue}/tasks/{task}/result", Read, Queue, Task, &[404]),
    ("GET /v1/queues/{queue}/tasks/{task}/payload", Read, Queue, Task, &[404]),
    ("GET /v1/queues/{queue}/tasks/{task}/properties", Read, Queue, Task, &[404]),
    ("GET /v1/queues/{queue}/tasks/{task}/history", Read, Queue, Task, &[404]),
    ("GET /v1/queues/{queue}/tasks/{task}/why", Read, Queue, Task, &[404]),
    ("GET /v1/queues/{queue}/tasks/{task}/lease", Read, Queue, Task, &[404]),
    ("DELETE /v1/queues/{queue}/tasks/{task}", Admin, Queue, Task, &[404]),
    ("POST /v1/queues/{queue}/tasks/{task}:cancel", Admin, Queue, Task, &[404]),
    ("POST /v1/queues/{queue}/tasks/{task}:kill", Admin, Queue, Task, &[404]),
    ("POST /v1/queues/{queue}/tasks/{task}:reschedule", Admin, Queue, Task, &[422]),
    ("POST /v1/queues/{queue}/tasks/{task}:retry", Admin, Queue, Task, &[404]),
    ("POST /v1/queues/{queue}/tasks/{task}:force-fail", Admin, Queue, Task, &[404]),
    ("POST /v1/queues/{queue}/tasks/{task}:force-release", Admin, Queue, Task, &[404]),
    ("GET /v1/queues/{queue}/actions", Read, Queue, Query, &[200]),
    ("GET /v1/queues/{queue}/series", Read, Queue, Query, &[200]),
    ("GET /v1/queues/{queue}/events", Read, Queue, Query, &[200]),
    ("GET /v1/queues/{queue}/workers", Read, Queue, Query, &[200]),
    ("GET /v1/queues/{queue}/topics", Read, Queue, Nowhere, &[501]),
    ("POST /v1/queues/{queue}/workers/{name}:drain", Admin, Queue, Nowhere, &[404]),
    ("GET /v1/queues/{queue}/dead", Read, Queue, Query, &[200]),
    ("GET /v1/queues/{queue}/dead/{task}", Read, Queue, Task, &[404]),
    ("POST /v1/queues/{queue}/dead:replay", Admin, Queue, Query, &[200]),
    ("POST /v1/queues/{queue}/dead:purge", Admin, Queue, Query, &[200]),
    ("GET /v1/queues/{queue}/schedules", Read, Queue, Nowhere, &[200]),
    ("GET /v1/queues/{queue}/schedules/{name}", Read, Queue, Nowhere, &[404]),
    ("POST /v1/queues/{queue}/schedules/{name}", Admin, Queue, Nowhere, &[422]),
    ("PATCH /v1/queues/{queue}/schedules/{name}", Admin, Queue, Nowhere, &[404]),
    ("DELETE /v1/queues/{queue}/schedules/{name}", Admin, Queue, Nowhere, &[404]),
    ("POST /v1/queues/{queue}/schedules/{name}:pause", Admin, Queue, Nowhere, &[404]),
    ("POST /v1/queues/{queue}/schedules/{name}:resume", Admin, Queue, Nowhere, &[404]),
    ("POST /v1/queues/{queue}/schedules/{name}:trigger", Admin, Queue, Nowhere, &[404]),
    ("POST /v1/queues/{queue}/leases", Work, Queue, Nowhere, &[200, 204]),
    ("POST /v1/queues/{queue}/leases:confirm", Work, Queue, Nowhere, &[200]),
    ("POST /v1/queues/{queue}/leases:report", Work, Queue, Nowhere, &[404, 409]),
    ("POST /v1/queues/{queue}/leases:report-batch", Work, Queue, Nowhere, &[200]),
    ("POST /v1/queues/{queue}/leases/{lease}:report", Work, Queue, Nowhere, &[404, 409]),
    ("POST /v1/queues/{queue}/leases/{lease}:keep-alive", Work, Queue, Nowhere, &[404, 409]),
    ("POST /enqueue", Submit, Queue, NoQueue, &[200]),
    ("POST /poll", Work, Queue, NoQueue, &[200, 204]),
    ("POST /ack", Work, Queue, NoQueue, &[404]),
    ("POST /fail", Work, Queue, NoQueue, &[404]),
    ("GET /jobs", Read, Queue, NoQueue, &[200]),
    ("GET /dead", Read, Queue, NoQueue, &[200]),
    ("POST /tasks", Submit, Queue, NoQueue, &[201]),
    ("POST /tasks/lease", Work, Queue, NoQueue, &[200, 204]),
    ("GET /tasks/{task}", Read, Queue, NoQueue, &[404]),
    ("POST /tasks/{task}/ack", Work, Queue, NoQueue, &[404]),
    ("POST /tasks/{task}/nack", Work, Queue, NoQueue, &[404]),
    ("GET /stats", Read, Queue, NoQueue, &[200]),
];

/// The scopes of a token, and the least scopes that they cover.
type Grant = (&'static str, &'static [&'static str], &'static [Least]);

const GRANTS: [Grant; 6] = [
    ("submitter", &["submit"], &[Submit]),
    ("worker", &["work"], &[Work]),
    ("reader", &["read"], &[Read]),
    ("user", &["submit", "work", "read"], &[Submit, Work, Read]),
    ("admin", &["admin"], &[Submit, Work, Read, Admin]),
    ("powerless", &[], &[]),
];

/// The queues of a token, and whether they include `tasks`.
type Binding = (&'static str, Option<&'static [&'static str]>, bool);

const BINDINGS: [Binding; 6] = [
    ("of-all", None, true),
    ("of-it", Some(&["tasks"]), true),
    ("of-both", Some(&["other", "tasks"]), true),
    // Its beginning, and the topic of its high level, are other names.
    ("of-others", Some(&["other", "task", "tasks-high", "tasks*", "Tasks"]), false),
    ("of-any-word", Some(&["", "*"]), false),
    ("of-none", Some(&[]), false),
];

fn config(file: &tempfile::NamedTempFile) -> ServerConfig {
    let entry = |((grant, scopes, _), (binding, queues, _)): (Grant, Binding)| {
        let token = format!("{grant}-{binding}");
        json!({"name": token, "sha256": hex(&token), "scopes": scopes, "queues": queues})
    };
    let tokens = json!({ "tokens": tokens().map(entry).collect::<Vec<_>>() });
    std::fs::write(file.path(), tokens.to_string()).unwrap();
    ServerConfig {
        token_file: Some(file.path().to_owned()),
        dialects: vec![Dialect::Jobs, Dialect::DQueue],
        dialect_queue: "tasks".to_owned(),
        ..ServerConfig::default()
    }
}

/// All tokens: each grant with each binding.
fn tokens() -> impl Iterator<Item = (Grant, Binding)> {
    GRANTS.into_iter().flat_map(|grant| BINDINGS.into_iter().map(move |binding| (grant, binding)))
}

/// A body that the route takes, so that it does not answer before it has asked for everything.
fn body(route: &str, level: &str) -> String {
    let task = format!(r#"{{"payload":"a","delay":"1d","priority":"{level}"}}"#);
    let body = match route.rsplit(['/', ' ']).next().unwrap_or_default() {
        _ if route.starts_with("GET ") || route.starts_with("DELETE ") => "",
        "tasks" if route.contains("{queue}") => &task,
        "tasks:batch" => return format!(r#"{{"tasks":[{task}]}}"#),
        "tasks" | "enqueue" => r#"{"payload":"a"}"#,
        "poll" | "lease" => r#"{"worker_id":"w"}"#,
        "ack" | "fail" | "nack" => r#"{"worker_id":"w","job_id":"1","lease_id":1}"#,
        "leases" => r#"{"worker":"w"}"#,
        "leases:confirm" => r#"{"leases":["1:2:-1~1~000000000000000000000000000000ab"]}"#,
        "leases:report" => {
            r#"{"lease":"1:2:-1/1/000000000000000000000000000000ab","status":"SUCCEEDED"}"#
        }
        "leases:report-batch" => r#"{"reports":[]}"#,
        "{lease}:report" => r#"{"status":"SUCCEEDED"}"#,
        "{queue}:purge" | "dead:replay" | "dead:purge" => r#"{"tag":["none"]}"#,
        "{queue}" if route.starts_with("PATCH ") => r#"{"expected_version":999,"settings":{}}"#,
        "{name}" if route.starts_with("PATCH ") => {
            r#"{"expected_version":1,"schedule":{"every":"1h"}}"#
        }
        "{name}" => r#"{"schedule":{},"task":{"payload":"a"}}"#,
        _ => "{}",
    };
    body.to_owned()
}

/// The requests of a route, each with the body, and whether its query is refused.
fn requests(route: &str, level: LevelIn) -> Vec<(String, String, bool)> {
    let path = |task: &str| {
        let (_, path) = route.split_once(' ').unwrap();
        path.replace("{queue}", "tasks")
            .replace("{task}", task)
            .replace("{name}", "nightly")
            .replace("{lease}", "1:2:-1~1~000000000000000000000000000000ab")
    };
    let plain = path("1:2:-1");
    let normal = || body(route, "normal");
    let mut requests = vec![(plain.clone(), normal(), false)];
    let mut add = |query: &str, is_refused| {
        requests.push((format!("{plain}?level={query}"), normal(), is_refused));
    };
    match level {
        NoQueue => return requests,
        Query => {
            add("high", false);
            for query in ["middle", "high&level=low", "high&no_such_parameter=1"] {
                add(query, true);
            }
        }
        // A level was dropped by routes that did not know it: a purge with `level=high` deleted
        // the tasks of normal priority.
        Task | Body | Nowhere => add("high", true),
    }
    match level {
        Task => requests.push((path("high~1:2:-1"), normal(), false)),
        Body => requests.push((plain, body(route, "high"), false)),
        Query | Nowhere | NoQueue => {}
    }
    requests
}

/// The judgement by the table alone: a refusal with its code, or none.
fn refusal(
    (_, least, reach, ..): Row,
    covers: &[Least],
    (is_bound, is_bound_here): (bool, bool),
    is_refused: bool,
) -> Option<(u16, &'static str)> {
    let may = match reach {
        Queue => is_bound_here,
        All => !is_bound,
        Own => true,
    };
    if least == Nothing {
        None
    } else if !covers.contains(&least) {
        Some((403, "scope_missing"))
    } else if !may {
        Some((403, "queue_not_allowed"))
    } else {
        is_refused.then_some((400, "query_invalid"))
    }
}

/// The routes of the gateway, with those of the dialects.
fn routes(config: &ServerConfig) -> BTreeSet<String> {
    let all = route::all().into_iter().chain(dialects::routes(config));
    all.map(|it| format!("{} {}", it.info.method.word(), it.info.path)).collect()
}

#[test]
fn every_route_lets_in_whom_the_table_names() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let config = config(&file);
    let listed: BTreeSet<String> = TABLE.iter().map(|row| row.0.to_owned()).collect();
    let odd: Vec<_> = listed.symmetric_difference(&routes(&config)).cloned().collect();
    assert!(odd.is_empty(), "in the table or in the router, not in both: {odd:?}");
    assert_eq!(listed.len(), TABLE.len(), "each is in the table once");
    let bench = TestGateway::with(config);
    for level in ["normal", "high"] {
        let task = body("POST /v1/queues/{queue}/tasks", level);
        let made = authorized(&bench, "POST", "/v1/queues/tasks/tasks", "admin-of-all", task);
        assert_eq!(made.status, 201, "{made:?}");
    }
    let (mut cells, mut let_in, mut wrong) = (0, 0, Vec::new());
    for row in TABLE {
        let (method, _) = row.0.split_once(' ').unwrap();
        for (path, body, is_refused) in requests(row.0, row.3) {
            for ((grant, _, covers), (binding, queues, is_here)) in tokens() {
                let token = format!("{grant}-{binding}");
                let (status, code) = status(&bench, method, &path, &token, body.clone());
                let expected = refusal(row, covers, (queues.is_some(), is_here), is_refused);
                let is_right = match expected {
                    Some(expected) => expected == (status, &*code),
                    None => row.4.contains(&status),
                };
                if !is_right {
                    wrong.push(format!("{method} {path} by {token}: {status} {code}"));
                }
                cells += 1;
                let_in += usize::from(expected.is_none());
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cells} cells: {wrong:#?}", wrong.len());
    assert!(cells >= 5_000 && let_in >= 700, "{cells} cells, {let_in} let in");
}

#[test]
fn every_route_refuses_what_is_no_token() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut config = config(&file);
    let old = json!({
        "name": "old", "sha256": hex("old"), "scopes": ["admin"], "expires": "2020-01-01T00:00:00Z",
    });
    std::fs::write(file.path(), json!({ "tokens": [old] }).to_string()).unwrap();
    config.token_file = Some(file.path().to_owned());
    let bench = TestGateway::with(config);
    for (route, least, _, level, _) in TABLE {
        let (method, _) = route.split_once(' ').unwrap();
        for (header, code) in [
            (None, "token_missing"),
            (Some("Bearer wrong"), "token_unknown"),
            (Some("Bearer "), "token_unknown"),
            (Some("Bearer old"), "token_expired"),
            (Some("Basic YTpi"), "token_malformed"),
            (Some("Bearer"), "token_malformed"),
            (Some("old"), "token_malformed"),
        ] {
            let (path, body, _) = requests(route, level).remove(0);
            let mut request = TestGateway::request(method, &path, body);
            if let Some(header) = header {
                request.headers_mut().insert("authorization", header.parse().unwrap());
            }
            let told = bench.send(request);
            if least == Nothing {
                assert_eq!(told.status, 200, "{path} is open");
            } else {
                assert_eq!((told.status.as_u16(), &*told.code()), (401, code), "{path} {header:?}");
            }
        }
    }
}
