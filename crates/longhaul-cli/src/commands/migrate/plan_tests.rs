//! The decisions of a migration, by example.

use super::*;
use longhaul::Text;
use longhaul::testing::TestEngine;

const ID: &str = "12:3:-1";

fn old(level: Priority, entry: u64) -> QueueTask {
    QueueTask { level, id: format!("12:{entry}:-1").parse().unwrap() }
}

fn normal(entry: u64) -> QueueTask {
    old(Priority::Normal, entry)
}

fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A task that waits, and its message.
fn new_task() -> OpenTask {
    let engine = TestEngine::new();
    let task = engine.submit("tasks", &Text("text".to_owned()));
    let queue = engine.client().queue("tasks");
    let info = engine.run(queue.tasks()).unwrap().get(task.id).unwrap().unwrap();
    let mut message = engine.run(queue.submitted(task.id)).unwrap().unwrap();
    message.published_ms = 5_000;
    OpenTask {
        info,
        message: Ok(message),
        awaited: Vec::new(),
        after_failed: AfterFailed::Fail,
        duplicate_of: None,
    }
}

fn task(new: &OpenTask, pairs: &[(&str, &str)], awaited: &[Awaited]) -> OpenTask {
    let name = DependencyName::Key("a".into());
    let mut task = new.clone();
    task.message.as_mut().unwrap().properties = properties(pairs);
    task.after_failed = waits_of(&properties(pairs)).unwrap().failed;
    task.awaited = awaited.iter().map(|state| (name.clone(), state.clone())).collect();
    task
}

fn idempotency(text: &str) -> KeyName {
    KeyName::new(KeyKind::Idempotency, text).unwrap()
}

fn dedupe(text: &str) -> KeyName {
    KeyName::new(KeyKind::Dedupe, text).unwrap()
}

fn mark() -> MigrationMark {
    MigrationMark { name: "9f/1/7".to_owned(), closes: false }
}

#[test]
fn the_task_of_a_copy_is_known() {
    for level in Priority::ALL {
        let task = old(level, 3);
        let copy = properties(&[("COPY_OF", &format!("9f/1/7/{task}"))]);
        assert_eq!(mark().original(&copy), Some(task));
    }
    for other in ["9f/1/71/12:3:-1", "9f/1/12:3:-1", "8f/1/7/12:3:-1", "9f/1/7", ""] {
        assert_eq!(mark().original(&properties(&[("COPY_OF", other)])), None, "{other}");
    }
    assert!(mark().is_from("9f/1") && !mark().is_from("9f") && !mark().is_from("9f/1/7"));
    assert_eq!(mark().key(normal(3)), format!("moved/9f/1/7/{ID}"));
}

#[test]
fn the_key_of_a_message_is_known() {
    for (pairs, expected) in [
        (&[][..], None),
        (&[("IDEMPOTENCY_KEY", "a")], Some(idempotency("a"))),
        (&[("DEDUPE_KEY", "a")], Some(dedupe("a"))),
        (&[("DEDUPE_KEY", "a"), ("IDEMPOTENCY_KEY", "b")], Some(idempotency("b"))),
        (&[("DEDUPE_KEY", "")], None),
    ] {
        assert_eq!(key_of(&properties(pairs)), expected, "{pairs:?}");
    }
}

#[test]
fn the_message_of_a_copy_has_everything_but_what_is_decided_anew() {
    let mut old_task = task(
        &new_task(),
        &[
            ("AFTER", "12:1:-1,key:a"),
            ("AFTER_FAILED", "run"),
            ("DEDUPE_KEY", "d"),
            ("OVERWRITE", "true"),
            ("DELAY", "PT1.5S"),
            ("MAX_ATTEMPTS", "7"),
            ("customer", "4711"),
        ],
        &[Awaited::Open(normal(1)), Awaited::Unknown, Awaited::Over, Awaited::NoResult],
    );
    let keys = BTreeMap::from([(normal(1), idempotency("one")), (normal(3), dedupe("d"))]);
    let minute = Some(Duration::from_secs(60));
    let copy = mark().copy(normal(3), &old_task, &keys, minute).unwrap();
    let expected = properties(&[
        ("AFTER", "key:a,key:one"),
        ("AFTER_FAILED", "run"),
        ("COPY_OF", "9f/1/7/12:3:-1"),
        ("DEDUPE_KEY", "d"),
        ("EXPIRES_AT", "65000"),
        ("MAX_ATTEMPTS", "7"),
        ("customer", "4711"),
    ]);
    assert_eq!(copy.properties, expected);
    assert_eq!(copy.start_ms, Some(6_500));

    // What the ledger says of its start counts.
    old_task.info.status = TaskStatus::Retrying;
    old_task.info.due_ms = Some(9_000);
    let copy = mark().copy(normal(3), &old_task, &keys, None).unwrap();
    assert_eq!((copy.start_ms, copy.properties.get("EXPIRES_AT")), (Some(9_000), None));
    assert_eq!(mark().copy(normal(2), &old_task, &keys, None), None);

    // Later tasks with its order key would overtake a copy that starts later.
    old_task.message.as_mut().unwrap().order_key = Some("line".to_owned());
    old_task.message.as_mut().unwrap().properties.remove("DELAY");
    assert_eq!(mark().copy(normal(3), &old_task, &keys, None).unwrap().start_ms, None);
}

