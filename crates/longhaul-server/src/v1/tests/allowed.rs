//! Access to every route with every scope, and without a token.

use crate::auth::TokenScope;
use crate::config::{Dialect, ServerConfig};
use crate::dialects;
use crate::route::{self, RouteAccess};
use crate::testing::{TestGateway, TestResponse};
use ring::digest::{SHA256, digest};
use std::fmt::Write;

fn hex(token: &str) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, token.as_bytes()).as_ref() {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// A gateway with one token per scope, named like the scope, and some others.
fn bench() -> (TestGateway, tempfile::NamedTempFile) {
    let mut entries: Vec<String> = TokenScope::ALL
        .iter()
        .map(|it| {
            format!(
                r#"{{"name":"{0}","sha256":"{1}","scopes":["{0}"]}}"#,
                it.word(),
                hex(it.word())
            )
        })
        .collect();
    entries.push(format!(
        r#"{{"name":"old","sha256":"{}","scopes":["admin"],"expires":"2020-01-01T00:00:00Z"}}"#,
        hex("old")
    ));
    entries.push(format!(
        r#"{{"name":"bound","sha256":"{}","scopes":["admin"],"queues":["other"]}}"#,
        hex("bound")
    ));
    entries.push(format!(r#"{{"name":"powerless","sha256":"{}","scopes":[]}}"#, hex("powerless")));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!(r#"{{"tokens":[{}]}}"#, entries.join(","))).unwrap();
    let token_file = Some(file.path().to_owned());
    let dialects = vec![Dialect::Document001, Dialect::Document002];
    let config = ServerConfig { token_file, dialects, ..ServerConfig::default() };
    (TestGateway::with(config), file)
}

/// The path of a route with its parameters filled in.
fn filled(path: &str) -> String {
    path.replace("{queue}", "tasks")
        .replace("{task}", "1:2:-1")
        .replace("{name}", "nightly")
        .replace("{lease}", "1:2:-1~1~0")
}

fn status(bench: &TestGateway, method: &str, path: &str, token: Option<&str>) -> (u16, String) {
    let mut request = TestGateway::request(method, path, "");
    if let Some(token) = token {
        request.headers_mut().insert("authorization", token.parse().unwrap());
    }
    // A stream has no end: only its head is read.
    if path.contains("/events") {
        use tower::ServiceExt;
        let response = bench.engine.run(bench.router.clone().oneshot(request)).unwrap();
        if response.status() == 200 {
            return (200, String::new());
        }
        let (parts, body) = response.into_parts();
        let bytes = bench.engine.run(http_body_util::BodyExt::collect(body)).unwrap().to_bytes();
        let answer = TestResponse { status: parts.status, headers: parts.headers, bytes };
        return (answer.status.as_u16(), answer.code());
    }
    let answer = bench.send(request);
    (answer.status.as_u16(), answer.code())
}

#[test]
fn every_route_asks_for_its_scope() {
    let (bench, _file) = bench();
    let dialects = vec![Dialect::Document001, Dialect::Document002];
    let of_dialects = dialects::routes(&ServerConfig { dialects, ..ServerConfig::default() });
    assert!(of_dialects.len() > 10, "{}", of_dialects.len());
    let routes = route::all();
    assert!(routes.len() > 30, "{}", routes.len());
    for route in routes.into_iter().chain(of_dialects) {
        let (method, path) = (route.info.method.word(), filled(route.info.path));
        let by = |token: Option<&str>| status(&bench, method, &path, token).0;
        let refused = |status| matches!(status, 401 | 403);
        let RouteAccess::Needs(needed) = route.info.access else {
            assert!(!refused(by(None)), "{method} {path} is open");
            assert!(!refused(by(Some("Bearer wrong"))), "{method} {path} is open");
            continue;
        };
        for (token, code) in [
            (None, "token_missing"),
            (Some("Bearer wrong"), "token_unknown"),
            (Some("Bearer "), "token_unknown"),
            (Some("Bearer old"), "token_expired"),
            (Some("Basic YTpi"), "token_malformed"),
            (Some("Bearer"), "token_malformed"),
            (Some("admin"), "token_malformed"),
        ] {
            let (is, has) = status(&bench, method, &path, token);
            assert_eq!(is, 401, "{method} {path} {token:?}");
            assert_eq!(has, code, "{method} {path} {token:?}");
        }
        assert_eq!(by(Some("Bearer powerless")), 403, "{method} {path}");
        for scope in TokenScope::ALL {
            let allowed = scope == needed || scope == TokenScope::Admin;
            let is = by(Some(&format!("bearer {}", scope.word())));
            assert_eq!(refused(is), !allowed, "{method} {path} with {}: {is}", scope.word());
        }
        if path.contains("/tasks") && route.info.path.contains("{queue}") {
            assert_eq!(by(Some("Bearer bound")), 403, "{method} {path} of another queue");
        }
    }
}

/// A level was dropped by routes that did not know it: a purge with `level=high` deleted the tasks
/// of normal priority. Each route about a queue either takes a level or refuses it.
#[test]
fn a_level_is_taken_or_refused_by_every_route() {
    let (bench, _file) = bench();
    let (mut taken, mut refused) = (0, 0);
    for route in route::all().into_iter().filter(|it| it.info.path.contains("{queue}")) {
        let (method, path) = (route.info.method.word(), filled(route.info.path));
        let by = |level: &str| {
            status(&bench, method, &format!("{path}?level={level}"), Some("Bearer admin"))
        };
        let unfit = (400, "query_invalid".to_owned());
        if route.info.takes_level {
            assert_ne!(by("high"), unfit, "{method} {path}");
            taken += 1;
        } else {
            assert_eq!(by("high"), unfit, "{method} {path} drops the level");
            refused += 1;
        }
        assert_eq!(by("middle"), unfit, "{method} {path}");
        if route.info.takes_level {
            assert_eq!(
                by("high&no_such_parameter=1"),
                unfit,
                "{method} {path} ignores a parameter"
            );
        }
        assert_eq!(by("high&level=low"), unfit, "{method} {path}");
    }
    assert!(taken > 7 && refused > 20, "{taken} {refused}");
}

#[test]
fn a_token_that_is_bound_to_queues_sees_no_others() {
    let (bench, _file) = bench();
    let by_bound = |path: &str| status(&bench, "GET", path, Some("Bearer bound"));
    assert_eq!(by_bound("/v1/queues/tasks"), (403, "queue_not_allowed".to_owned()));
    assert_eq!(by_bound("/v1/queues/other").0, 200);
    assert_eq!(by_bound("/v1/queues/other/tasks").0, 200);
    assert_eq!(by_bound("/metrics"), (403, "queue_not_allowed".to_owned()));
}

/// Under an idempotency key, the payload may be that of another caller.
#[test]
fn a_token_that_may_not_read_is_answered_no_payload() {
    let (bench, _file) = bench();
    let send = |token: &str, path: &str, body: &'static str| {
        let mut request = TestGateway::request("POST", path, body);
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        bench.send(request).json()
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
    use tower::ServiceExt;
    let (bench, file) = bench();
    let mut request = TestGateway::request("GET", "/v1/queues/tasks/events", "");
    request.headers_mut().insert("authorization", "Bearer read".parse().unwrap());
    let stream = bench.engine.run(bench.router.clone().oneshot(request)).unwrap();
    std::fs::write(file.path(), r#"{"tokens":[]}"#).unwrap();
    // The file is checked at most once a second, in real time.
    while status(&bench, "GET", "/v1/queues/tasks", Some("Bearer read")).0 != 401 {}
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
        let mut request = TestGateway::request(method, path, body);
        request.headers_mut().insert("authorization", "Bearer admin".parse().unwrap());
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        bench.send(request)
    };
    let id = authorized("POST", "/v1/queues/tasks/tasks", r#"{"payload":"a"}"#).text("id");
    let deleted = authorized("DELETE", &format!("/v1/queues/tasks/tasks/{id}?reason=mistake"), "");
    assert_eq!(deleted.status, 204);
    let log = authorized("GET", "/v1/queues/tasks/actions", "").json();
    assert_eq!(log["actions"][0]["operator"], serde_json::json!("admin"), "{log}");
}

/// A read or work token cannot drain a worker.
#[test]
fn a_worker_is_drained_by_who_may_administer_alone() {
    let (bench, _file) = bench();
    let path = "/v1/queues/tasks/workers/mailer:drain";
    for scope in TokenScope::ALL {
        let token = format!("Bearer {}", scope.word());
        let expected = match scope {
            TokenScope::Admin => (404, "worker_not_found".to_owned()),
            TokenScope::Submit | TokenScope::Work | TokenScope::Read => {
                (403, "scope_missing".to_owned())
            }
        };
        assert_eq!(status(&bench, "POST", path, Some(&token)), expected, "{}", scope.word());
    }
}
