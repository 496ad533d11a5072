//! Webhooks in the settings, and the queue of their calls.

use crate::config::{Dialect, ServerConfig, WebhookConfig};
use crate::testing::{TestGateway, TestResponse};
use longhaul::{TaskContext, TaskError, Text, processor_fn};
use serde_json::{Value, json};
use std::time::Duration;

fn calling() -> ServerConfig {
    let allow = vec!["https://hooks.example".to_owned()];
    let webhooks = Some(WebhookConfig { allow, secret_file: "secret".into() });
    ServerConfig { webhooks, ..ServerConfig::default() }
}

#[expect(clippy::needless_pass_by_value, reason = "tests write it where it is sent")]
fn set(bench: &TestGateway, version: u64, settings: Value) -> TestResponse {
    let body = json!({"expected_version": version, "settings": settings});
    bench.call("PATCH", "/v1/queues/tasks", body)
}

#[test]
fn only_an_allowed_origin_is_set() {
    let bench = TestGateway::with(calling());
    bench.submit("tasks", "a");
    let urls = json!(["https://hooks.example/ends"]);
    for bad in ["https://other.example/", "http://hooks.example/", "https://hooks.example:1/"] {
        let refused = set(&bench, 0, json!({"webhooks": [urls[0], bad]}));
        refused.check_refused(400, "webhook_refused");
        assert!(refused.text("detail").contains("--webhook-allow"), "{refused:?}");
    }
    assert_eq!(set(&bench, 0, json!({"webhooks": urls})).status, 200);
    let told = bench.get("/v1/queues/tasks").json();
    assert_eq!((&told["version"], &told["settings"]["webhooks"]), (&json!(1), &urls));
    let twice = json!({"webhooks": [urls[0], urls[0]]});
    assert_eq!(set(&bench, 1, twice).status, 422);
}

#[test]
fn a_gateway_without_a_list_sets_no_webhook_and_leaves_present_ones() {
    let bench = TestGateway::new();
    bench.submit("tasks", "a");
    let urls = json!(["https://hooks.example/ends"]);
    let refused = set(&bench, 0, json!({"webhooks": urls}));
    refused.check_refused(400, "webhook_refused");
    let detail = refused.text("detail");
    assert!(detail.contains("--webhook-allow ORIGIN"), "{detail}");
    assert_eq!(set(&bench.beside(calling()), 0, json!({"webhooks": urls})).status, 200);
    assert_eq!(set(&bench, 1, json!({"webhooks": urls, "max_attempts": 7})).status, 200);
    assert_eq!(set(&bench, 2, json!({"max_attempts": 7})).status, 200);
    assert_eq!(set(&bench, 3, json!({"webhooks": urls})).status, 400);
}

#[test]
fn the_queue_of_the_calls_has_no_webhooks() {
    let bench = TestGateway::with(calling());
    bench.engine.run(bench.engine.client().submit("webhooks", &Text("a".to_owned()))).unwrap();
    let body = json!({"expected_version": 0, "settings": {"webhooks": ["https://hooks.example"]}});
    let refused = bench.call("PATCH", "/v1/queues/webhooks", body);
    assert_eq!(refused.status, 422);
    assert!(refused.text("detail").contains("each call would cause another one"), "{refused:?}");
}

#[test]
fn nobody_submits_or_leases_a_call() {
    for dialect in [Dialect::Jobs, Dialect::DQueue] {
        let config = ServerConfig {
            dialects: vec![dialect],
            dialect_queue: "webhooks".to_owned(),
            create_queues: true,
            ..calling()
        };
        let bench = TestGateway::with(config);
        let fatal = processor_fn(async |_: Text, _: TaskContext| {
            Err::<Text, _>(TaskError::fatal("status 410"))
        });
        let _worker = bench.engine.start(bench.engine.worker("webhooks", fatal));
        let client = bench.engine.client();
        let dead = bench.engine.run(client.submit("webhooks", &Text("a".to_owned()))).unwrap();
        bench.engine.advance(Duration::from_secs(60));
        let path = "/v1/queues/webhooks";
        let task = json!({"payload": "forged"});
        let schedule = json!({"schedule": {"every": "1h"}, "task": task});
        let replay = json!({"all": true, "changes": {"delay": "PT1S"}});
        let named = json!({"tasks": [dead.id.to_string()], "changes": {"payload": "forged"}});
        let batch = json!({"tasks": [task]});
        let mut forged = vec![
            ("native", bench.post(&format!("{path}/tasks"), task.clone())),
            ("batch", bench.post(&format!("{path}/tasks:batch"), batch)),
            ("schedule", bench.post(&format!("{path}/schedules/forged"), schedule.clone())),
            ("replay of all", bench.post(&format!("{path}/dead:replay"), replay)),
            ("replay", bench.post(&format!("{path}/dead:replay"), named)),
            ("lease", bench.post(&format!("{path}/leases"), json!({"worker": "w"}))),
        ];
        forged.push(match dialect {
            Dialect::Jobs => ("jobs", bench.post("/enqueue", json!({"payload": "forged"}))),
            Dialect::DQueue => ("dqueue", bench.post("/tasks", json!({"payload": "forged"}))),
        });
        for (route, answer) in &forged {
            let bytes = String::from_utf8_lossy(&answer.bytes);
            let is_refused =
                answer.status == 403 || bytes.contains("reserved for calls of webhooks");
            assert!(is_refused, "{route}: {} {bytes}", answer.status);
        }
        let tasks = bench.get(&format!("{path}/tasks")).json();
        assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(1), "{tasks}");
        let again = bench.post(&format!("{path}/dead:replay"), json!({"all": true}));
        assert_eq!(again.status, 200, "a call itself may be repeated: {again:?}");
    }
}
