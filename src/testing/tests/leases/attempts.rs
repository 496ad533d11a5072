//! Workers and gateways of one queue that give a task different numbers of attempts.

use super::offers::status;
use super::*;
use crate::ops::TaskStatus;
use crate::{TaskOutcome, WorkerHandle};

const H: Duration = Duration::from_secs(10);

/// A worker that is silent for this time is dead for all others, and the consequences have
/// followed.
const GONE: Duration = Duration::from_secs(120);

/// A gateway with the same settings as the workers, but for the number of attempts.
fn gateway(engine: &TestEngine, attempts: u32) -> Leases {
    let settings = |config: &mut crate::WorkerConfig| {
        (config.heartbeat, config.max_attempts) = (H, attempts);
    };
    let builder = engine.client().leases(TOPIC).lease_time(LEASE_TIME).settings(settings);
    let leases = engine.run(builder.start()).unwrap();
    engine.run(leases.ready());
    leases
}

/// A worker whose attempts do not end, or end at once.
fn worker(engine: &TestEngine, attempts: u32, ends: bool) -> WorkerHandle {
    let processor = processor_fn(move |task: Text, context: TaskContext| async move {
        if !ends {
            context.cancelled().await;
        }
        Outcome::Ok(task)
    });
    let worker = engine.worker(TOPIC, processor).max_attempts(attempts);
    engine.start(worker.heartbeat(H))
}

/// Lets `workers` workers die at the task, one after the other.
fn dies(engine: &TestEngine, task: &TaskRef, workers: u32, attempts: u32) {
    for attempt in 1..=workers {
        let worker = worker(engine, attempts, false);
        let runs = format!("PROCESSING {attempt}");
        while engine.transitions(task).last().is_none_or(|last| last.to_string() != runs) {
            engine.advance(Duration::from_secs(1));
        }
        drop(worker);
    }
}

/// A gateway that gives three attempts does not end a task whose workers give five. It once closed
/// such a task as failed for good after three deaths and a long silence.
#[test]
fn a_gateway_does_not_end_a_task_early_whose_workers_give_it_more_attempts() {
    let engine = TestEngine::new();
    let _gateway = gateway(&engine, 3);
    let task = engine.submit(TOPIC, &text("work"));
    dies(&engine, &task, 3, 5);
    engine.advance(GONE);
    assert_eq!(status(&engine, &task), TaskStatus::Running);
    let _worker = worker(&engine, 5, true);
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("work"));
    assert_eq!(*engine.transitions(&task).last().unwrap(), "COMPLETED 4");
}

/// The worker had said that a task is not to be run twice, and it was: whoever asked the gateway
/// got it.
#[test]
fn a_gateway_does_not_hand_out_a_task_whose_worker_gives_it_one_attempt() {
    let engine = TestEngine::new();
    let gateway = gateway(&engine, 3);
    let task = engine.submit(TOPIC, &text("work"));
    dies(&engine, &task, 1, 1);
    engine.advance(GONE);
    assert!(ask(&engine, &gateway, "ann").is_none());
    let Err(WaitError::Failed { outcome, .. }) = engine.wait::<Text>(&task) else {
        panic!("it did not fail: {:?}", engine.transitions(&task));
    };
    assert_eq!(outcome, TaskOutcome::Final);
    engine.assert_transitions(&task, ["PROCESSING 1", "FAILED 1 FINAL"]);
}

/// A gateway whose own number is lower makes its attempt the last one, and says so to whoever has
/// it.
#[test]
fn an_attempt_beyond_the_gateways_own_number_is_the_last_one() {
    let engine = TestEngine::new();
    let gateway = gateway(&engine, 3);
    let task = engine.submit(TOPIC, &text("work"));
    dies(&engine, &task, 3, 5);
    engine.advance(GONE);
    let lease = lease(&engine, &gateway);
    assert_eq!((lease.attempt, lease.max_attempts), (4, 4));
    engine.run(gateway.report(&lease.token, failed())).unwrap();
    assert!(engine.wait::<Text>(&task).is_err());
    assert_eq!(*engine.transitions(&task).last().unwrap(), "FAILED 4 FINAL");
}

/// A gateway that gives three attempts has lost a lease of the fourth, which another one with more
/// had granted: it is judged by that one's number.
#[test]
fn a_lease_that_expires_is_judged_by_the_gateway_that_granted_it() {
    let engine = TestEngine::new();
    let careful = gateway(&engine, 1);
    let task = engine.submit(TOPIC, &text("work"));
    let lease = lease(&engine, &careful);
    assert_eq!((lease.attempt, lease.max_attempts), (1, 1));
    let other = gateway(&engine, 3);
    drop(careful);
    engine.advance(LEASE_TIME + GONE);
    assert!(ask(&engine, &other, "ann").is_none());
    engine.assert_transitions(&task, ["PROCESSING 1", "FAILED 1 FINAL"]);
}
