//! The dialect `jobs`: leases, fencing and expiry.

use super::{OK, conflict, enqueue, poll, post, report, request, shown, state};
use crate::testing::TestGateway;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

const LEASE: Duration = Duration::from_secs(30);

pub(super) fn polls(bench: &TestGateway) {
    for body in [json!({}), json!({"worker_id": ""}), json!({"worker_id": 7}), json!([])] {
        assert_eq!(post(bench, "/poll", body.clone()).0, 400, "{body}");
    }
    assert_eq!(post(bench, "/poll", json!({"worker_id": "w".repeat(257)})).0, 400);
    let (first, _) = (enqueue(bench, "first"), enqueue(bench, "second"));
    let job = poll(bench, "ann");
    assert_eq!((&job["id"], &job["payload"]), (&json!(first), &json!("first")), "one, the oldest");
}

pub(super) fn long_poll(bench: &TestGateway) {
    let before = bench.engine.time_passed();
    assert_eq!(bench.post("/poll", json!({"worker_id": "ann"})).status, 204);
    assert_eq!((bench.engine.time_passed() - before).as_secs(), 30);
    // A submit ends the wait.
    let before = bench.engine.time_passed();
    let router = bench.router.clone();
    let tasks = TaskTracker::new();
    let submit = async move {
        tokio::time::sleep(Duration::from_secs(7)).await;
        let submit = request("/enqueue", &json!({"payload": "work"}));
        assert_eq!(router.oneshot(submit).await.unwrap().status(), 200);
    };
    bench.engine.run(async { drop(tasks.spawn(submit)) });
    poll(bench, "ann");
    let passed = (bench.engine.time_passed() - before).as_secs();
    assert_eq!(passed, 7);
}

pub(super) fn errors(bench: &TestGateway, verb: &str) {
    let id = enqueue(bench, "work");
    let job = poll(bench, "ann");
    for body in [
        json!({}),
        json!({"job_id": id, "lease_id": job["lease_id"]}),
        json!({"worker_id": "ann", "lease_id": job["lease_id"]}),
        json!({"worker_id": "ann", "job_id": id}),
        json!({"worker_id": "", "job_id": id, "lease_id": 1}),
        json!({"worker_id": "ann", "job_id": id, "lease_id": "1"}),
    ] {
        assert_eq!(post(bench, verb, body.clone()).0, 400, "{body}");
    }
    assert_eq!(bench.get(verb).status, 405);
    for unknown in
        ["x", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "00000000-0384-8000-8000-000000000000"]
    {
        let body = json!({"worker_id": "ann", "job_id": unknown, "lease_id": 0});
        assert_eq!(post(bench, verb, body).0, 404, "{unknown}");
    }
    assert_eq!(state(bench, &id), "LEASED");
    let answer =
        bench.post(verb, json!({"worker_id": "ann", "job_id": id, "lease_id": job["lease_id"]}));
    assert_eq!((answer.status.as_u16(), answer.bytes.len()), (200, 0));
}

pub(super) fn ack_twice(bench: &TestGateway) {
    enqueue(bench, "work");
    let job = poll(bench, "ann");
    for verb in ["/ack", "/ack", "/ack", "/fail"] {
        assert_eq!(report(bench, verb, "ann", &job), OK(), "{verb}");
    }
    assert_eq!(state(bench, job["id"].as_str().unwrap()), "DONE");
}

/// The reason must not be `lease_expired`: after a fail nobody owns the job until the next poll.
pub(super) fn fail_twice(bench: &TestGateway) {
    let id = enqueue(bench, "work");
    let job = poll(bench, "ann");
    assert_eq!(report(bench, "/fail", "ann", &job), OK());
    for (verb, worker) in [("/fail", "ann"), ("/ack", "ann"), ("/fail", "bob")] {
        let refused = report(bench, verb, worker, &job);
        assert_eq!(refused, conflict("not_current_lease_owner"), "{verb} {worker}");
    }
    assert_eq!((state(bench, &id), &shown(bench, &id)["attempts"]), ("QUEUED".into(), &json!(1)));
    let other = bench.beside(super::config(crate::config::Dialect::Jobs));
    assert_eq!(report(&other, "/fail", "ann", &job), conflict("not_current_lease_owner"));
    assert_eq!(report(bench, "/ack", "bob", &poll(bench, "bob")), OK());
}

/// Each of the three reasons, on ack and on fail: the report has no effect.
pub(super) fn stale_reports(bench: &TestGateway) {
    for verb in ["/ack", "/fail"] {
        let id = enqueue(bench, verb);
        let first = poll(bench, "ann");
        assert_eq!(report(bench, verb, "bob", &first), conflict("not_current_lease_owner"));
        bench.engine.advance(LEASE + Duration::from_secs(1));
        assert_eq!(report(bench, verb, "ann", &first), conflict("lease_expired"));
        let second = poll(bench, "bob");
        assert_eq!(second["id"], json!(id));
        assert_eq!(report(bench, verb, "ann", &first), conflict("stale_lease_id"));
        assert_eq!(report(bench, verb, "bob", &first), conflict("stale_lease_id"));
        assert_eq!(
            (state(bench, &id), &shown(bench, &id)["attempts"]),
            ("LEASED".to_owned(), &json!(1))
        );
        assert_eq!(report(bench, "/ack", "bob", &second), OK());
    }
}

