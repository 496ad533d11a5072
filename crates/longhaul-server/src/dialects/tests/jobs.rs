//! The dialect `jobs`, line by line.

use super::jobs_leases as leases;
use super::jobs_submits as submits;
use super::logged::logged;
use super::{OK, Proof, config, conflict, enqueue, poll, post, prove, report, shown, state};
use crate::config::Dialect;
use crate::testing::TestGateway;
use Proof::Here;
use longhaul::RetryPolicy;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[test]
fn the_dialect_jobs_line_by_line() {
    prove(
        Dialect::Jobs,
        &[
            ("1.1", Here(health)),
            ("1.2", Here(submits::enqueues)),
            ("1.3", Here(submits::errors)),
            ("1.4", Here(jobs)),
            ("1.5", Here(dead)),
            ("1.6", Here(leases::polls)),
            ("1.7", Here(leases::long_poll)),
            ("1.8", Here(|bench| leases::errors(bench, "/ack"))),
            ("1.9", Here(leases::ack_twice)),
            ("1.10", Here(|bench| leases::errors(bench, "/fail"))),
            ("1.11", Here(leases::stale_reports)),
            ("1.12", Here(leases::fail_twice)),
            ("1.12", Here(leases::stale_reports)),
            ("1.13", Here(states)),
            ("1.14", Here(submits::enqueues)),
            ("1.15", Here(fields)),
            ("1.16", Here(submits::at_once)),
            ("1.17", Here(leases::invalid_states)),
            ("1.18", Here(leases::lease_on_poll)),
            ("1.19", Here(leases::expiry)),
            ("1.20", Here(leases::expiry)),
            ("1.21", Here(leases::expiry_counts)),
            ("1.22", Here(leases::one_holder)),
            ("1.23", Here(leases::growing_ids)),
            ("1.24", Here(leases::zombie)),
            ("1.25", Here(leases::races)),
            ("1.26", Here(leases::zombie)),
            ("1.27", Here(retries)),
            ("1.28", Here(backoff)),
            ("1.29", Here(delay_is_honoured)),
            ("1.30", Here(dead)),
            ("1.31", Here(submits::same_key)),
            ("1.32", Here(submits::same_key)),
            ("1.33", Here(submits::in_progress)),
            ("1.34", Here(submits::race)),
            ("1.35", Here(submits::malformed_is_free)),
            ("1.36", Here(submits::same_key)),
            ("1.37", Here(submits::race)),
            ("1.38", Here(events)),
            ("1.39", Here(harness)),
            ("1.40", Here(restart)),
        ],
    );
}

fn health(bench: &TestGateway) {
    let answer = bench.get("/health");
    assert_eq!((answer.status.as_u16(), &answer.bytes[..]), (200, &b"ok\n"[..]));
}

fn jobs(bench: &TestGateway) {
    assert_eq!(bench.get("/jobs").json(), json!({}));
    let id = enqueue(bench, "work");
    let jobs = bench.get("/jobs").json();
    assert_eq!((jobs.as_object().unwrap().len(), &jobs[&id]["payload"]), (1, &json!("work")));
    assert_eq!(bench.post("/jobs", json!({})).status, 405);
}

fn dead(bench: &TestGateway) {
    let id = enqueue(bench, "poison");
    for _ in 0..3 {
        let job = poll(bench, "ann");
        assert_eq!(report(bench, "/fail", "ann", &job), OK());
    }
    let other = enqueue(bench, "fine");
    let dead = bench.get("/dead").json();
    assert_eq!((&dead[&id]["state"], &dead[&id]["attempts"]), (&json!("DEAD"), &json!(3)));
    assert_eq!((dead.as_object().unwrap().len(), state(bench, &other)), (1, "QUEUED".to_owned()));
    assert_eq!(poll(bench, "ann")["id"], json!(other), "a dead job is not leased");
}

fn states(bench: &TestGateway) {
    let id = enqueue(bench, "work");
    assert_eq!(state(bench, &id), "QUEUED");
    let job = poll(bench, "ann");
    assert_eq!((&job["state"], state(bench, &id)), (&json!("LEASED"), "LEASED".to_owned()));
    assert_eq!(report(bench, "/ack", "ann", &job), OK());
    assert_eq!(state(bench, &id), "DONE");
    dead(bench);
}