#[test]
fn a_task_that_waits_for_one_without_a_result_cannot_move() {
    let info = new_task();
    let mut open = OpenTasks::from([
        (normal(1), task(&info, &[], &[Awaited::NoResult])),
        (normal(2), task(&info, &[("AFTER_FAILED", "run")], &[Awaited::NoResult])),
        (normal(3), task(&info, &[], &[Awaited::Open(normal(1)), Awaited::Open(normal(4))])),
        (normal(4), task(&info, &[], &[])),
        (normal(5), task(&info, &[], &[Awaited::Over, Awaited::Unknown])),
        (normal(6), task(&info, &[], &[Awaited::Open(normal(7))])),
        (normal(7), task(&info, &[], &[])),
        (normal(8), task(&info, &[], &[])),
        (normal(9), task(&info, &[], &[Awaited::NoResult])),
    ]);
    for cancelled in [7, 9] {
        open.get_mut(&normal(cancelled)).unwrap().info.cancel_requested = true;
    }
    open.get_mut(&normal(8)).unwrap().message = Err("its message is gone".to_owned());
    let ends = without_copy(&open);
    assert_eq!(ends.keys().copied().collect::<Vec<_>>(), [normal(7), normal(9)]);
    let immovable = immovable(&open, &ends);
    let without = "it waits for key:a, which has no result";
    let expected = [(1, without), (6, without), (8, "its message is gone")];
    assert_eq!(immovable, expected.map(|(entry, cause)| (normal(entry), cause.to_owned())));
}

#[test]
fn the_last_of_the_tasks_that_replace_each_other_goes() {
    let info = new_task();
    let (replaces, plain) = (&[("DEDUPE_KEY", "a"), ("OVERWRITE", "true")], &[("DEDUPE_KEY", "a")]);
    let open = OpenTasks::from([
        (normal(1), task(&info, plain, &[])),
        (normal(2), task(&info, replaces, &[])),
        (normal(3), task(&info, replaces, &[])),
        (normal(4), task(&info, &[("DEDUPE_KEY", "b"), ("OVERWRITE", "true")], &[])),
        (old(Priority::High, 0), task(&info, plain, &[])),
    ]);
    let by = "Superseded by 12:3:-1".to_owned();
    let expected = BTreeMap::from([(normal(1), by.clone()), (normal(2), by)]);
    assert_eq!(without_copy(&open), expected);
}

#[test]
fn a_task_that_a_worker_ended_without_an_attempt_has_not_run() {
    let mut info = new_task().info;
    for (status, attempts, expected) in [
        (TaskStatus::Ready, 0, (true, false)),
        (TaskStatus::Running, 1, (true, false)),
        (TaskStatus::Completed, 1, (true, true)),
        (TaskStatus::Failed, 1, (true, true)),
        (TaskStatus::Failed, 0, (false, false)),
        (TaskStatus::Expired, 0, (false, false)),
        (TaskStatus::Cancelled, 1, (false, false)),
        (TaskStatus::Ended, 0, (false, false)),
    ] {
        (info.status, info.attempts) = (status, attempts);
        assert_eq!((stands(&info), has_run(&info)), expected, "{status:?}, {attempts} attempts");
    }
}

#[test]
fn a_task_is_closed_before_those_that_it_waits_for() {
    let new = new_task();
    let waits = |others: &[u64]| {
        let others: Vec<_> = others.iter().map(|other| Awaited::Open(normal(*other))).collect();
        task(&new, &[], &others)
    };
    let open = OpenTasks::from([
        (normal(1), waits(&[])),
        (normal(2), waits(&[1])),
        (normal(3), waits(&[2, 6])),
        (normal(4), waits(&[5])),
        (normal(5), waits(&[4])),
        (normal(6), waits(&[6])),
    ]);
    let first = |tasks: &[u64]| first(&tasks.iter().copied().map(normal).collect(), &open);
    assert_eq!(first(&[1, 2, 3, 4, 5, 6]), BTreeSet::from([normal(3)]));
    assert_eq!(first(&[1, 2, 4, 5, 6]), BTreeSet::from([normal(2), normal(6)]));
    assert_eq!(first(&[1, 3]), BTreeSet::from([normal(1), normal(3)]));
    assert_eq!(first(&[4, 5]), BTreeSet::from([normal(4), normal(5)]));
}
