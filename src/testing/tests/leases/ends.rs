//! The end of tasks that nobody asks for, where only gateways are: no delivery of them has come
//! anywhere.

use super::offers::{gateways, status};
use super::types::{of, submit, submit_as};
use super::*;
use crate::ops::{HistoryEvent, TaskStatus};
use crate::{TaskOutcome, TaskRef};

/// The time within which a requested end is visible to all readers: two places in line of half a
/// second, and the way to the broker and back.
const SOON: Duration = Duration::from_secs(4);

/// How a task has ended that is over soon, for whoever waits.
#[track_caller]
fn end_of(engine: &TestEngine, task: &TaskRef) -> TaskOutcome {
    let wait = engine.client().wait_metadata(task);
    let waited = engine.run(async { tokio::time::timeout(SOON, wait).await });
    let end = waited.unwrap_or_else(|_| panic!("{:?} after {SOON:?}", status(engine, task)));
    end.unwrap().outcome.expect("it did not complete")
}

fn letters(engine: &TestEngine) -> usize {
    let letters = engine.run(engine.client().queue(TOPIC).dead_letters()).unwrap();
    engine.run(letters.list(&DeadLetterFilter::new(), None, 10)).unwrap().letters.len()
}

/// Its message is acknowledged: nobody is given it, nor does any worker see it again.
fn is_gone_for_good(engine: &TestEngine, leases: &Leases, task: &TaskRef) {
    assert!(ask(engine, leases, "ann").is_none());
    let history = engine.run(engine.client().queue(&task.topic).history(task.id)).unwrap();
    let started = |event: &HistoryEvent| {
        matches!(event, HistoryEvent::Claimed { .. } | HistoryEvent::Leased { .. })
    };
    assert!(!history.entries.iter().any(|entry| started(&entry.event)), "{history:?}");
    let verified = engine.run(engine.client().queue(TOPIC).verify()).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.findings);
}

/// Thirteen minutes after it was cancelled a task was still ready: nobody had asked for a lease.
#[test]
fn a_waiting_task_that_is_cancelled_or_killed_ends_though_nobody_asks_for_it() {
    for kills in [false, true] {
        let engine = TestEngine::new();
        let [one, _other] = gateways(&engine);
        let (task, stays) = (submit(&engine, "a"), submit(&engine, "a"));
        engine.advance(Duration::from_secs(60));
        engine.run(async {
            let client = engine.client();
            if kills {
                client.cancellation(&task).kill().send().await
            } else {
                client.cancel(&task).await
            }
            .unwrap();
        });
        assert_eq!(end_of(&engine, &task), TaskOutcome::Cancelled, "killed: {kills}");
        engine.assert_transitions(&task, ["FAILED 0 CANCELLED"]);
        let lease = lease(&engine, &one);
        assert_eq!((lease.task.clone(), lease.attempt), (stays, 1));
        succeed(&engine, &one, &lease.token).unwrap();
        is_gone_for_good(&engine, &one, &task);
    }
}

/// The view said that it had failed, while whoever waited for it went on waiting and no dead letter
/// came.
#[test]
fn what_an_operator_does_to_a_waiting_task_is_shown_though_nobody_asks_for_it() {
    let engine = TestEngine::new();
    let [one, _other] = gateways(&engine);
    let (fails, goes) = (submit(&engine, "a"), submit(&engine, "b"));
    let client = engine.client();
    engine.run(client.queue(&fails.topic).force_fail(fails.id, Some(0), "wrong")).unwrap();
    engine.run(client.queue(&goes.topic).delete(goes.id, "wrong")).unwrap();
    assert_eq!(end_of(&engine, &fails), TaskOutcome::Final);
    assert_eq!(end_of(&engine, &goes), TaskOutcome::Cancelled);
    engine.assert_transitions(&fails, ["FAILED 0 FINAL"]);
    engine.assert_transitions(&goes, ["FAILED 0 CANCELLED"]);
    assert_eq!(letters(&engine), 1);
    for task in [&fails, &goes] {
        is_gone_for_good(&engine, &one, task);
    }
    engine.advance(Duration::from_secs(3 * 3600));
    assert_eq!((letters(&engine), engine.transitions(&fails).len()), (1, 1), "once");
}

#[test]
fn what_was_ended_while_nobody_was_there_is_over_soon_after_a_gateway_comes() {
    let engine = TestEngine::new();
    drop(gateways(&engine));
    let [cancelled, failed] = ["a", "b"].map(|name| submit(&engine, name));
    engine.run(engine.client().cancel(&cancelled)).unwrap();
    engine
        .run(engine.client().queue(&failed.topic).force_fail(failed.id, Some(0), "wrong"))
        .unwrap();
    engine.advance(Duration::from_secs(1800));
    assert_eq!(status(&engine, &cancelled), TaskStatus::Ready, "nobody is there");
    let one = gateway(&engine);
    engine.advance(Duration::from_secs(12));
    assert_eq!(end_of(&engine, &cancelled), TaskOutcome::Cancelled);
    assert_eq!(end_of(&engine, &failed), TaskOutcome::Final);
    assert_eq!(letters(&engine), 1);
    is_gone_for_good(&engine, &one, &cancelled);
}

