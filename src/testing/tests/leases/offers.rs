//! Tasks that nobody asks for where they were delivered, and that others take up.

use super::types::{ask_for, of, submit, submit_as};
use super::*;
use crate::TaskRef;
use crate::ops::{HistoryEvent, TaskStatus};
use crate::transport::{Outgoing, TopicPartition};
use std::collections::BTreeSet;
use std::future::Future;

/// The time within which other gateways have the tasks that they take up. The heartbeats of these
/// tests come every ten seconds.
const SOON: Duration = Duration::from_millis(500);

/// Two gateways that know of each other.
pub(super) fn gateways(engine: &TestEngine) -> [Leases; 2] {
    let both = [gateway(engine), gateway(engine)];
    engine.advance(Duration::from_secs(20));
    both
}

/// Does something while somebody asks this gateway for tasks of a type of which there are none.
fn beside_a_vain_request<T>(
    engine: &TestEngine,
    leases: &Leases,
    work: impl Future<Output = T>,
) -> T {
    engine.run(async {
        let in_vain = async {
            loop {
                let found = leases.lease(of(&["none"])).await.unwrap();
                assert!(found.is_empty(), "there are none: {found:?}");
            }
        };
        tokio::select! {
            never = in_vain => never,
            done = work => done,
        }
    })
}

/// A task that the one gateway has, and is not asked for.
fn offered(engine: &TestEngine, by: &Leases, task_type: &str) -> TaskRef {
    let task = submit(engine, task_type);
    beside_a_vain_request(engine, by, async { tokio::time::sleep(SOON).await });
    task
}

fn events(engine: &TestEngine, task: &TaskRef) -> Vec<HistoryEvent> {
    let history = engine.run(engine.client().queue(&task.topic).history(task.id)).unwrap();
    history.entries.into_iter().map(|entry| entry.event).collect()
}

pub(super) fn status(engine: &TestEngine, task: &TaskRef) -> TaskStatus {
    let view = engine.run(engine.client().queue(TOPIC).tasks()).unwrap();
    view.get(task.id).unwrap().unwrap().status
}

/// Tasks that a producer has put into one message.
fn submit_batch(engine: &TestEngine, count: usize) {
    let at = TopicPartition { topic: names(TOPIC).task, partition: -1 };
    let message = Outgoing { payload: "work".into(), ..Outgoing::default() };
    engine.broker().publish_batch(&at, vec![message; count]);
}

/// A gateway that had leased one task of a batch, and was asked for no other one, looked at the rest
/// without end, and did nothing else any more.
#[test]
fn a_batch_of_which_one_task_is_leased_waits_in_peace() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    engine.advance(Duration::from_secs(20));
    submit_batch(&engine, 3);
    let held = lease(&engine, &leases);
    engine.advance(Duration::from_secs(5));
    let next = lease(&engine, &leases);
    engine.advance(Duration::from_secs(5));
    for lease in [held, next, lease(&engine, &leases)] {
        succeed(&engine, &leases, &lease.token).unwrap();
    }
}

/// A gateway that had leased one task of a batch kept the others, although another gateway was
/// asked for tasks.
#[test]
fn the_rest_of_a_batch_is_leased_by_whichever_gateway_is_asked() {
    let engine = TestEngine::new();
    let both = gateways(&engine);
    submit_batch(&engine, 100);
    let mut held = BTreeSet::new();
    for gateway in both.iter().cycle().take(100) {
        held.insert(soon(&engine, || lease(&engine, gateway)).task.id);
    }
    assert_eq!(held.len(), 100);
}

fn soon<T>(engine: &TestEngine, what: impl FnOnce() -> T) -> T {
    let before = engine.time_passed();
    let done = what();
    let passed = engine.time_passed() - before;
    assert!(passed < SOON, "{passed:?}");
    done
}

#[test]
fn an_offered_task_is_ready_shows_nothing_and_goes_to_whoever_asks_first() {
    let engine = TestEngine::new();
    let [one, other] = gateways(&engine);
    let task = offered(&engine, &one, "a");
    assert_eq!(events(&engine, &task), [HistoryEvent::Offered]);
    assert_eq!((status(&engine, &task), engine.transitions(&task).len()), (TaskStatus::Ready, 0));
    let lease = soon(&engine, || ask_for(&engine, &other, &["a"])).unwrap();
    assert_eq!((lease.task.clone(), lease.attempt), (task.clone(), 1));
    succeed(&engine, &other, &lease.token).unwrap();
    engine.wait::<Text>(&task).unwrap();
    engine.assert_transitions(&task, ["PROCESSING 1", "COMPLETED 1"]);

    let next = offered(&engine, &one, "a");
    let lease = soon(&engine, || ask_for(&engine, &one, &["a"])).unwrap();
    assert_eq!((lease.task, lease.attempt), (next, 1));
}

