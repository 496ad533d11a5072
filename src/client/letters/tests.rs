//! Dead letters with real workers, and their recovery from a crash at each step.

use super::*;
use crate::ops::HistoryEvent;
use crate::testing::TestEngine;
use crate::transport::Outgoing;
use crate::{
    DeadLetterPolicy, Priority, Submission, TaskContext, TaskError, TaskRef, Text, WaitError,
    WorkerHandle, processor_fn,
};
use longhaul_core::task::text::{IDEMPOTENCY_KEY, REPLAY_OF};
use std::collections::BTreeSet;
use std::sync::Mutex as Lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

const HOUR: Duration = Duration::from_secs(3600);

/// Whether tasks fail, and the log of task starts.
#[derive(Clone, Default)]
struct World {
    healed: Arc<AtomicBool>,
    started: Arc<Lock<Vec<String>>>,
}

impl World {
    fn worker(&self, engine: &TestEngine, policy: DeadLetterPolicy) -> WorkerHandle {
        let Self { healed, started } = self.clone();
        let processor = processor_fn(move |task: Text, _: TaskContext| {
            started.lock().unwrap().push(task.0.clone());
            let healed = healed.load(Ordering::Relaxed);
            async move {
                if healed { Ok(task) } else { Err(TaskError::fatal(format!("no {}", task.0))) }
            }
        });
        engine.start(engine.worker("tasks", processor).dead_letters(policy))
    }

    fn starts_of(&self, task: &str) -> usize {
        self.started.lock().unwrap().iter().filter(|it| *it == task).count()
    }
}

fn text(text: &str) -> Text {
    Text(text.to_owned())
}

fn fails(engine: &TestEngine, task: &TaskRef) {
    let end = engine.wait::<Text>(task);
    assert!(matches!(end, Err(WaitError::Failed { .. })), "{end:?}");
}

fn listed(engine: &TestEngine, filter: &DeadLetterFilter) -> Vec<TaskId> {
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    let page = engine.run(letters.list(filter, None, 100)).unwrap();
    assert_eq!(page.next, None);
    page.letters.iter().map(|letter| letter.task.id).collect()
}

fn all(engine: &TestEngine) -> Vec<TaskId> {
    listed(engine, &DeadLetterFilter::new())
}

/// The task that a replay submitted.
fn restarted(replayed: Replayed) -> TaskRef {
    let Replayed::Restarted(task) = replayed else { panic!("{replayed:?}") };
    task
}

#[test]
fn a_letter_is_listed_shown_and_replayed_once() {
    let (engine, world) = (TestEngine::new(), World::default());
    let _worker = world.worker(&engine, DeadLetterPolicy::new());
    let client = engine.client().clone().acting_as("ann");
    let submission = client.submission("tasks", &text("page")).tag("eu").key("order-1");
    let task = engine.run(submission.property("customer", "7").send()).unwrap();
    fails(&engine, &task);
    let letters = engine.run(client.queue("tasks").dead_letters()).unwrap();
    assert_eq!(listed(&engine, &DeadLetterFilter::new().reason("no page").tag("eu")), [task.id]);
    for none in [
        DeadLetterFilter::new().reason("other"),
        DeadLetterFilter::new().tag("us"),
        DeadLetterFilter::new().key("order-2"),
        DeadLetterFilter::new().task_type("mail"),
        DeadLetterFilter::new().published(0..=1),
    ] {
        assert_eq!(listed(&engine, &none), [], "{none:?}");
    }
    let shown = engine.run(letters.show(&task)).unwrap().unwrap();
    assert_eq!((shown.reason.as_str(), shown.attempts), ("Processing error: no page", 1));
    assert_eq!(shown.cause, crate::FailureCause::Error);
    assert_eq!(shown.payload.as_deref(), Some(&b"page"[..]));

    world.healed.store(true, Ordering::Relaxed);
    let replayed = restarted(engine.run(letters.replay(&task, "is back")).unwrap());
    assert_ne!(replayed, task);
    assert_eq!(engine.wait::<Text>(&replayed).unwrap(), text("page"));
    assert_eq!((all(&engine), world.starts_of("page")), (vec![], 2));
    let again = restarted(engine.run(letters.replay(&task, "")).unwrap());
    engine.advance(HOUR);
    assert_eq!((again, world.starts_of("page")), (replayed.clone(), 2));
    let alive = engine.run(letters.replay(&replayed, "")).unwrap();
    assert_eq!(alive, Replayed::NotDead);
    let unknown = TaskRef { id: TaskId { entry: 999, ..task.id }, ..task };
    assert_eq!(engine.run(letters.replay(&unknown, "")).unwrap(), Replayed::NotFound);
}

