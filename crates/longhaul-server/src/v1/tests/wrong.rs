//! Invalid input: each case has its status and code, and no partial effect.

use super::bodies::raw;
use crate::testing::TestGateway;
use axum::http::Request;
use serde_json::{Value, json};

const TASKS: &str = "/v1/queues/tasks/tasks";

#[test]
fn bodies_that_are_no_tasks_are_refused_and_nothing_is_submitted() {
    let bench = TestGateway::new();
    let many = format!(r#"{{"payload":"","tags":[{}]}}"#, vec![r#""t""#; 17].join(","));
    for (body, status, code, says) in [
        ("", 400, "json_malformed", "EOF"),
        ("{", 400, "json_malformed", "EOF"),
        ("{\"payload\":\"a\"", 400, "json_malformed", "EOF"),
        ("payload=a", 400, "json_malformed", "expected value"),
        ("{\"payload\":\"a\"} x", 400, "json_malformed", "trailing characters"),
        ("{\"payload\":\"\u{0}\"}", 400, "json_malformed", "control character"),
        (r#"{"payload":7}"#, 422, "json_unfit", "expected a string"),
        (r#"{"payload":{"a":1}}"#, 422, "json_unfit", "expected a string"),
        (r#"{"payload":"a","prority":"high"}"#, 422, "json_unfit", "unknown field `prority`"),
        (r#"{"payload":"a","payload":"b"}"#, 422, "json_unfit", "duplicate field"),
        (r#"{"payload":"a","priority":"urgent"}"#, 422, "json_unfit", "unknown variant `urgent`"),
        (r#"{"payload":"a","priority":["high"]}"#, 422, "json_unfit", "expected value"),
        (r#"{"payload":"a","priority":{}}"#, 422, "json_unfit", "expected value"),
        (r#"{"payload":"a","priority":[}"#, 400, "json_malformed", "expected value"),
        (r#"{"payload":"a","max_attempts":-1}"#, 422, "json_unfit", "invalid value"),
        (r#"{"payload":"a","max_attempts":1.5}"#, 422, "json_unfit", "invalid type"),
        (r#"{"payload":"a","delay":"soon"}"#, 422, "json_unfit", "`soon` is not a duration"),
        (r#"{"payload":"a","expires_at":"never"}"#, 422, "json_unfit", "`never` is not an instant"),
        (r#"{"payload":"a","properties":{"n":7}}"#, 422, "json_unfit", "expected a string"),
        ("{}", 422, "request_unfit", "the task has no payload"),
        (r#"{"payload":"a","payload_base64":"YQ=="}"#, 422, "request_unfit", "set only one of"),
        (r#"{"payload_base64":"***"}"#, 422, "request_unfit", "not base64"),
        (r#"{"payload":"a","max_attempts":0}"#, 422, "request_unfit", "between 1 and 1000"),
        (r#"{"payload":"a","delay":1,"scheduled_at":1}"#, 422, "request_unfit", "not both"),
        (r#"{"payload":"a","retry":{}}"#, 422, "request_unfit", "`retry` is empty"),
        (r#"{"payload":"a","retry":{"base":"2s","max":"1s"}}"#, 422, "request_unfit", "exceeds"),
        (
            r#"{"payload":"a","properties":{"MAX_ATTEMPTS":"9"}}"#,
            422,
            "request_unfit",
            "is a reserved property",
        ),
        (r#"{"payload":"a","key":""}"#, 422, "request_unfit", "1 to 256 bytes"),
        (r#"{"payload":"a","type":""}"#, 422, "request_unfit", "1 to 128 bytes"),
        (r#"{"payload":"a","idempotency_key":""}"#, 422, "request_unfit", "1 to 256 bytes"),
        (r#"{"payload":"a","overwrite":true}"#, 422, "request_unfit", "needs a dedupe key"),
        (r#"{"payload":"a","after":["x"]}"#, 400, "task_id_invalid", "`x` is not a task id"),
        (&*many, 422, "request_unfit", "TAGS"),
    ] {
        let (is, has, detail) = raw(&bench, ("POST", TASKS), body.to_owned());
        assert_eq!((is, &*has), (status, code), "{body}: {detail}");
        assert!(detail.contains(says), "{body}: {detail}");
    }
    assert_eq!(bench.get("/v1/queues/tasks/counts").json()["total"], json!(0));
}

/// A key in a malformed request is not reserved afterwards.
#[test]
fn a_malformed_request_reserves_no_key() {
    let bench = TestGateway::new();
    for body in [
        r#"{"payload":"a","idempotency_key":"k""#,
        r#"{"payload":"a","idempotency_key":"k","max_attempts":0}"#,
        r#"{"payload":7,"idempotency_key":"k"}"#,
    ] {
        assert!(raw(&bench, ("POST", TASKS), body).0 >= 400);
    }
    let id = bench.post(TASKS, json!({"payload": "b", "idempotency_key": "k"})).text("id");
    assert_eq!(&bench.get(&format!("{TASKS}/{id}/payload")).bytes[..], b"b");
}

#[test]
fn paths_and_queries_that_name_nothing_are_refused() {
    let bench = TestGateway::new();
    let long = "q".repeat(129);
    for (method, path, status, code) in [
        ("GET", "/nothing", 404, "route_not_found"),
        ("GET", "/v1", 404, "route_not_found"),
        ("GET", "/v1/queues/tasks/tasks/1:2:-1/nothing", 404, "route_not_found"),
        ("POST", "/v1/queues/tasks:dance", 404, "route_not_found"),
        ("PUT", TASKS, 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("DELETE", "/v1/queues", 405, "method_not_allowed"),
        ("GET", "/v1/queues/a,b", 400, "queue_name_invalid"),
        ("GET", "/v1/queues/a%2Fb", 400, "queue_name_invalid"),
        ("GET", "/v1/queues/a%00b", 400, "queue_name_invalid"),
        ("GET", "/v1/queues/%C3%A4", 400, "queue_name_invalid"),
        ("GET", "/v1/queues/%FF", 400, "path_invalid"),
        ("GET", "/v1/queues/..%2F..", 400, "queue_name_invalid"),
        ("GET", "/v1/queues/tasks-ledger", 400, "queue_name_invalid"),
        ("GET", "/v1/queues/tasks-high", 400, "queue_name_invalid"),
        ("GET", &format!("/v1/queues/{long}"), 400, "queue_name_invalid"),
        ("GET", "/v1/queues/tasks/tasks/x", 400, "task_id_invalid"),
        ("GET", "/v1/queues/tasks/tasks/1:2", 400, "task_id_invalid"),
        ("GET", "/v1/queues/tasks/tasks/1:2:-1%00", 400, "task_id_invalid"),
        ("GET", "/v1/queues/tasks/tasks/1:2:-1", 404, "task_not_found"),
        ("GET", "/v1/queues/tasks/tasks/1:2:-1/result", 404, "task_not_found"),
        ("GET", "/v1/queues/tasks/tasks/1:2:-1/payload", 404, "task_not_found"),
        ("GET", "/v1/queues/tasks/tasks/1:2:-1/history", 404, "task_not_found"),
        ("GET", "/v1/queues/tasks/dead/1:2:-1", 404, "task_not_found"),
        ("DELETE", "/v1/queues/tasks/tasks/1:2:-1", 404, "task_not_found"),
        ("GET", "/v1/queues/tasks/tasks?status=busy", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/tasks?text=", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/tasks?text=%20", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/tasks?limit=0", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/tasks?limit=1001", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/tasks?limit=x", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/tasks?colour=red", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/tasks?after=x", 400, "task_id_invalid"),
        ("GET", "/v1/queues/tasks/dead?after=x", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/actions?limit=0", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/events?last_event_id=x", 400, "last_event_id_invalid"),
        ("GET", "/v1/queues/tasks/events?from=tomorrow", 400, "query_invalid"),
        ("GET", "/v1/queues/tasks/tasks/1:2:-1/wait?timeout=-1", 400, "query_invalid"),
    ] {
        let answer = bench.send(TestGateway::request(method, path, ""));
        assert_eq!((answer.status.as_u16(), &*answer.code()), (status, code), "{method} {path}");
        let problem = answer.json();
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert_eq!(problem["status"], json!(status), "{method} {path}");
        assert!(problem["detail"].as_str().is_some_and(|it| it.len() > 10), "{problem}");
    }
    let verb = bench.post("/v1/queues/tasks/tasks/1:2:-1:cancel", json!({}));
    verb.check_refused(404, "task_not_found");
}

/// Each path of the document with each method that it does not have is 405, rather than 404 or an
/// invalid queue name.
#[test]
fn a_wrong_method_is_told_with_the_right_ones() {
    const METHODS: [&str; 6] = ["get", "put", "post", "patch", "delete", "options"];
    let bench = TestGateway::new();
    let document: Value = serde_json::from_str(crate::route::document()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let (mut asked, mut verbs) = (0, 0);
    for (path, operations) in paths {
        let has = |method: &str| operations.get(method).is_some();
        let right: Vec<_> = METHODS.into_iter().filter(|it| has(it)).collect();
        assert!(!right.is_empty(), "{path}");
        let at = path.replace("{queue}", "tasks").replace("{task}", "1:2:-1");
        let at = at.replace("{name}", "nightly").replace("{lease}", "1:2:-1~1~0");
        verbs += usize::from(path.contains(':'));
        for method in METHODS.into_iter().filter(|it| !has(it)) {
            let method = method.to_uppercase();
            let answer = bench.send(TestGateway::request(&method, &at, ""));
            let told = (answer.status.as_u16(), &*answer.code());
            assert_eq!(told, (405, "method_not_allowed"), "{method} {at}");
            let allow = answer.headers["allow"].to_str().unwrap().to_lowercase();
            let allowed: Vec<_> = allow.split(',').filter(|it| *it != "head").collect();
            let mut expected = right.clone();
            expected.sort_unstable();
            assert_eq!(sorted(allowed), expected, "{method} {at}");
            asked += 1;
        }
    }
    assert!(asked > 150 && verbs > 15, "{asked} requests, {verbs} verbs");
}

fn sorted(mut words: Vec<&str>) -> Vec<&str> {
    words.sort_unstable();
    words
}

/// The first request of everybody, `curl -d` without a header, was refused.
#[test]
fn without_a_content_type_an_object_is_json_and_the_rest_a_payload() {
    let bench = TestGateway::new();
    let form = ("content-type", "application/x-www-form-urlencoded");
    let send = |path: &str, body: &'static str, headers: &[(&'static str, &'static str)]| {
        let mut request: Request<_> = TestGateway::request("POST", path, body);
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        bench.send(request)
    };
    let (purge, object) = ("/v1/queues/tasks:purge", r#" {"payload":"a"}"#);
    for headers in [&[][..], &[form][..]] {
        for (body, payload) in [(object, "a"), ("a=b", "a=b"), ("[1]", "[1]")] {
            let id = send(TASKS, body, headers).text("id");
            let stored = bench.get(&format!("{TASKS}/{id}/payload"));
            assert_eq!(stored.bytes, payload, "{body}");
        }
        // Malformed JSON became the payload of a task.
        send(TASKS, r#"{"payload":"a",}"#, headers).check_refused(400, "json_malformed");
        send(TASKS, "", headers).check_refused(415, "content_type_missing");
        send(purge, "a=b", headers).check_refused(415, "content_type_not_json");
        assert_eq!(send(purge, r#"{"tag":["no"]}"#, headers).status, 200);
    }
    // These are the requests that a page of another site can send without asking first.
    let plain = ("content-type", "text/plain");
    for origin in ["http://evil.test", "null", "https://localhost.evil.test"] {
        for headers in
            [&[("origin", origin)][..], &[form, ("origin", origin)], &[plain, ("origin", origin)]]
        {
            for path in [TASKS, purge] {
                send(path, object, headers).check_refused(403, "cross_site_request");
            }
        }
    }
}

#[test]
fn content_types_and_encodings_that_are_not_taken_are_refused() {
    let bench = TestGateway::new();
    let send = |path: &str, headers: &[(&'static str, &str)]| {
        let mut request: Request<_> = TestGateway::request("POST", path, r#"{"payload":"a"}"#);
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let answer = bench.send(request);
        (answer.status.as_u16(), answer.code())
    };
    let is = |status, code: &str| (status, code.to_owned());
    let json_type = ("content-type", "application/json; charset=utf-8");
    assert_eq!(send(TASKS, &[json_type]), is(201, ""));
    assert_eq!(
        send("/v1/queues/tasks:purge", &[("content-type", "text/plain")]),
        is(415, "content_type_not_json")
    );
    assert_eq!(
        send(TASKS, &[json_type, ("content-encoding", "gzip")]),
        is(415, "content_encoding_unsupported")
    );
    assert_eq!(send(TASKS, &[json_type, ("content-encoding", "identity")]), is(201, ""));
    assert_eq!(send(&format!("{TASKS}?priority=high"), &[json_type]), is(400, "query_invalid"));
    let two = [json_type, ("idempotency-key", "ä")];
    assert_eq!(send(TASKS, &two), is(400, "idempotency_key_invalid"));
    for second in ["other", "one"] {
        let two = [json_type, ("idempotency-key", "one"), ("idempotency-key", second)];
        assert_eq!(send(TASKS, &two), is(400, "idempotency_key_invalid"), "{second}");
    }
}

/// A body one byte over the limit is refused, with the limit in the answer; a body at the limit is
/// accepted.
#[test]
fn bodies_have_a_limit_that_is_told() {
    let mut config = crate::config::ServerConfig::default();
    config.limits.body_bytes = 1_000;
    config.limits.batch_bytes = 2_000;
    let bench = TestGateway::with(config);
    let body = |bytes: usize, start: &str, end: &str| {
        format!("{start}{}{end}", "a".repeat(bytes - start.len() - end.len()))
    };
    let task = |bytes| body(bytes, r#"{"payload":""#, r#""}"#);
    let batch = |bytes| body(bytes, r#"{"tasks":[{"payload":""#, r#""}]}"#);
    assert_eq!(raw(&bench, ("POST", TASKS), task(1_000)).0, 201);
    let batches = format!("{TASKS}:batch");
    assert_eq!(raw(&bench, ("POST", &batches), batch(2_000)).0, 200);
    for (path, body, limit) in [(TASKS, task(1_001), "1000"), (&batches, batch(2_001), "2000")] {
        let (status, code, detail) = raw(&bench, ("POST", path), body.clone());
        assert_eq!((status, &*code), (413, "body_too_large"));
        assert!(detail.contains(limit), "{detail}");
        // The same without a `Content-Length`.
        let chunks = futures::stream::iter(
            body.into_bytes()
                .chunks(100)
                .map(|it| Ok::<_, std::io::Error>(bytes::Bytes::copy_from_slice(it)))
                .collect::<Vec<_>>(),
        );
        let (status, code, _) = raw(&bench, ("POST", path), axum::body::Body::from_stream(chunks));
        assert_eq!((status, &*code), (413, "body_too_large"));
    }
    assert_eq!(bench.get("/v1/queues/tasks/counts").json()["total"], json!(2));
}

/// Answers quote callers' input shortened and escaped.
#[test]
fn problems_are_short_and_have_no_control_characters() {
    let bench = TestGateway::new();
    let (_, _, detail) =
        raw(&bench, ("POST", TASKS), format!(r#"{{"{}":1}}"#, "x".repeat(100_000)));
    assert!(detail.len() < 2_100, "{}", detail.len());
    let answer = bench.get("/v1/queues/a%1b%5B31m");
    let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
    assert!(!text.contains('\u{1b}') && text.contains("u{1b}"), "{text}");
    let detail = bench.get("/v1/queues/tasks/tasks/1:2:-1%00").text("detail");
    assert!(detail.starts_with("`1:2:-1\\0` is not"), "{detail}");
    let settings = json!({"expected_version": 0, "settings": {"unknown": Value::Null}});
    assert_eq!(bench.call("PATCH", "/v1/queues/tasks", settings).code(), "json_unfit");
}
