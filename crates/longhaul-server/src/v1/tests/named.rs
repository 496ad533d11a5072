//! The name of a lease's holder, as every gateway shows it.

use crate::config::ServerConfig;
use crate::testing::TestGateway;
use serde_json::{Value, json};
use std::time::Duration;

const QUEUE: &str = "/v1/queues/tasks";

/// The worker of a task, by the task's route and by a list.
fn named(bench: &TestGateway, id: &str) -> [Value; 2] {
    let task = bench.get(&format!("{QUEUE}/tasks/{id}")).json();
    let list = bench.get(&format!("{QUEUE}/tasks")).json();
    let listed = list["tasks"].as_array().unwrap().iter().find(|it| it["id"] == json!(id)).unwrap();
    [task["worker"].clone(), listed["worker"].clone()]
}

/// After the end of a lease its holder is still shown, rather than the gateway.
#[test]
fn every_gateway_shows_who_has_held_a_lease_when_it_is_over() {
    let bob = json!({"name": "bob"});
    let one = TestGateway::new();
    let other = one.beside(ServerConfig::default());
    let id = one.post(&format!("{QUEUE}/tasks"), json!({"payload": "a"})).text("id");
    let lease = one.lease("tasks", "bob")["lease"].as_str().unwrap().to_owned();
    one.engine.advance(Duration::from_secs(1));
    for bench in [&one, &other] {
        assert_eq!(named(bench, &id), [bob.clone(), bob.clone()], "while it runs");
    }
    let report = json!({"status": "SUCCEEDED", "result": "done"});
    let reported = other.post(&format!("{QUEUE}/leases/{lease}:report"), report);
    assert_eq!(reported.status, 200, "{reported:?}");
    one.engine.advance(Duration::from_secs(1));
    for bench in [&one, &other] {
        assert_eq!(named(bench, &id), [bob.clone(), bob.clone()], "when it is over");
    }
    let history = one.get(&format!("{QUEUE}/tasks/{id}/history")).json();
    for entry in history["entries"].as_array().unwrap() {
        let is = |event: &str| entry["event"] == json!(event);
        let expected = if is("leased") { &entry["leased_to"] } else { &entry["worker"]["name"] };
        assert_eq!(expected, &json!("bob"), "{entry}");
    }
    // A gateway started later shows it, too, after the others are gone.
    let later = one.beside(ServerConfig::default());
    drop((one, other));
    assert_eq!(named(&later, &id), [bob.clone(), bob]);
}
