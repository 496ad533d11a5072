//! Submitting tasks, reading them, and waiting for them.

use crate::testing::TestGateway;
use longhaul::{TaskContext, TaskError, Text, processor_fn};
use serde_json::{Value, json};

fn shout(bench: &TestGateway) -> longhaul::WorkerHandle {
    let shout = processor_fn(async |text: Text, context: TaskContext| {
        if text.0 == "fail" {
            return Err(TaskError::fatal("it was asked for"));
        }
        context.progress(1, 2, "half");
        Ok(Text(text.0.to_uppercase()))
    });
    bench.engine.start(bench.engine.worker("tasks", shout))
}

#[test]
fn a_task_is_submitted_waited_for_and_looked_at() {
    let bench = TestGateway::new();
    let id = bench.submit("tasks", "hello");
    let path = format!("/v1/queues/tasks/tasks/{id}");
    let ready = bench.get(&path);
    assert_eq!((ready.status.as_u16(), ready.text("status")), (200, "ready".to_owned()));
    assert_eq!(bench.get(&format!("{path}/result")).code(), "task_not_over");
    let early = bench.get(&format!("{path}/wait?timeout=1s"));
    assert_eq!((early.status.as_u16(), early.bytes.len()), (204, 0), "nobody works yet");

    let _worker = shout(&bench);
    let over = bench.get(&format!("{path}/wait"));
    assert_eq!((over.status.as_u16(), over.text("status")), (200, "completed".to_owned()));
    let result = bench.get(&format!("{path}/result"));
    assert_eq!((result.status.as_u16(), &result.bytes[..]), (200, &b"HELLO"[..]));
    assert_eq!(result.headers["content-disposition"], "attachment");
    assert_eq!(&bench.get(&format!("{path}/payload")).bytes[..], b"hello");
    let task = bench.get(&path).json();
    assert_eq!((&task["status"], &task["attempts"]), (&json!("completed"), &json!(1)));
    assert!(task["now"].as_u64() > Some(0) && task["result_bytes"] == json!(5), "{task}");
    let events = bench.get(&format!("{path}/history")).texts("entries", "event");
    let has = |event: &str| events.iter().any(|it| it == event);
    assert!(has("claimed") && has("completed"), "{events:?}");
}