/// A misspelt payload or too small a limit was submitted anew by hand: nothing tied the new task to
/// the old one, and two operators made two.
#[test]
fn a_replay_makes_changes_once() {
    let (engine, world) = (TestEngine::new(), World::default());
    let worker = world.worker(&engine, DeadLetterPolicy::new());
    let submission = engine.client().submission("tasks", &text("paeg"));
    let task = engine.run(submission.max_attempts(2).tag("eu").property("customer", "7").send());
    let task = task.unwrap();
    fails(&engine, &task);
    world.healed.store(true, Ordering::Relaxed);
    let queue = engine.client().queue("tasks");
    let letters = engine.run(queue.dead_letters()).unwrap();
    let page = |it: Submission| it.payload(&text("page")).max_attempts(7).tag("again");
    let refused = engine.run(letters.replay_with(&task, "", |it| page(it).max_attempts(0)));
    assert!(matches!(refused, Err(ActionError::Submit(_))), "{refused:?}");
    let new = restarted(engine.run(letters.replay_with(&task, "spelling", page)).unwrap());
    assert_eq!(engine.wait::<Text>(&new).unwrap(), text("page"));
    let properties = engine.run(queue.submitted(new.id)).unwrap().unwrap().properties;
    let of = |name: &str| properties.get(name).map(String::as_str);
    assert_eq!((of("MAX_ATTEMPTS"), of("TAGS")), (Some("7"), Some("eu,again")));
    assert_eq!((of("customer"), of(REPLAY_OF)), (Some("7"), Some(&*task.id.to_string())));
    let other = |it: Submission| it.payload(&text("leaf")).property(IDEMPOTENCY_KEY, "own");
    let again = engine.run(letters.replay_with(&task, "", other)).unwrap();
    assert_eq!(again, Replayed::RestartedBefore(new.clone()), "this change was not made");
    assert_eq!(restarted(engine.run(letters.replay(&task, "")).unwrap()), new);
    assert_eq!((world.starts_of("page"), world.starts_of("leaf")), (1, 0));

    engine.run(worker.drain(HOUR)).unwrap();
    world.healed.store(false, Ordering::Relaxed);
    let _worker = world.worker(&engine, DeadLetterPolicy::new());
    let task = engine.submit("tasks", &text("other"));
    fails(&engine, &task);
    let high = |it: Submission| it.priority(Priority::High).property(IDEMPOTENCY_KEY, "own");
    let all = letters.replay_all_with(DeadLetterFilter::new(), "", high);
    let all: Vec<_> = engine.run(all.try_collect()).unwrap();
    let [(of, Replayed::Restarted(new))] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((of, Priority::of_topic(&new.topic).1), (&task, Priority::High));
    assert_eq!(restarted(engine.run(letters.replay(&task, "")).unwrap()), *new, "one task");
}

/// A replay submits the task and then marks the letter. A crash in between leaves a letter that
/// looks as if it was never replayed.
#[test]
fn a_replay_that_died_before_the_mark_runs_nothing_twice() {
    let (engine, world) = (TestEngine::new(), World::default());
    let _worker = world.worker(&engine, DeadLetterPolicy::new());
    let task = engine.submit("tasks", &text("page"));
    fails(&engine, &task);
    world.healed.store(true, Ordering::Relaxed);
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    // Everything before the mark.
    let (letter, _) = engine.run(letters.find(task.id)).unwrap().unwrap();
    let first = engine.run(letters.submit_replay(letter, None)).unwrap();
    assert_eq!(all(&engine), [task.id], "the letter is there as before");
    engine.advance(HOUR);
    let all_replayed =
        engine.run(letters.replay_all(DeadLetterFilter::new(), "").collect::<Vec<_>>());
    let [Ok((of, Replayed::Restarted(again)))] = all_replayed.as_slice() else {
        panic!("{all_replayed:?}")
    };
    assert_eq!((of, again), (&task, &first));
    assert_eq!((world.starts_of("page"), all(&engine)), (2, vec![]));
}