pub(super) fn invalid_states(bench: &TestGateway) {
    let id = enqueue(bench, "work");
    let of = |lease_id: u32| json!({"id": id, "lease_id": lease_id});
    for verb in ["/ack", "/fail"] {
        assert_eq!(report(bench, verb, "ann", &of(0)).0, 409, "a job that is not leased");
    }
    assert_eq!(state(bench, &id), "QUEUED");
    let mut last = Value::Null;
    for _ in 0..3 {
        last = poll(bench, "ann");
        assert_eq!(report(bench, "/fail", "ann", &last), OK());
    }
    for verb in ["/ack", "/fail"] {
        let refused = report(bench, verb, "ann", &last);
        assert_eq!(refused, conflict("not_current_lease_owner"), "a dead job");
    }
    assert_eq!((state(bench, &id), &shown(bench, &id)["attempts"]), ("DEAD".to_owned(), &json!(3)));
}

pub(super) fn lease_on_poll(bench: &TestGateway) {
    let id = enqueue(bench, "work");
    let job = poll(bench, "ann");
    let left = job["lease_expires_at"].as_u64().unwrap() - bench.engine.now_ms() / 1_000;
    assert!((29..=30).contains(&left), "{left} s");
    assert_eq!((&job["state"], &job["lease_owner"]), (&json!("LEASED"), &json!("ann")));
    assert_eq!(shown(bench, &id)["lease_owner"], json!("ann"));
}

/// An expired job is available again within a second, without a delay. Several jobs are used, since
/// the backoff of one may be short by chance.
pub(super) fn expiry(bench: &TestGateway) {
    let ids: BTreeSet<_> = (0..8).map(|number| enqueue(bench, &number.to_string())).collect();
    for _ in &ids {
        poll(bench, "ann");
    }
    bench.engine.advance(LEASE - Duration::from_secs(2));
    assert!(ids.iter().all(|id| state(bench, id) == "LEASED"));
    bench.engine.advance(Duration::from_secs(3));
    let now = bench.engine.now_ms().div_ceil(1_000);
    for id in &ids {
        assert_eq!(state(bench, id), "QUEUED");
        assert!(shown(bench, id)["next_available_at"].as_u64().is_none_or(|at| at <= now));
    }
    let before = bench.engine.time_passed();
    let again: BTreeSet<_> =
        ids.iter().map(|_| poll(bench, "bob")["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(again, ids);
    let passed = bench.engine.time_passed() - before;
    assert!(passed < Duration::from_secs(2), "{passed:?}");
}

/// Unlike in the original queue: a job that only loses its workers must end, too.
pub(super) fn expiry_counts(bench: &TestGateway) {
    let id = enqueue(bench, "poison");
    for expired in 0..3 {
        assert_eq!(poll(bench, "ann")["attempts"], json!(expired));
        bench.engine.advance(LEASE + Duration::from_secs(1));
    }
    assert_eq!((state(bench, &id), &shown(bench, &id)["attempts"]), ("DEAD".to_owned(), &json!(3)));
    assert_eq!(bench.post("/poll", json!({"worker_id": "ann"})).status, 204);
}

pub(super) fn one_holder(bench: &TestGateway) {
    enqueue(bench, "work");
    let polls = ["ann", "bob", "eve"].map(|worker| request("/poll", &json!({"worker_id": worker})));
    let answers = bench.send_all(polls);
    let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 204, 204]);
}

pub(super) fn growing_ids(bench: &TestGateway) {
    let id = enqueue(bench, "work");
    assert_eq!(shown(bench, &id)["lease_id"], json!(0));
    let mut before = 0;
    for _ in 0..3 {
        let job = poll(bench, "ann");
        let lease_id = job["lease_id"].as_u64().unwrap();
        assert_eq!(lease_id, before + 1);
        before = lease_id;
        assert_eq!(shown(bench, &id)["lease_id"], json!(lease_id));
        assert_eq!(report(bench, "/fail", "ann", &job), OK());
    }
}

/// A worker that stalls past the end of its lease is fenced; the job runs once more, and that
/// counts.
pub(super) fn zombie(bench: &TestGateway) {
    let id = enqueue(bench, "work");
    let stalled = poll(bench, "ann");
    bench.engine.advance(LEASE + Duration::from_secs(5));
    let current = poll(bench, "ann");
    assert_eq!(current["id"], json!(id), "it is executed at least once");
    assert_eq!(report(bench, "/ack", "ann", &stalled), conflict("stale_lease_id"), "the same name");
    assert_eq!(report(bench, "/ack", "ann", &current), OK());
    assert_eq!(state(bench, &id), "DONE");
}

pub(super) fn races(bench: &TestGateway) {
    let ids: BTreeSet<String> = (0..30).map(|number| enqueue(bench, &number.to_string())).collect();
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        let polls = (0..5).map(|_| request("/poll", &json!({"worker_id": "ann"})));
        let jobs: Vec<Value> =
            bench.send_all(polls).iter().map(super::TestResponse::json).collect();
        let acks = jobs.iter().flat_map(|job| {
            assert!(seen.insert(job["id"].as_str().unwrap().to_owned()), "leased twice: {job}");
            let body =
                json!({"worker_id": "ann", "job_id": job["id"], "lease_id": job["lease_id"]});
            [request("/ack", &body), request("/ack", &body)]
        });
        let acks: Vec<_> = acks.collect();
        let answers = bench.send_all(acks);
        assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    }
    assert_eq!(seen, ids);
    let jobs = bench.get("/jobs").json();
    let done = |job: &Value| job["state"] == "DONE" && job["attempts"] == 0;
    assert!(jobs.as_object().unwrap().values().all(done), "{jobs}");
}
