//! Operator actions on tasks, with real workers.

use super::*;
use crate::ops::{TaskFilter, TaskStatus};
use crate::testing::TestEngine;
use crate::transport::Outgoing;
use crate::{
    TaskContext, TaskError, TaskId, TaskOutcome, TaskRef, Text, WaitError, WorkerHandle,
    processor_fn,
};
use futures::StreamExt;
use longhaul_core::task::PropertyWriter;
use std::sync::Mutex;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// More than 2 heartbeat intervals of a test engine.
const SILENCE: Duration = Duration::from_secs(4 * 3600);

/// The started attempts: task and attempt number.
type Started = Arc<Mutex<Vec<(String, u32)>>>;

fn text(text: &str) -> Text {
    Text(text.to_owned())
}

/// A worker whose attempts at `hang` never end by themselves, if `hangs`.
fn worker(engine: &TestEngine, hangs: bool, started: &Started) -> WorkerHandle {
    let started = Arc::clone(started);
    let processor = processor_fn(move |task: Text, context: TaskContext| {
        started.lock().unwrap().push((task.0.clone(), context.attempt()));
        async move {
            if hangs && task.0 == "hang" {
                context.cancelled().await;
            }
            Ok::<_, TaskError>(task)
        }
    });
    engine.start(engine.worker("tasks", processor))
}