#[test]
fn many_are_replayed_by_filter_and_what_dies_again_names_the_first() {
    let (engine, world) = (TestEngine::new(), World::default());
    let _worker = world.worker(&engine, DeadLetterPolicy::new());
    let tasks: Vec<TaskRef> = (0..30)
        .map(|number| engine.submit("tasks", &text(&format!("page {}", number % 3))))
        .collect();
    tasks.iter().for_each(|task| fails(&engine, task));
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    let filter = DeadLetterFilter::new().reason("page 1");
    let outcomes = engine.run(letters.replay_all(filter, "once more").collect::<Vec<_>>());
    assert_eq!(outcomes.len(), 10);
    for outcome in outcomes {
        let (old, replayed) = outcome.unwrap();
        let new = restarted(replayed);
        fails(&engine, &new);
        let letter = engine.run(letters.show(&new)).unwrap().unwrap();
        assert_eq!(letter.replay_of, Some(old.id));
    }
    assert_eq!(all(&engine).len(), 30, "ten of them are new");
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = engine.run(letters.list(&DeadLetterFilter::new(), after, 7)).unwrap();
        pages.extend(page.letters.into_iter().map(|letter| letter.task.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, all(&engine));
    // Regression: a page behind the last letter, as a made-up cursor asks for, waited for ever.
    let behind = Some(Position { ledger: u64::from(u32::MAX), entry: 0, batch_index: None });
    let page = engine.run(letters.list(&DeadLetterFilter::new(), behind, 7)).unwrap();
    assert!(page.letters.is_empty() && page.next.is_none());
    let purged = engine.run(
        letters.purge(DeadLetterFilter::new().reason("page 0"), "old").try_collect::<Vec<_>>(),
    );
    assert_eq!(purged.unwrap().len(), 10);
    assert_eq!(all(&engine).len(), 20);
    let purged = engine.run(letters.replay(&tasks[0], "")).unwrap();
    assert_eq!(purged, Replayed::NotFound);
}

#[test]
fn one_letter_is_purged_by_the_name_of_its_task() {
    let (engine, world) = (TestEngine::new(), World::default());
    let _worker = world.worker(&engine, DeadLetterPolicy::new());
    let tasks = ["page", "other"].map(|it| engine.submit("tasks", &text(it)));
    tasks.iter().for_each(|task| fails(&engine, task));
    let letters =
        engine.run(engine.client().clone().acting_as("ann").queue("tasks").dead_letters()).unwrap();
    assert!(engine.run(letters.purge_one(&tasks[0], "nobody wants it")).unwrap());
    assert_eq!(all(&engine), [tasks[1].id]);
    assert!(!engine.run(letters.purge_one(&tasks[0], "once more")).unwrap());
    let actions = engine.run(engine.client().queue("tasks").action_log(10)).unwrap();
    let told: Vec<_> = actions.iter().map(|it| (it.task.as_ref(), &*it.operator)).collect();
    assert_eq!(told, [(Some(&tasks[0]), "ann")], "{actions:?}");
}

#[test]
fn a_letter_whose_dedupe_key_another_task_holds_stays() {
    let (engine, world) = (TestEngine::new(), World::default());
    let _worker = world.worker(&engine, DeadLetterPolicy::new());
    let submit = |delay| {
        let submission =
            engine.client().submission("tasks", &text("page")).dedupe_key("k").delay(delay);
        engine.run(submission.send()).unwrap()
    };
    let dead = submit(Duration::ZERO);
    fails(&engine, &dead);
    let holder = submit(24 * HOUR);
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    let replayed = engine.run(letters.replay(&dead, "")).unwrap();
    assert_eq!(replayed, Replayed::DedupeConflict(holder.clone()));
    assert_eq!(all(&engine), [dead.id]);
    engine.run(engine.client().cancel(&holder)).unwrap();
    engine.advance(25 * HOUR);
    restarted(engine.run(letters.replay(&dead, "")).unwrap());
}

#[test]
fn without_dead_letters_a_task_fails_all_the_same() {
    let (engine, world) = (TestEngine::new(), World::default());
    let worker = world.worker(&engine, DeadLetterPolicy::off());
    let task = engine.submit("tasks", &text("page"));
    fails(&engine, &task);
    engine.advance(10 * HOUR);
    assert_eq!(all(&engine), []);
    assert_eq!(worker.stats().violations, 0);
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    assert_eq!(engine.run(letters.replay(&task, "")).unwrap(), Replayed::NotFound);
}

#[test]
fn an_expired_task_gets_a_letter_if_the_queue_says_so() {
    for expired in [false, true] {
        let (engine, world) = (TestEngine::new(), World::default());
        let submission = engine.client().submission("tasks", &text("page"));
        let now = UNIX_EPOCH + Duration::from_millis(engine.now_ms());
        let task = engine.run(submission.expires_at(now + HOUR).send()).unwrap();
        engine.advance(2 * HOUR);
        let worker = world.worker(&engine, DeadLetterPolicy::new().expired(expired));
        fails(&engine, &task);
        let expected = if expired { vec![task.id] } else { vec![] };
        assert_eq!(all(&engine), expected);
        engine.advance(10 * HOUR);
        assert_eq!((worker.stats().violations, world.starts_of("page")), (0, 0));
        if expired {
            world.healed.store(true, Ordering::Relaxed);
            let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
            let replayed = restarted(engine.run(letters.replay(&task, "")).unwrap());
            assert_eq!(engine.wait::<Text>(&replayed).unwrap(), text("page"));
        }
    }
}

#[test]
fn letters_go_by_number_and_by_time() {
    let (engine, world) = (TestEngine::new(), World::default());
    let policy = DeadLetterPolicy::new().max_size(3).retention(24 * HOUR);
    let _worker = world.worker(&engine, policy);
    let tasks: Vec<TaskRef> =
        (0..5).map(|number| engine.submit("tasks", &text(&format!("page {number}")))).collect();
    tasks.iter().for_each(|task| fails(&engine, task));
    engine.advance(HOUR);
    let left: BTreeSet<TaskId> = all(&engine).into_iter().collect();
    assert_eq!(left.len(), 3);
    engine.advance(24 * HOUR);
    assert_eq!(all(&engine), []);
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A topic of the queue.
fn topic(engine: &TestEngine, of: fn(&TopicNames) -> &String) -> TopicPartition {
    partition(of(&engine.client().names("tasks").unwrap()).clone(), -1)
}

/// The number of letters stored on the topic, repeated ones included.
fn stored(engine: &TestEngine) -> usize {
    let letters = topic(engine, |names| &names.dead_letters);
    engine.run(async { engine.broker().full_log(&letters).len() })
}

fn is_on_ledger(engine: &TestEngine, task: &TaskRef) -> bool {
    let history = engine.run(engine.client().queue(&task.topic).history(task.id)).unwrap();
    history.entries.iter().any(|entry| matches!(entry.event, HistoryEvent::Ended { .. }))
}

/// A worker dies after the ledger entry of a final failure, before its dead letter is stored. The
/// end is shown only after another worker has stored the letter.
#[test]
fn a_worker_that_dies_before_the_letter_leaves_it_to_another() {
    let (engine, world) = (TestEngine::new(), World::default());
    let letters = topic(&engine, |names| &names.dead_letters);
    engine.run(async {
        engine.broker().create_topic(&letters.topic, None, false);
        engine.broker().stall_publishes(&letters, DAY);
    });
    let first = world.worker(&engine, DeadLetterPolicy::new());
    let task = engine.submit("tasks", &text("page"));
    engine.advance(HOUR);
    assert!(is_on_ledger(&engine, &task));
    drop(first);
    let _second = world.worker(&engine, DeadLetterPolicy::new());
    engine.advance(5 * HOUR);
    assert_eq!(
        (stored(&engine), engine.transitions(&task).len()),
        (0, 1),
        "it is shown as running"
    );
    fails(&engine, &task);
    assert_eq!((all(&engine), world.starts_of("page")), (vec![task.id], 1));
    engine.assert_transitions(&task, ["PROCESSING 1", "FAILED 1 FINAL"]);
}

/// The worker dies after the letter is stored, before the end is shown. The next worker cannot know
/// and stores another letter, which counts as the same one.
#[test]
fn a_worker_that_dies_behind_the_letter_leaves_one_letter_that_may_be_stored_twice() {
    let (engine, world) = (TestEngine::new(), World::default());
    let first = world.worker(&engine, DeadLetterPolicy::new());
    let shown = topic(&engine, |names| &names.metadata);
    engine.advance(HOUR);
    engine.run(async { engine.broker().stall_publishes(&shown, DAY) });
    let task = engine.submit("tasks", &text("page"));
    engine.advance(HOUR);
    assert_eq!((stored(&engine), engine.transitions(&task).len()), (1, 0));
    drop(first);
    let _second = world.worker(&engine, DeadLetterPolicy::new());
    fails(&engine, &task);
    assert_eq!((stored(&engine), all(&engine), world.starts_of("page")), (2, vec![task.id], 1));
}

/// The worker dies after the end is shown, before the task is acknowledged.
#[test]
fn a_worker_that_dies_before_the_ack_leaves_nothing_to_be_run() {
    let (engine, world) = (TestEngine::new(), World::default());
    let first = world.worker(&engine, DeadLetterPolicy::new());
    let tasks = topic(&engine, |names| &names.task);
    engine.advance(HOUR);
    engine.run(async { engine.broker().lose_acks(&tasks, 1) });
    let task = engine.submit("tasks", &text("page"));
    fails(&engine, &task);
    drop(first);
    let _second = world.worker(&engine, DeadLetterPolicy::new());
    engine.advance(3 * DAY);
    assert_eq!((all(&engine), world.starts_of("page")), (vec![task.id], 1));
    let backlog =
        engine.run(async { engine.broker().backlog(&tasks, crate::topics::DEFAULT_SUBSCRIPTION) });
    assert_eq!(backlog, []);
}

/// A slow worker's letter comes after the first one was replayed. It looks new, and is not run
/// again.
#[test]
fn a_letter_that_comes_behind_its_mark_is_replayed_as_the_same_task() {
    let (engine, world) = (TestEngine::new(), World::default());
    let _worker = world.worker(&engine, DeadLetterPolicy::new());
    let task = engine.submit("tasks", &text("page"));
    fails(&engine, &task);
    world.healed.store(true, Ordering::Relaxed);
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    let first = restarted(engine.run(letters.replay(&task, "")).unwrap());
    engine.run(async {
        let late = engine.broker().full_log(&letters.place).remove(0);
        let Message { key, properties, payload, .. } = late;
        let late = Outgoing { key, properties, payload, ..Outgoing::default() };
        engine.broker().publish(&letters.place, late)
    });
    assert_eq!(all(&engine), [task.id]);
    assert_eq!(restarted(engine.run(letters.replay(&task, "")).unwrap()), first);
    engine.advance(HOUR);
    assert_eq!((all(&engine), world.starts_of("page")), (vec![], 2));
}

/// Handled letters and their marks are acknowledged on the subscription that keeps them, so that
/// the broker may delete them.
#[test]
fn handled_letters_are_acknowledged() {
    let (engine, world) = (TestEngine::new(), World::default());
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    engine.run(async {
        engine.broker().create_topic(&letters.place.topic, None, false);
        engine.broker().create_subscription(&letters.place, DEAD_LETTER_SUBSCRIPTION);
    });
    let _worker = world.worker(&engine, DeadLetterPolicy::new());
    let tasks = [(); 2].map(|()| engine.submit("tasks", &text("page")));
    tasks.iter().for_each(|task| fails(&engine, task));
    let backlog = || {
        engine
            .run(async { engine.broker().backlog(&letters.place, DEAD_LETTER_SUBSCRIPTION).len() })
    };
    assert_eq!(backlog(), 2);
    restarted(engine.run(letters.replay(&tasks[0], "")).unwrap());
    engine.advance(HOUR);
    let purged = engine.run(letters.purge(DeadLetterFilter::new(), "").try_collect::<Vec<_>>());
    assert_eq!(purged.unwrap().len(), 2, "the other one, and the replay that failed again");
    assert_eq!(backlog(), 0);
}

/// A task of high priority must not come back with normal priority.
#[test]
fn a_replay_has_the_priority_of_the_old_task() {
    let (engine, world) = (TestEngine::new(), World::default());
    let processor =
        processor_fn(async |_: Text, _: TaskContext| Err::<Text, _>(TaskError::fatal("no")));
    let _worker = engine.start(engine.worker("tasks", processor).levels(crate::Levels::strict()));
    let submission = engine.client().submission("tasks", &text("page"));
    let task = engine.run(submission.priority(Priority::High).send()).unwrap();
    fails(&engine, &task);
    assert_eq!((all(&engine), world.starts_of("page")), (vec![task.id], 0));
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    let replayed = restarted(engine.run(letters.replay(&task, "")).unwrap());
    assert_eq!(replayed.topic, task.topic);
    fails(&engine, &replayed);
}

/// `purge` on the level `tasks-high` marked nothing, and on `tasks` it named the tasks of its levels
/// as if they were those of normal priority, as did `replay_all` and the log of actions.
#[test]
fn letters_of_a_level_are_those_of_its_tasks_and_are_named_so() {
    let engine = TestEngine::new();
    let processor =
        processor_fn(async |_: Text, _: TaskContext| Err::<Text, _>(TaskError::fatal("no")));
    let _worker = engine.start(engine.worker("tasks", processor).levels(crate::Levels::strict()));
    let tasks = [Priority::High, Priority::Normal, Priority::Low].map(|level| {
        let submission = engine.client().submission("tasks", &text("page")).priority(level);
        engine.run(submission.send()).unwrap()
    });
    tasks.iter().for_each(|task| fails(&engine, task));
    let letters = |queue: &str| engine.run(engine.client().queue(queue).dead_letters()).unwrap();
    let every = DeadLetterFilter::new;
    let purge = letters(&tasks[0].topic).purge(every(), "they are late");
    assert_eq!(engine.run(purge.try_collect::<Vec<_>>()).unwrap(), tasks[..1]);
    assert_eq!(all(&engine), [tasks[1].id, tasks[2].id]);
    assert!(engine.run(letters(&tasks[2].topic).show(&tasks[2])).unwrap().is_some());
    let replays = letters("tasks").replay_all(every(), "again");
    let replays = engine.run(replays.try_collect::<Vec<_>>()).unwrap();
    let replayed: Vec<_> = replays.iter().map(|(task, _)| task.clone()).collect();
    assert_eq!(replayed, tasks[1..]);
    let log = engine.run(engine.client().queue("tasks").action_log(10)).unwrap();
    let mut told: Vec<_> = log.into_iter().map(|it| (it.task.unwrap(), it.replay)).collect();
    told.sort();
    let mut expected = vec![(tasks[0].clone(), None)];
    for (task, replayed) in replays {
        expected.push((task, Some(restarted(replayed))));
    }
    expected.sort();
    assert_eq!(told, expected);
}

/// What a worker does by itself is not on the register of a level, but on the queue's: settings of
/// `tasks-high` were stored, and had no effect.
#[test]
fn settings_of_a_level_are_those_of_its_queue_and_are_changed_there() {
    let engine = TestEngine::new();
    let processor = processor_fn(async |task: Text, _: TaskContext| Ok(task));
    let _worker = engine.start(engine.worker("tasks", processor).levels(crate::Levels::strict()));
    engine.advance(Duration::from_secs(1));
    let (queue, high) = (engine.client().queue("tasks"), engine.client().queue("tasks-high"));
    let version = engine.run(queue.pause()).unwrap();
    let read = engine.run(high.settings()).unwrap();
    assert_eq!((read.version, read.settings.paused), (version, true));
    let refused = engine.run(high.resume()).unwrap_err();
    assert!(matches!(refused, ActionError::Level(_)), "{refused}");
    let refused = engine.run(high.schedules().delete("nightly")).unwrap_err();
    assert!(matches!(refused, ActionError::Level(_)), "{refused}");
}

/// The state of a task of high priority is on its own level's metadata topic; a lookup on another
/// level's finds nothing.
#[test]
fn a_task_of_any_priority_that_has_not_failed_is_not_dead() {
    let engine = TestEngine::new();
    let processor = processor_fn(async |task: Text, _: TaskContext| Ok(task));
    let _worker = engine.start(engine.worker("tasks", processor).levels(crate::Levels::strict()));
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    for level in [Priority::High, Priority::Normal] {
        for delay in [Duration::ZERO, HOUR] {
            let submission = engine.client().submission("tasks", &text("page"));
            let task = engine.run(submission.priority(level).delay(delay).send()).unwrap();
            engine.advance(Duration::from_secs(60));
            let replayed = engine.run(letters.replay(&task, "")).unwrap();
            assert_eq!(replayed, Replayed::NotDead, "{level:?} {delay:?}");
        }
    }
}