fn fields(bench: &TestGateway) {
    let names = |job: &serde_json::Value| -> BTreeSet<String> {
        job.as_object().unwrap().keys().cloned().collect()
    };
    let always = ["id", "payload", "state", "lease_id", "attempts", "max_tries"];
    let leased = always.into_iter().chain(["lease_owner", "lease_expires_at"]);
    let leased: BTreeSet<String> = leased.map(str::to_owned).collect();
    let always: BTreeSet<String> = always.map(str::to_owned).into();
    let id = enqueue(bench, "work");
    assert_eq!(names(&shown(bench, &id)), always);
    let job = poll(bench, "ann");
    assert_eq!((names(&job), names(&shown(bench, &id))), (leased.clone(), leased));
    let owner = shown(bench, &id);
    assert_eq!((&owner["lease_owner"], &owner["max_tries"]), (&json!("ann"), &json!(3)));
    assert_eq!(report(bench, "/fail", "ann", &job), OK());
    assert!(shown(bench, &id)["next_available_at"].is_u64() || state(bench, &id) == "QUEUED");
}

fn retries(bench: &TestGateway) {
    let id = enqueue(bench, "work");
    for failed in 0..3 {
        let job = poll(bench, "ann");
        assert_eq!((&job["attempts"], &job["max_tries"]), (&json!(failed), &json!(3)));
        assert_eq!(
            shown(bench, &id)["attempts"],
            json!(failed),
            "the one that runs has not failed"
        );
        assert_eq!(report(bench, "/fail", "ann", &job), OK());
        assert_eq!(shown(bench, &id)["attempts"], json!(failed + 1));
    }
    assert_eq!(state(bench, &id), "DEAD");
}

fn backoff(bench: &TestGateway) {
    let policy: RetryPolicy = crate::core::dialect_backoff();
    let ceilings = [1, 2, 3, 4, 5, 40].map(|attempt| policy.ceiling(attempt).as_secs());
    assert_eq!(ceilings, [5, 10, 20, 30, 30, 30]);
    assert_eq!((policy.delay(3, 0), policy.delay(3, u32::MAX).as_secs()), (Duration::ZERO, 20));
    // A job waits by that policy.
    let mut delays = Vec::new();
    for number in 0..12 {
        let id = enqueue(bench, &number.to_string());
        let job = poll(bench, "ann");
        let now = bench.engine.now_ms();
        assert_eq!(report(bench, "/fail", "ann", &job), OK());
        let due = shown(bench, &id)["next_available_at"].as_u64().unwrap_or_default();
        delays.push((due * 1_000).saturating_sub(now));
        assert_eq!(report(bench, "/ack", "ann", &poll(bench, "ann")), OK());
    }
    assert!(delays.iter().all(|ms| *ms <= 6_000), "{delays:?}");
    assert!(
        delays.iter().any(|ms| *ms > 1_000) && delays.iter().any(|ms| *ms < 4_000),
        "{delays:?}"
    );
}

fn delay_is_honoured(bench: &TestGateway) {
    for number in 0..5 {
        let id = enqueue(bench, &number.to_string());
        let job = poll(bench, "ann");
        assert_eq!(report(bench, "/fail", "ann", &job), OK());
        let due = bench.get(&format!("/v1/queues/jobs/tasks/{}", native(&id))).json();
        let due = due["due_at"].as_u64().unwrap();
        let again = poll(bench, "ann");
        assert_eq!(again["id"], json!(id));
        assert!(bench.engine.now_ms() >= due, "leased {} ms early", due - bench.engine.now_ms());
        assert_eq!(report(bench, "/ack", "ann", &again), OK());
    }
}

/// The id of a job's task in the native API.
fn native(id: &str) -> String {
    super::super::job_id::task_of(id).unwrap().to_string()
}