#[test]
fn what_a_gateway_is_not_asked_for_a_worker_does_at_once() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let processor = processor_fn(async |task: Text, _: TaskContext| -> Outcome { Ok(task) });
    let worker = engine.start(engine.worker(TOPIC, processor).concurrency(2));
    engine.run(worker.ready());
    engine.advance(Duration::from_secs(20));
    let tasks: Vec<_> = (0..100).map(|_| submit(&engine, "a")).collect();
    let before = engine.time_passed();
    beside_a_vain_request(&engine, &leases, async {
        for task in &tasks {
            engine.client().wait::<Text>(task).await.unwrap();
        }
    });
    let passed = engine.time_passed() - before;
    assert!(passed < Duration::from_secs(3), "{passed:?}");
}

/// It failed at the one gateway, and the other one waited for two heartbeats before it took it up.
#[test]
fn a_retry_that_is_due_reaches_the_gateway_that_is_asked_for_it() {
    let engine = TestEngine::new();
    let [one, other] = gateways(&engine);
    let task = submit(&engine, "a");
    let lease = ask_for(&engine, &one, &["a"]).unwrap();
    engine.run(one.report(&lease.token, failed())).unwrap();
    let again = beside_a_vain_request(&engine, &one, async {
        let found = other.lease(of(&["a"]).wait(Duration::from_secs(60))).await.unwrap();
        (found, engine.time_passed())
    });
    let [lease] = &again.0[..] else { panic!("one lease: {again:?}") };
    assert_eq!((lease.task.clone(), lease.attempt), (task.clone(), 2));
    assert!(events(&engine, &task).contains(&HistoryEvent::Offered));
    succeed(&engine, &other, &lease.token).unwrap();
    engine.wait::<Text>(&task).unwrap();
    let verified = engine.run(engine.client().queue(TOPIC).verify()).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.findings);
}

#[test]
fn an_offered_task_outlives_the_gateway_that_had_it() {
    let engine = TestEngine::new();
    let [one, other] = gateways(&engine);
    let task = offered(&engine, &one, "a");
    drop(one);
    let lease = soon(&engine, || ask_for(&engine, &other, &["a"])).unwrap();
    assert_eq!((lease.task, lease.attempt), (task, 1));
}

#[test]
fn an_offered_task_is_cancelled_expires_and_has_its_whole_budget() {
    let engine = TestEngine::new();
    let [one, other] = gateways(&engine);
    let task = offered(&engine, &one, "a");
    soon(&engine, || {
        engine.run(engine.client().cancel(&task)).unwrap();
        assert!(engine.wait::<Text>(&task).is_err());
    });
    assert_eq!(status(&engine, &task), TaskStatus::Cancelled);

    let at = |time: Duration| std::time::UNIX_EPOCH + Duration::from_millis(engine.now_ms()) + time;
    let ends = at(Duration::from_secs(5));
    let task = submit_as(&engine, "a", |it| it.expires_at(ends));
    beside_a_vain_request(&engine, &one, async {
        tokio::time::sleep(Duration::from_secs(6)).await
    });
    assert_eq!(events(&engine, &task)[0], HistoryEvent::Offered);
    assert_eq!(status(&engine, &task), TaskStatus::Expired);

    let budget = Duration::from_secs(60);
    let task = submit_as(&engine, "a", |it| it.max_total_duration(budget));
    beside_a_vain_request(&engine, &one, async { tokio::time::sleep(2 * budget).await });
    let lease = soon(&engine, || ask_for(&engine, &other, &["a"])).unwrap();
    assert_eq!((lease.task, lease.attempt), (task.clone(), 1));
    succeed(&engine, &other, &lease.token).unwrap();
    engine.wait::<Text>(&task).unwrap();
}

/// It is parked until the others are over, and only then offered.
#[test]
fn a_task_that_waits_for_another_one_is_offered_when_that_is_over() {
    let engine = TestEngine::new();
    let [one, other] = gateways(&engine);
    let first = submit(&engine, "b");
    let then = submit_as(&engine, "a", |it| it.after([&first]));
    beside_a_vain_request(&engine, &one, async { tokio::time::sleep(SOON).await });
    assert_eq!(status(&engine, &then), TaskStatus::Waiting);
    assert!(!events(&engine, &then).contains(&HistoryEvent::Offered));
    let lease = ask_for(&engine, &other, &["b"]).unwrap();
    succeed(&engine, &other, &lease.token).unwrap();
    beside_a_vain_request(&engine, &one, async { tokio::time::sleep(SOON).await });
    let lease = soon(&engine, || ask_for(&engine, &other, &["a"])).unwrap();
    assert_eq!((lease.task, lease.attempt), (then, 1));
}
