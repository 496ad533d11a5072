//! Leases of the native API on the queue of a dialect.

use super::{config, enqueue, poll, post, report, state};
use crate::config::Dialect;
use crate::testing::TestGateway;
use serde_json::{Value, json};

/// The name of a lease's worker and its epoch are shown to every reader. A report in a dialect
/// names nothing else, so it could end the leases of the native API without their token.
#[test]
fn a_dialect_ends_no_native_lease() {
    let code = "not_current_lease_owner";
    for dialect in [Dialect::Jobs, Dialect::DQueue] {
        let bench = TestGateway::with(config(dialect));
        let other = bench.beside(config(dialect));
        let id = bench.submit("jobs", "work");
        let lease = bench.lease("jobs", "ann");
        for gateway in [&bench, &other] {
            if dialect == Dialect::Jobs {
                let uuid = gateway.get("/jobs").json().as_object().unwrap().keys().next().cloned();
                let job = json!({"id": uuid, "lease_id": 1});
                for verb in ["/ack", "/fail"] {
                    assert_eq!(report(gateway, verb, "ann", &job), (409, code.to_owned()));
                }
            } else {
                for (verb, number) in [("ack", json!(1)), ("ack", Value::Null), ("nack", json!(1))]
                {
                    let body = json!({"worker_id": "ann", "lease_id": number});
                    let (status, problem) = post(gateway, &format!("/tasks/{id}/{verb}"), body);
                    assert_eq!((status, &problem["code"]), (409, &json!(code)), "{verb}");
                }
            }
        }
        let lease = lease["lease"].as_str().unwrap();
        let path = format!("/v1/queues/jobs/leases/{lease}:report");
        assert_eq!(bench.post(&path, json!({"status": "SUCCEEDED"})).status, 200);
        assert_eq!(bench.get(&format!("/v1/queues/jobs/tasks/{id}")).text("status"), "completed");
    }
}

/// The mark of a dialect's lease on the ledger is not part of the worker's name.
#[test]
fn the_worker_of_a_dialects_lease_is_shown_by_its_name() {
    let bench = TestGateway::with(config(Dialect::Jobs));
    let id = enqueue(&bench, "work");
    let job = poll(&bench, "ann");
    let task = bench.get("/v1/queues/jobs/tasks").json()["tasks"][0].clone();
    assert_eq!(task["worker"]["name"], "ann", "{task}");
    let task = task["id"].as_str().unwrap();
    let path = format!("/v1/queues/jobs/tasks/{task}");
    assert_eq!(bench.get(&format!("{path}/lease")).json()["worker"], "ann");
    let history = bench.get(&format!("{path}/history")).json();
    assert_eq!(history["entries"][0]["leased_to"], "ann", "{history}");
    let other = bench.beside(config(Dialect::Jobs));
    assert_eq!(report(&other, "/ack", "ann", &job), (200, String::new()));
    assert_eq!(state(&bench, &id), "DONE");
}