/// The log lines must have the field names of the document, so that a search by `job_id` finds a
/// job's retry, death and lease end. A gateway that ends another's lease must log the events that
/// follow, too.
fn events(bench: &TestGateway) {
    let done = || {
        enqueue(bench, "poison");
        assert_eq!(report(bench, "/fail", "ann", &poll(bench, "ann")), OK());
        let hanging = poll(bench, "ann");
        bench.engine.advance(Duration::from_secs(31));
        let current = poll(bench, "bob");
        assert_eq!(report(bench, "/ack", "ann", &hanging), conflict("stale_lease_id"));
        assert_eq!(report(bench, "/fail", "bob", &current), OK());
        let keyed = super::keyed("/enqueue", "key-1", r#"{"payload":"work"}"#);
        assert_eq!(bench.send(keyed).status, 200);
        assert_eq!(report(bench, "/ack", "ann", &poll(bench, "ann")), OK());
        enqueue(bench, "lost");
        for _ in 0..3 {
            let gone = bench.beside(config(Dialect::Jobs));
            poll(&gone, "ann");
            drop(gone);
            bench.engine.advance(Duration::from_secs(31));
        }
    };
    let begin = bench.engine.now_ms();
    let found = logged(done);
    let told = ["event", "job_id", "worker_id", "lease_id", "payload_len", "idempotency_key"];
    let line = |event: &BTreeMap<String, String>| {
        let values = told.iter().filter_map(|field| event.get(*field)).map(String::as_str);
        let times =
            ["lease_expires_at", "next_available_at"].map(|field| event.get_key_value(field));
        let times = times.into_iter().flatten().map(|(field, at_ms)| {
            let at_ms: u64 = at_ms.parse().unwrap();
            assert!((begin..bench.engine.now_ms() + 31_000).contains(&at_ms), "{event:?}");
            field.as_str()
        });
        values.chain(times).collect::<Vec<_>>().join(" ")
    };
    let found: Vec<_> =
        found.iter().filter(|event| event["event"] != "http_request").map(line).collect();
    let expected = [
        "job_enqueued 11:0:-1 6",
        "job_leased 11:0:-1 ann 1 6 lease_expires_at",
        "job_retry_scheduled 11:0:-1 ann 1 next_available_at",
        "job_failed 11:0:-1 ann 1",
        "job_leased 11:0:-1 ann 2 6 lease_expires_at",
        "lease_expired 11:0:-1 ann 2",
        "job_retry_scheduled 11:0:-1 ann 2 next_available_at",
        "job_leased 11:0:-1 bob 3 6 lease_expires_at",
        "ack_rejected 11:0:-1 ann 2",
        "job_dead 11:0:-1 bob 3",
        "job_failed 11:0:-1 bob 3",
        "job_enqueued 11:1:-1 4 key-1",
        "job_leased 11:1:-1 ann 1 4 lease_expires_at",
        "job_acked 11:1:-1 ann 1",
        "job_enqueued 11:2:-1 4",
        "job_leased 11:2:-1 ann 1 4 lease_expires_at",
        "lease_expired 11:2:-1 ann 1",
        "job_retry_scheduled 11:2:-1 ann 1 next_available_at",
        "job_leased 11:2:-1 ann 2 4 lease_expires_at",
        "lease_expired 11:2:-1 ann 2",
        "job_retry_scheduled 11:2:-1 ann 2 next_available_at",
        "job_leased 11:2:-1 ann 3 4 lease_expires_at",
        "lease_expired 11:2:-1 ann 3",
        "job_dead 11:2:-1 ann 3",
    ];
    assert_eq!(found, expected);
}

/// Reports on a job. A poll that found nothing has waited as long as a lease lasts, so a lease
/// granted beside it may be over.
fn settle(bench: &TestGateway, verb: &str, worker: &str, job: &serde_json::Value) {
    let answer = report(bench, verb, worker, job);
    assert!(answer == OK() || answer == conflict("lease_expired"), "{answer:?}");
}

/// The document's failure script: 60 % acks, 20 % fails, 20 % hangs beyond the lease.
fn harness(bench: &TestGateway) {
    let ids: BTreeSet<String> = (0..40).map(|number| enqueue(bench, &number.to_string())).collect();
    let mut random = fastrand::Rng::with_seed(39);
    let mut rounds = 0;
    let is_over = |job: &serde_json::Value| job["state"] == "DONE" || job["state"] == "DEAD";
    loop {
        let polls = (0..5).map(|worker| {
            super::request("/poll", &json!({"worker_id": format!("worker-{worker}")}))
        });
        let mut hangs = false;
        for (worker, answer) in bench.send_all(polls).into_iter().enumerate() {
            if answer.status == 204 {
                continue;
            }
            let (job, worker) = (answer.json(), format!("worker-{worker}"));
            match random.u8(0..10) {
                0..=5 => settle(bench, "/ack", &worker, &job),
                6..=7 => settle(bench, "/fail", &worker, &job),
                _ => hangs = true,
            }
        }
        if hangs {
            bench.engine.advance(Duration::from_secs(35));
        }
        let jobs = bench.get("/jobs").json();
        let jobs = jobs.as_object().unwrap();
        assert_eq!(jobs.keys().cloned().collect::<BTreeSet<_>>(), ids);
        assert!(jobs.values().all(|job| job["attempts"].as_u64().unwrap() <= 3));
        if jobs.values().all(is_over) {
            let done = jobs.values().filter(|job| job["state"] == "DONE").count();
            assert!(done > 25, "{done} of 40 are done");
            break;
        }
        rounds += 1;
        assert!(rounds < 200, "{jobs:?}");
    }
}

/// State that the original queue loses with its process is kept here.
fn restart(bench: &TestGateway) {
    let (waits, runs) = (enqueue(bench, "waits"), enqueue(bench, "runs"));
    let job = poll(bench, "ann");
    let other = bench.beside(config(Dialect::Jobs));
    let (held, free) = if job["id"] == json!(runs) { (runs, waits) } else { (waits, runs) };
    assert_eq!(state(&other, &held), "LEASED");
    assert_eq!(report(&other, "/ack", "ann", &job), OK());
    assert_eq!(
        (state(&other, &held), state(&other, &free)),
        ("DONE".to_owned(), "QUEUED".to_owned())
    );
    assert_eq!(post(&other, "/enqueue", json!({"payload": "more"})).0, 200);
}