#[test]
fn payloads_are_text_base64_json_or_the_body_itself() {
    let bench = TestGateway::new();
    let payload = |answer: &crate::testing::TestResponse| {
        let found = bench.get(&format!("/v1/queues/tasks/tasks/{}/payload", answer.text("id")));
        (found.bytes, found.headers.get("x-payload-content-type").cloned())
    };
    let path = "/v1/queues/tasks/tasks";
    for (body, expected) in [
        (json!({"payload": "ä\u{0}"}), &b"\xc3\xa4\0"[..]),
        (json!({"payload_base64": "AP8="}), b"\0\xff"),
        (json!({"payload_json": {"b": [1, 2], "a": null}}), br#"{"a":null,"b":[1,2]}"#),
        (json!({"payload_json": null}), b"null"),
        (json!({"payload": ""}), b""),
    ] {
        let answer = bench.post(path, body.clone());
        assert_eq!(answer.status, 201, "{body}: {answer:?}");
        assert_eq!(payload(&answer), (expected.into(), None), "{body}");
    }
    let mut raw = TestGateway::request(
        "POST",
        &format!("{path}?type=resize&tags=a,b&priority=high"),
        &b"\0\x01\xff"[..],
    );
    raw.headers_mut().insert("content-type", "image/png".parse().unwrap());
    let answer = bench.send(raw);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert!(answer.text("id").starts_with("high~"), "{answer:?}");
    assert_eq!(payload(&answer), (b"\0\x01\xff"[..].into(), Some("image/png".parse().unwrap())));
    let listed = bench.get("/v1/queues/tasks/tasks?level=high&type=resize&tag=b").json();
    assert_eq!(listed["tasks"][0]["id"], json!(answer.text("id")), "{listed}");
    assert_eq!(listed["tasks"][0]["tags"], json!(["a", "b"]));
}

#[test]
fn a_key_makes_one_task_of_many_submits() {
    let bench = TestGateway::new();
    let path = "/v1/queues/tasks/tasks";
    let by_field = bench.post(path, json!({"payload": "a", "idempotency_key": "k"})).text("id");
    let mut by_header = TestGateway::json_request("POST", path, r#"{"payload":"b"}"#);
    by_header.headers_mut().insert("idempotency-key", "k".parse().unwrap());
    assert_eq!(bench.send(by_header).text("id"), by_field);
    let strict = bench.post(path, json!({"payload": "b", "idempotency_key": "k", "strict": true}));
    strict.check_refused(409, "key_conflict");
    assert_eq!(strict.text("task"), by_field);
    let two = json!({"payload": "b", "idempotency_key": "k", "dedupe_key": "d"});
    assert_eq!(bench.post(path, two).status, 422);
    let first = bench.post(path, json!({"payload": "a", "dedupe_key": "d"})).text("id");
    assert_eq!(bench.post(path, json!({"payload": "a", "dedupe_key": "d"})).text("id"), first);
}

#[test]
fn a_batch_says_of_each_what_became_of_it() {
    let bench = TestGateway::new();
    let tasks = json!({"tasks": [
        {"payload": "a"},
        {"payload": 7},
        {"payload": "c", "max_attempts": 0},
        {"payload": "d", "tags": ["x"]},
        ["e"],
    ]});
    // The first task of a topic looks up the partitions, which may change the order of a batch.
    bench.submit("tasks", "first");
    let answer = bench.post("/v1/queues/tasks/tasks:batch", tasks).json();
    let outcomes = answer["outcomes"].as_array().unwrap();
    let kinds: Vec<_> = outcomes.iter().map(|it| it["error"]["status"].as_u64()).collect();
    assert_eq!(kinds, [None, Some(422), Some(422), None, Some(422)], "{answer}");
    assert!(
        outcomes[1]["error"]["detail"].as_str().unwrap().contains("expected a string"),
        "{answer}"
    );
    let page = bench.get("/v1/queues/tasks/tasks?limit=2").json();
    assert_eq!(page["tasks"][1]["id"], outcomes[0]["id"]);
    let next = page["next"].as_str().unwrap();
    let page = bench.get(&format!("/v1/queues/tasks/tasks?limit=1&after={next}")).json();
    assert_eq!((&page["tasks"][0]["id"], &page["next"]), (&outcomes[3]["id"], &Value::Null));
    let counts = bench.get("/v1/queues/tasks/counts").json();
    assert_eq!((&counts["by_status"], &counts["total"]), (&json!({"ready": 3}), &json!(3)));
    assert_eq!(
        counts["oldest_ready"]["id"],
        bench.get("/v1/queues/tasks/tasks").json()["tasks"][0]["id"]
    );
    let many = json!({"tasks": vec![json!({"payload": ""}); 1_001]});
    assert_eq!(bench.post("/v1/queues/tasks/tasks:batch", many).status, 422);
    assert_eq!(bench.get("/v1/queues/tasks/counts").json()["total"], json!(3));
}

#[test]
fn terms_of_a_task_are_kept() {
    let bench = TestGateway::new();
    let path = "/v1/queues/tasks/tasks";
    let later = bench.post(path, json!({"payload": "a", "delay": "1h", "key": "k", "type": "t"}));
    let task = bench.get(&format!("{path}/{}", later.text("id"))).json();
    assert_eq!(
        (&task["status"], &task["key"], &task["type"]),
        (&json!("scheduled"), &json!("k"), &json!("t"))
    );
    assert!(task["due_at"].as_u64() > task["created_at"].as_u64(), "{task}");
    for good in [
        json!({"payload": "", "retry": {"intervals": ["1s", 2]}, "max_attempts": 3}),
        json!({"payload": "", "retry": {"base": "1s", "max": "1m"}, "max_duration": "PT1H"}),
        json!({"payload": "", "scheduled_at": 1, "expires_at": "2999-01-01T00:00:00Z"}),
        json!({"payload": "", "limit_key": "acme", "no_progress_timeout": 5, "max_total_duration": "2h"}),
        json!({"payload": "", "after": [later.text("id")]}),
        json!({"payload": "", "properties": {"customer": "4711"}, "priority": "low"}),
    ] {
        assert_eq!(bench.post(path, good.clone()).status, 201, "{good}");
    }
}

/// Concurrent requests with one key must not leave messages that count as ready tasks.
#[test]
fn requests_with_one_key_that_come_at_once_leave_one_message() {
    let bench = TestGateway::new();
    let body = json!({"payload": "a", "idempotency_key": "k"}).to_string();
    let path = "/v1/queues/tasks/tasks";
    let requests = (0..20).map(|_| TestGateway::json_request("POST", path, body.clone()));
    let answers = bench.send_all(requests);
    assert!(answers.iter().all(|it| it.status == 201), "{answers:?}");
    assert!(answers.iter().all(|it| it.text("id") == answers[0].text("id")), "{answers:?}");
    let counts = bench.get("/v1/queues/tasks/counts").json();
    assert_eq!((&counts["total"], &counts["demand"]), (&json!(1), &json!(1)), "{counts}");
}