fn reason_of(engine: &TestEngine, task: &TaskRef) -> (TaskOutcome, String) {
    match engine.wait::<Text>(task) {
        Err(WaitError::Failed { reason, outcome, .. }) => (outcome, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_task_that_nobody_has_claimed_is_deleted_and_never_starts() {
    let engine = TestEngine::new();
    let task = engine.submit("tasks", &text("quick"));
    let client = engine.client().clone().acting_as("ann");
    engine.run(client.queue(&task.topic).delete(task.id, "wrong customer")).unwrap();
    let started = Started::default();
    let _worker = worker(&engine, false, &started);
    let end = reason_of(&engine, &task);
    assert_eq!(end, (TaskOutcome::Cancelled, "Deleted by ann: wrong customer".to_owned()));
    assert!(started.lock().unwrap().is_empty());
    let again = engine.run(client.queue(&task.topic).delete(task.id, ""));
    assert!(matches!(again, Err(ActionError::Over(TaskStatus::Cancelled))), "{again:?}");
    // Much later, the ledger has only a seal of the task.
    engine.advance(20 * SILENCE);
    let again = engine.run(client.queue(&task.topic).delete(task.id, ""));
    assert!(matches!(again, Err(ActionError::Over(_))), "{again:?}");
}

#[test]
fn a_running_task_is_deleted_and_its_processor_stops() {
    let engine = TestEngine::new();
    let started = Started::default();
    let _worker = worker(&engine, true, &started);
    let task = engine.submit("tasks", &text("hang"));
    engine.advance(MINUTE);
    let before = engine.time_passed();
    engine
        .run(engine.client().clone().acting_as("ann").queue(&task.topic).delete(task.id, ""))
        .unwrap();
    let end = reason_of(&engine, &task);
    assert_eq!(end, (TaskOutcome::Cancelled, "Deleted by ann".to_owned()));
    assert!(engine.time_passed() - before < Duration::from_secs(1));
    assert_eq!(*started.lock().unwrap(), [("hang".to_owned(), 1)]);
    engine.assert_transitions(&task, ["PROCESSING 1", "FAILED 1 CANCELLED"]);
}

/// Who had cancelled a task, and why, was in the log of actions alone: the task showed
/// `Process was cancelled: cancelled by client`.
#[test]
fn a_cancelled_task_shows_by_whom_and_why() {
    let engine = TestEngine::new();
    let started = Started::default();
    let client = engine.client().clone().acting_as("ann");
    let waits = engine.submit("tasks", &text("quick"));
    engine.run(client.cancellation(&waits).reason("wrong customer").send()).unwrap();
    let bob = engine.client().clone().acting_as("bob");
    engine.run(bob.cancellation(&waits).reason("me, too").send()).unwrap();
    let first = worker(&engine, true, &started);
    let end = reason_of(&engine, &waits);
    assert_eq!(end, (TaskOutcome::Cancelled, "Cancelled by ann: wrong customer".to_owned()));
    let runs = engine.submit("tasks", &text("hang"));
    engine.advance(MINUTE);
    // A worker that takes the task over has not seen the request live.
    drop(first);
    engine.run(client.cancellation(&runs).kill().send()).unwrap();
    let _second = worker(&engine, true, &started);
    engine.advance(SILENCE);
    let end = reason_of(&engine, &runs);
    assert_eq!(end, (TaskOutcome::Cancelled, "Cancelled by ann".to_owned()));
}

/// The task changes hands between the operator's look at a dashboard and the action.
#[test]
fn what_is_forced_upon_an_epoch_that_is_over_changes_nothing() {
    let engine = TestEngine::new();
    let started = Started::default();
    let first = worker(&engine, true, &started);
    let task = engine.submit("tasks", &text("hang"));
    engine.advance(MINUTE);
    drop(first);
    let _second = worker(&engine, true, &started);
    engine.advance(SILENCE);
    assert_eq!(started.lock().unwrap().len(), 2, "it was taken over");
    for stale in [0, 1, 3] {
        let failed =
            engine.run(engine.client().queue(&task.topic).force_fail(task.id, Some(stale), ""));
        assert!(matches!(failed, Err(ActionError::Stale { current: 2 })), "{failed:?}");
        let released =
            engine.run(engine.client().queue(&task.topic).force_release(task.id, Some(stale), ""));
        assert!(matches!(released, Err(ActionError::Stale { current: 2 })), "{released:?}");
    }
    engine
        .run(engine.client().clone().acting_as("ann").queue(&task.topic).force_fail(
            task.id,
            Some(2),
            "hangs",
        ))
        .unwrap();
    assert_eq!(reason_of(&engine, &task), (TaskOutcome::Final, "Failed by ann: hangs".to_owned()));
    engine.assert_transitions(&task, ["PROCESSING 1", "PROCESSING 2", "FAILED 2 FINAL"]);
}

/// A processor hangs while its worker's heartbeats continue, so no worker would ever take the task
/// over.
#[test]
fn a_task_is_released_from_a_worker_that_hangs_and_runs_elsewhere() {
    let engine = TestEngine::new();
    let started = Started::default();
    let _hanging = worker(&engine, true, &started);
    let task = engine.submit("tasks", &text("hang"));
    engine.advance(MINUTE);
    let _healthy = worker(&engine, false, &started);
    engine.advance(SILENCE);
    assert_eq!(started.lock().unwrap().len(), 1, "nobody takes it by itself");
    engine.run(engine.client().queue(&task.topic).force_release(task.id, None, "hangs")).unwrap();
    engine.advance(SILENCE);
    // The first worker may be the one that runs it again.
    assert!(started.lock().unwrap().len() > 1);
    let released =
        engine.run(engine.client().queue(&task.topic).force_release(task.id, Some(1), ""));
    assert!(released.is_err(), "{released:?}");
}

/// Whoever wanted a task sooner or later had to delete it and submit it anew.
#[test]
fn a_waiting_task_is_started_now_put_off_and_held() {
    let engine = TestEngine::new();
    let day = 24 * SILENCE / 4;
    let started = Started::default();
    let _worker = worker(&engine, false, &started);
    let client = engine.client();
    let queue = client.queue("tasks");
    let delayed =
        |delay| engine.run(client.submission("tasks", &text("quick")).delay(delay).send());
    let begun = || started.lock().unwrap().len();
    let (sooner, later) = (delayed(10 * day).unwrap(), delayed(day).unwrap());
    engine.advance(MINUTE);
    engine.run(queue.reschedule(sooner.id, Duration::ZERO, "it is wanted")).unwrap();
    let before = engine.time_passed();
    assert_eq!(engine.wait::<Text>(&sooner).unwrap(), text("quick"));
    assert!(engine.time_passed() - before < MINUTE, "the worker has its message");
    engine.run(queue.reschedule(later.id, 20 * day, "not yet")).unwrap();
    engine.advance(19 * day);
    assert_eq!(begun(), 1);
    // Held, and let go.
    engine.run(queue.reschedule(later.id, rescheduling::DELAY_MAX, "held")).unwrap();
    engine.advance(9 * day);
    assert_eq!(begun(), 1);
    let info = engine.run(queue.claimed_tasks()).unwrap().get(later.id).unwrap().unwrap();
    assert_eq!((info.attempts, info.status), (0, TaskStatus::Scheduled), "{info:?}");
    engine.run(queue.reschedule(later.id, Duration::ZERO, "")).unwrap();
    assert_eq!(engine.wait::<Text>(&later).unwrap(), text("quick"));
    assert_eq!(*started.lock().unwrap(), [("quick".to_owned(), 1), ("quick".to_owned(), 1)]);
    let over = engine.run(queue.reschedule(later.id, Duration::ZERO, ""));
    assert!(matches!(over, Err(ActionError::Over(TaskStatus::Completed))), "{over:?}");
    let too_late = engine.run(queue.reschedule(later.id, rescheduling::DELAY_MAX + MINUTE, ""));
    assert!(matches!(too_late, Err(ActionError::TooLate)), "{too_late:?}");
}

#[test]
fn the_next_attempt_of_a_failed_task_is_made_at_once_and_counts_as_before() {
    let engine = TestEngine::new();
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let processor = processor_fn(move |task: Text, context: TaskContext| {
        seen.lock().unwrap().push(context.attempt());
        async move {
            match context.attempt() {
                1 => Err(TaskError::retry_after(300 * SILENCE, "later")),
                _ => Ok(task),
            }
        }
    });
    let _worker = engine.start(engine.worker("tasks", processor));
    let task = engine.submit("tasks", &text("quick"));
    engine.advance(MINUTE);
    let queue = engine.client().queue("tasks");
    engine.run(queue.reschedule(task.id, Duration::ZERO, "its server is back")).unwrap();
    let before = engine.time_passed();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("quick"));
    assert!(engine.time_passed() - before < MINUTE);
    assert_eq!(*attempts.lock().unwrap(), [1, 2]);
}

/// Nobody holds its message: the broker gives it to workers only after ten days.
#[test]
fn a_task_that_no_worker_has_been_given_is_started_as_well() {
    let engine = TestEngine::new();
    let client = engine.client();
    let tasks = [10, 20].map(|days| {
        let task = client.submission("tasks", &text("quick")).delay(days * 6 * SILENCE);
        engine.run(task.send()).unwrap()
    });
    engine.run(client.queue("tasks").reschedule(tasks[1].id, Duration::ZERO, "")).unwrap();
    let started = Started::default();
    let _worker = worker(&engine, false, &started);
    engine.wait::<Text>(&tasks[1]).unwrap();
    assert_eq!(started.lock().unwrap().len(), 1);
}

/// What is decided before a task begins is decided of tasks that were never claimed: one with the
/// key of another would have run beside it, one would have overtaken those before it, and one would
/// have been closed by its budget without having run.
#[test]
fn a_task_that_has_not_begun_keeps_its_time_where_more_is_to_be_decided() {
    let engine = TestEngine::new();
    let client = engine.client();
    let queue = client.queue("tasks");
    let day = 6 * SILENCE;
    let delayed = || client.submission("tasks", &text("quick")).delay(day);
    let started_now = |task: &TaskRef| engine.run(queue.reschedule(task.id, Duration::ZERO, ""));
    for kept in [delayed().order_key("a"), delayed().max_total_duration(MINUTE)] {
        let task = engine.run(kept.send()).unwrap();
        let refused = started_now(&task);
        assert!(matches!(refused, Err(ActionError::KeepsTime(_))), "{refused:?}");
    }
    let hang = engine.submit("tasks", &text("hang"));
    let after = engine.run(delayed().after([&hang]).send()).unwrap();
    assert!(matches!(started_now(&after), Err(ActionError::Parked)));
    // Workers bind the messages of other producers when these are delivered.
    let mut properties = PropertyWriter::new();
    properties.put(text::IDEMPOTENCY_KEY, "k");
    properties.put("DELAY", "P1D");
    let properties = properties.finish();
    let topic = client.names("tasks").unwrap().task;
    let message = Outgoing { properties, payload: "quick".into(), ..Outgoing::default() };
    let unbound = engine.run(client.publish_task_to(&topic, -1, message)).unwrap();
    let refused = started_now(&unbound);
    assert!(matches!(refused, Err(ActionError::KeepsTime(_))), "{refused:?}");
    let bound = engine.run(delayed().idempotency_key("l").send()).unwrap();
    started_now(&bound).unwrap();
    let _worker = worker(&engine, false, &Started::default());
    assert_eq!(engine.wait::<Text>(&bound).unwrap(), text("quick"));
}

/// What runs belongs to its worker, and what waits for others to those.
#[test]
fn a_task_that_runs_or_waits_for_others_is_not_rescheduled() {
    let engine = TestEngine::new();
    let _worker = worker(&engine, true, &Started::default());
    let running = engine.submit("tasks", &text("hang"));
    let client = engine.client();
    let parked = client.submission("tasks", &text("quick")).after([&running]);
    let parked = engine.run(parked.send()).unwrap();
    engine.advance(MINUTE);
    let queue = client.queue("tasks");
    let refused =
        |task: &TaskRef| engine.run(queue.reschedule(task.id, Duration::ZERO, "")).unwrap_err();
    assert!(matches!(refused(&running), ActionError::Running));
    assert!(matches!(refused(&parked), ActionError::Parked));
    engine.run(client.cancel(&running)).unwrap();
}

/// Regression: the claim by which an operator releases a task had neither the task's limits nor its
/// line, which other workers read from the last claim.
#[test]
fn a_release_repeats_what_the_last_claim_tells_of_the_message() {
    let engine = TestEngine::new();
    let _hanging = worker(&engine, true, &Started::default());
    let client = engine.client();
    let task = client.submission("tasks", &text("hang")).max_total_duration(10 * SILENCE);
    let task = engine.run(task.send()).unwrap();
    engine.advance(MINUTE);
    engine.run(client.queue(&task.topic).force_release(task.id, Some(1), "hangs")).unwrap();
    let names = client.names(&task.topic).unwrap();
    let log = engine.broker().full_log(&partition(names.ledger, task.id.partition));
    let claims = log.iter().filter_map(|message| match ledger::read(message) {
        Ok(Entry::Claim(claim)) => Some((claim.limits, claim.gives, claim.order)),
        _ => None,
    });
    let [first, release, ..] = claims.collect::<Vec<_>>()[..] else { panic!("two") };
    assert!(first.0.total_ms.is_some() && first.1.is_some(), "{first:?}");
    assert_eq!(release, first);
}

#[test]
fn a_task_that_does_not_exist_cannot_be_acted_upon() {
    let engine = TestEngine::new();
    let first = engine.submit("tasks", &text("quick"));
    let id = TaskId { entry: first.id.entry + 7, ..first.id };
    let unknown = TaskRef { id, ..first };
    let deleted = engine.run(engine.client().queue(&unknown.topic).delete(unknown.id, ""));
    assert!(matches!(deleted, Err(ActionError::NoSuchTask { .. })), "{deleted:?}");
}

/// Only a task that does not run is superseded: the loser of a key may be closed, a running task
/// may not.
#[test]
fn only_a_task_that_has_not_begun_is_superseded() {
    let engine = TestEngine::new();
    let client = engine.client().clone();
    let waiting = engine.submit("tasks", &text("quick"));
    engine.run(client.act(&waiting, OperatorAction::Supersede, None, "")).unwrap();
    let running = engine.submit("tasks", &text("hang"));
    let started = Started::default();
    let _worker = worker(&engine, true, &started);
    engine.advance(MINUTE);
    let refused = engine.run(client.act(&running, OperatorAction::Supersede, None, ""));
    assert!(matches!(refused, Err(ActionError::Stale { current: 1 })), "{refused:?}");
    assert_eq!(*started.lock().unwrap(), [("hang".to_owned(), 1)]);
}

/// Many tasks were submitted by mistake, and one of them runs.
#[test]
fn the_tasks_that_a_filter_takes_are_purged_and_the_others_are_not() {
    let engine = TestEngine::new();
    let client = engine.client().clone().acting_as("ann");
    let submit = |name: &str, tag| {
        let submission = client.submission("tasks", &text(name)).tag(tag);
        engine.run(submission.send()).unwrap()
    };
    let started = Started::default();
    let _worker = worker(&engine, true, &started);
    let running = submit("hang", "test");
    engine.advance(MINUTE);
    let done = submit("quick", "test");
    engine.wait::<Text>(&done).unwrap();
    let delay = Duration::from_secs(24 * 3600);
    let later = client.submission("tasks", &text("quick")).tag("test").delay(delay);
    let later = engine.run(later.send()).unwrap();
    let kept = client.submission("tasks", &text("quick")).tag("mail").delay(delay);
    let kept = engine.run(kept.send()).unwrap();
    let purged: Vec<Purged> = engine.run(async {
        let purge =
            client.queue("tasks").purge(TaskFilter::new().tag("test"), "a mistake").await.unwrap();
        purge.map(Result::unwrap).collect().await
    });
    let mut ids: Vec<TaskId> = purged.iter().map(|(id, _)| *id).collect();
    ids.sort();
    assert_eq!(ids, [running.id, later.id]);
    assert!(purged.iter().all(|(_, outcome)| outcome.is_ok()), "{purged:?}");
    for task in [&running, &later] {
        let end = reason_of(&engine, task);
        assert_eq!(end, (TaskOutcome::Cancelled, "Deleted by ann: a mistake".to_owned()));
    }
    engine.wait::<Text>(&kept).unwrap();
    assert_eq!(started.lock().unwrap().len(), 3, "what was purged was not started");
    let again: Vec<Purged> = engine.run(async {
        let purge = client.queue("tasks").purge(TaskFilter::new(), "").await.unwrap();
        purge.map(Result::unwrap).collect().await
    });
    assert!(again.is_empty(), "{again:?}");
}

/// The log names the operator, the action and the reason.
#[test]
fn what_operators_do_is_listed_and_in_the_history() {
    let engine = TestEngine::new();
    let started = Started::default();
    let _worker = worker(&engine, true, &started);
    let client = engine.client().clone();
    let (ann, bob) = (client.clone().acting_as("ann"), client.acting_as("bob"));
    let tasks = [(); 4].map(|()| engine.submit("tasks", &text("hang")));
    engine.advance(MINUTE);
    engine.run(ann.queue(&tasks[0].topic).delete(tasks[0].id, "one")).unwrap();
    engine.run(bob.queue(&tasks[1].topic).force_fail(tasks[1].id, Some(1), "two")).unwrap();
    engine.run(bob.queue(&tasks[2].topic).force_release(tasks[2].id, Some(1), "three")).unwrap();
    engine.run(ann.cancellation(&tasks[3]).reason("nobody reads it").send()).unwrap();
    engine.advance(MINUTE);
    let letters = engine.run(ann.queue("tasks").dead_letters()).unwrap();
    let replayed = engine.run(letters.replay(&tasks[1], "four")).unwrap();
    let crate::ops::Replayed::Restarted(replay) = replayed else { panic!("{replayed:?}") };
    let log = engine.run(ann.queue("tasks").action_log(100)).unwrap();
    let found: Vec<_> = log
        .iter()
        .map(|it| (it.task.as_ref(), &*it.operator, &*it.action, &*it.reason, it.replay.as_ref()))
        .collect();
    let expected = [
        (Some(&tasks[0]), "ann", "delete", "Deleted by ann: one", None),
        (Some(&tasks[1]), "bob", "force-fail", "Failed by bob: two", None),
        (Some(&tasks[2]), "bob", "force-release", "Released by bob: three", None),
        (Some(&tasks[3]), "ann", "cancel", "nobody reads it", None),
        (Some(&tasks[1]), "ann", "replay", "four", Some(&replay)),
    ];
    assert_eq!(found, expected);
    assert_eq!(engine.run(ann.queue("tasks").action_log(2)).unwrap(), log[3..]);
    let history = engine.run(ann.queue(&tasks[1].topic).history(tasks[1].id)).unwrap();
    let by: Vec<_> = history.entries.iter().filter_map(|entry| entry.operator.as_deref()).collect();
    assert_eq!(by, ["bob"]);
}

/// The log did not show who had paused a queue, changed its limits or removed a schedule.
#[test]
fn changes_of_the_queue_and_of_its_schedules_are_listed() {
    let engine = TestEngine::new();
    let ann = engine.client().clone().acting_as("ann");
    let because = |reason: &str| ann.queue("tasks").with_reason(reason);
    engine.submit("tasks", &text("quick"));
    engine.run(because("full disk").pause()).unwrap();
    engine.run(because("again").pause()).unwrap();
    engine.run(ann.queue("tasks").change(|it| it.limit.max_in_flight = Some(2))).unwrap();
    engine.run(because("more space").resume()).unwrap();
    let expected = [
        (None, "ann", "pause", "full disk"),
        (None, "ann", "update", ""),
        (None, "ann", "resume", "more space"),
    ];
    fn shown(log: &[ActionRecord]) -> Vec<(Option<&str>, &str, &str, &str)> {
        let shown = |it: &'_ ActionRecord| it.task.is_none() && it.worker.is_none();
        assert!(log.iter().all(shown), "{log:?}");
        log.iter()
            .map(|it| (it.schedule.as_deref(), &*it.operator, &*it.action, &*it.reason))
            .collect()
    }
    let log = engine.run(ann.queue("tasks").action_log(100)).unwrap();
    assert_eq!(shown(&log), expected);
    #[cfg(feature = "schedules")]
    {
        let schedules = because("for the report").schedules();
        let task = ann.submission("tasks", &text("quick"));
        let every = crate::Schedule::every(MINUTE);
        engine.run(schedules.create("nightly", every.clone(), task)).unwrap();
        engine.run(schedules.update("nightly", 1, |_| every.paused())).unwrap();
        engine.run(schedules.trigger("nightly")).unwrap();
        engine.run(schedules.resume("nightly")).unwrap();
        engine.run(schedules.pause("nightly")).unwrap();
        engine.run(schedules.delete("nightly")).unwrap();
        let log = engine.run(ann.queue("tasks").action_log(6)).unwrap();
        let verbs = ["create", "update", "trigger", "resume", "pause", "delete"];
        let expected = verbs.map(|verb| (Some("nightly"), "ann", verb, "for the report"));
        assert_eq!(shown(&log), expected);
    }
}

/// A request handler may delete tasks; its futures move between threads.
#[test]
fn what_operators_await_may_be_sent_to_other_threads() {
    fn is_send<T: Send>(_: &T) {}
    let engine = TestEngine::new();
    let task = engine.submit("tasks", &text("quick"));
    let client = engine.client();
    let letters = engine.run(client.queue("tasks").dead_letters()).unwrap();
    is_send(&client.queue(&task.topic).delete(task.id, ""));
    is_send(&letters.replay(&task, ""));
    is_send(&client.queue("tasks").action_log(1));
}