#[test]
fn a_thousand_waiting_tasks_that_are_cancelled_or_purged_end_together() {
    for (purges, limit) in [(false, 8), (true, 10)] {
        let engine = TestEngine::new();
        let [one, _other] = gateways(&engine);
        let tasks: Vec<_> = (0..1_000).map(|_| submit(&engine, "a")).collect();
        let client = engine.client();
        let queue = &client.queue(&tasks[0].topic);
        let ends = tasks.iter().map(|task| async move {
            if purges { queue.delete(task.id, "test").await } else { client.cancel(task).await }
        });
        engine.run(futures::future::join_all(ends));
        let before = engine.time_passed();
        // For an unclaimed task the view reports a requested end.
        for task in &tasks {
            let end = engine.run(client.wait_metadata(task)).unwrap();
            assert_eq!(end.outcome, Some(TaskOutcome::Cancelled));
        }
        let passed = engine.time_passed() - before;
        assert!(passed < Duration::from_secs(limit), "purged: {purges}, {passed:?}");
        assert!(tasks.iter().all(|task| engine.transitions(task).len() == 1), "each once");
        assert!(ask(&engine, &one, "ann").is_none());
    }
}

/// It waits for its next attempt, and the gateway that had it is gone.
#[test]
fn a_cancelled_retry_ends_soon_at_a_gateway_that_does_not_hold_it() {
    let engine = TestEngine::new();
    let one = gateway(&engine);
    let task = submit(&engine, "a");
    let first = lease(&engine, &one);
    let retry_after = Some(Duration::from_secs(24 * 3600));
    let outcome = LeaseOutcome::Failed { message: "no".to_owned(), fatal: false, retry_after };
    engine.run(one.report(&first.token, outcome)).unwrap();
    let _other = gateway(&engine);
    drop(one);
    engine.advance(Duration::from_secs(60));
    engine.run(engine.client().cancel(&task)).unwrap();
    assert_eq!(end_of(&engine, &task), TaskOutcome::Cancelled);
}

/// A task that waits behind one that runs was ended when a slot became free.
#[test]
fn a_task_that_waits_behind_a_busy_worker_ends_when_it_is_cancelled() {
    let engine = TestEngine::new();
    let processor = processor_fn(async |task: Text, context: TaskContext| -> Outcome {
        context.cancelled().await;
        Ok(task)
    });
    let worker = engine.start(engine.worker(TOPIC, processor).concurrency(1));
    engine.run(worker.ready());
    let tasks = [(); 20].map(|()| submit(&engine, "a"));
    engine.advance(Duration::from_secs(5));
    let [runs, .., last] = &tasks;
    assert_eq!(status(&engine, runs), TaskStatus::Running);
    engine.run(engine.client().cancel(last)).unwrap();
    assert_eq!(end_of(&engine, last), TaskOutcome::Cancelled);
    engine.assert_transitions(last, ["FAILED 0 CANCELLED"]);
}

/// Nothing says that there is such a task but the request: it is looked for, and then left alone.
#[test]
fn a_request_to_end_what_does_not_exist_ends_nothing() {
    let engine = TestEngine::new();
    let [_one, _other] = gateways(&engine);
    let task = submit(&engine, "a");
    let mut unknown = task.clone();
    unknown.id.entry += 5;
    let mut batched = task;
    batched.id.batch_index = Some(0);
    for task in [&unknown, &batched] {
        engine.run(engine.client().cancel(task)).unwrap();
    }
    engine.advance(Duration::from_secs(600));
    for task in [&unknown, &batched] {
        assert!(engine.transitions(task).is_empty());
    }
    // The fifth task submitted after that gets the unknown id, for which an end was requested.
    let next = [(); 5].map(|()| submit(&engine, "a"));
    assert_eq!(next[4].id, unknown.id);
    let request = of(&["a"]).count(10);
    let leased = engine.run(_one.lease(request)).unwrap();
    assert!(!leased.iter().any(|lease| lease.task == unknown), "{leased:?}");
    assert_eq!(end_of(&engine, &unknown), TaskOutcome::Cancelled);
}

/// A scheduled task is kept as an id where it was delivered.
#[test]
fn a_scheduled_task_ends_when_it_is_cancelled() {
    let engine = TestEngine::new();
    let [one, _other] = gateways(&engine);
    let later = std::time::UNIX_EPOCH + Duration::from_millis(engine.now_ms() + 3_600_000);
    let task = submit_as(&engine, "a", |submission| submission.scheduled_at(later));
    assert!(ask(&engine, &one, "ann").is_none());
    engine.run(engine.client().cancel(&task)).unwrap();
    assert_eq!(end_of(&engine, &task), TaskOutcome::Cancelled);
    engine.advance(Duration::from_secs(3 * 3_600));
    engine.assert_transitions(&task, ["FAILED 0 CANCELLED"]);
    is_gone_for_good(&engine, &one, &task);
}

/// An operator released a task that ran, and from then on counted as a worker: what it ended
/// afterwards was left to it to show, for more than an hour.
#[test]
fn what_an_operator_ends_is_shown_though_it_has_released_a_task_before() {
    let engine = TestEngine::new();
    let [one, _other] = gateways(&engine);
    let (_runs, waits) = (submit(&engine, "a"), submit(&engine, "a"));
    let lease = lease(&engine, &one);
    let client = engine.client();
    engine
        .run(client.queue(&lease.task.topic).force_release(
            lease.task.id,
            Some(lease.token.epoch()),
            "stuck",
        ))
        .unwrap();
    engine.advance(Duration::from_secs(1));
    engine.run(client.queue(&waits.topic).delete(waits.id, "not wanted")).unwrap();
    assert_eq!(end_of(&engine, &waits), TaskOutcome::Cancelled);
}
