//! The decisions of a migration, by example.

use super::*;
use longhaul::Text;
use longhaul::testing::TestEngine;

const ID: &str = "12:3:-1";

fn old(level: Priority, entry: u64) -> OldTask {
    OldTask { level, id: format!("12:{entry}:-1").parse().unwrap() }
}

fn normal(entry: u64) -> OldTask {
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
    OpenTask { info, message: Ok(message), awaited: Vec::new(), duplicate_of: None }
}

fn task(new: &OpenTask, pairs: &[(&str, &str)], awaited: &[Awaited]) -> OpenTask {
    let name = DependencyName::Key("a".into());
    let mut task = new.clone();
    task.message.as_mut().unwrap().properties = properties(pairs);
    task.awaited = awaited.iter().map(|state| (name.clone(), state.clone())).collect();
    task
}

fn idempotency(text: impl Into<String>) -> CopyKey {
    CopyKey { kind: KeyKind::Idempotency, text: text.into() }
}

fn dedupe(text: impl Into<String>) -> CopyKey {
    CopyKey { kind: KeyKind::Dedupe, text: text.into() }
}

fn mark() -> MigrationMark {
    MigrationMark { name: "9f/1/7".to_owned(), closes: false }
}

#[test]
fn the_name_of_an_old_task_reads_back() {
    for level in Priority::ALL {
        let task = old(level, 3);
        assert_eq!(OldTask::parse(&task.to_string()), Some(task));
        let copy = properties(&[("COPY_OF", &format!("9f/1/7/{task}"))]);
        assert_eq!(mark().original(&copy), Some(task));
    }
    assert_eq!(OldTask::parse("middle:1:2:3"), None);
    for other in ["9f/1/71/12:3:-1", "9f/1/12:3:-1", "8f/1/7/12:3:-1", "9f/1/7", ""] {
        assert_eq!(mark().original(&properties(&[("COPY_OF", other)])), None, "{other}");
    }
}

#[test]
fn a_mark_reads_back() {
    for closes in [false, true] {
        let mark = MigrationMark { closes, ..mark() };
        assert_eq!(MigrationMark::read(&mark.to_string()), Some(mark));
    }
    assert!(mark().is_from("9f/1") && !mark().is_from("9f") && !mark().is_from("9f/1/7"));
    assert_eq!(MigrationMark::read("swaps 9f/1/7"), None);
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
        assert_eq!(CopyKey::of(&properties(pairs)), expected, "{pairs:?}");
    }
    assert!(idempotency("dlq/12:1:-1").is_of_a_replay() && !idempotency("a").is_of_a_replay());
    assert_eq!(mark().key(normal(3)), idempotency(format!("moved/9f/1/7/{ID}")));
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
        &[Awaited::Open(normal(1)), Awaited::Key("a".to_owned()), Awaited::Over, Awaited::NoResult],
    );
    let keys = BTreeMap::from([(normal(1), idempotency("one")), (normal(3), dedupe("d"))]);
    let minute = Some(Duration::from_secs(60));
    let copy = mark().copy(normal(3), &old_task, &keys, minute).unwrap();
    let expected = properties(&[
        ("AFTER_FAILED", "run"),
        ("COPY_OF", "9f/1/7/12:3:-1"),
        ("DEDUPE_KEY", "d"),
        ("EXPIRES_AT", "65000"),
        ("MAX_ATTEMPTS", "7"),
        ("customer", "4711"),
    ]);
    assert_eq!(copy.properties, expected);
    let after = BTreeSet::from(["one".to_owned(), "a".to_owned()]);
    assert_eq!((copy.start_ms, copy.after), (Some(6_500), after));

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
        (normal(5), task(&info, &[], &[Awaited::Over, Awaited::Key("b".to_owned())])),
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
fn a_key_whose_task_never_ran_is_not_used() {
    for (status, attempts, expected) in [
        (TaskStatus::Ready, 0, true),
        (TaskStatus::Running, 1, true),
        (TaskStatus::Completed, 1, true),
        (TaskStatus::Failed, 1, true),
        (TaskStatus::Failed, 0, false),
        (TaskStatus::Expired, 0, false),
        (TaskStatus::Cancelled, 1, false),
        (TaskStatus::Ended, 0, false),
    ] {
        assert_eq!(stands(status, attempts), expected, "{status:?} with {attempts} attempts");
    }
}

#[test]
fn names_that_cannot_be_read_are_told() {
    let after = |names| awaited_names(&properties(&[("AFTER", names)]));
    let names = after("12:1:-1, key:a%2Cb,").unwrap();
    let texts: Vec<String> = names.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["12:1:-1", "key:a%2Cb"]);
    assert!(after("no name").is_err());
    assert_eq!(awaited_names(&BTreeMap::new()), Ok(BTreeSet::new()));
}
