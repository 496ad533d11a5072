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

/// The state of any task that waits.
fn info() -> TaskInfo {
    let engine = TestEngine::new();
    let task = engine.submit("tasks", &Text("text".to_owned()));
    let view = engine.run(engine.client().queue("tasks").tasks()).unwrap();
    view.get(task.id).unwrap().unwrap()
}

fn task(info: &TaskInfo, pairs: &[(&str, &str)], awaited: &[Awaited]) -> OpenTask {
    let name = DependencyName::Key("a".into());
    OpenTask {
        info: info.clone(),
        message: Ok(OldMessage {
            properties: properties(pairs),
            published_ms: 5_000,
            order_key: None,
        }),
        awaited: awaited.iter().map(|state| (name.clone(), *state)).collect(),
        duplicate_of: None,
    }
}

fn origin() -> Origin {
    Origin { queue: "9f/1".to_owned(), expires_after: None }
}

#[test]
fn the_name_of_an_old_task_reads_back() {
    for level in Priority::ALL {
        let task = old(level, 3);
        assert_eq!(OldTask::parse(&task.to_string()), Some(task));
        let copy = properties(&[("COPY_OF", &format!("9f/1/{task}"))]);
        assert_eq!(origin().original(&copy), Some(task));
    }
    assert_eq!(OldTask::parse("middle:1:2:3"), None);
    for other in ["9f/12/12:3:-1", "8f/1/12:3:-1", "9f/1", ""] {
        assert_eq!(origin().original(&properties(&[("COPY_OF", other)])), None, "{other}");
    }
}

#[test]
fn a_copy_has_its_own_key_or_one_that_names_the_old_task() {
    let moved = format!("moved/9f/1/{ID}");
    for (pairs, first) in [
        (&[][..], CopyKey::Idempotency(moved.clone())),
        (&[("IDEMPOTENCY_KEY", "a")], CopyKey::Idempotency("a".to_owned())),
        (&[("DEDUPE_KEY", "a")], CopyKey::Dedupe("a".to_owned())),
        (&[("DEDUPE_KEY", "a"), ("IDEMPOTENCY_KEY", "b")], CopyKey::Idempotency("b".to_owned())),
        (&[("IDEMPOTENCY_KEY", "dlq/12:1:-1")], CopyKey::Idempotency(moved.clone())),
        (&[("DEDUPE_KEY", "")], CopyKey::Idempotency(moved.clone())),
    ] {
        let message = OldMessage { properties: properties(pairs), ..OldMessage::default() };
        let keys: Vec<CopyKey> = origin().keys(normal(3), &message).take(3).collect();
        assert_eq!(keys[0], first, "{pairs:?}");
        let mut again = keys.iter().skip_while(|key| key.text() != moved);
        assert!(again.next().is_some(), "{keys:?}");
        assert!(again.next().is_none_or(|key| key.text() == format!("{moved}/2")), "{keys:?}");
    }
}

#[test]
fn the_message_of_a_copy_has_everything_but_what_is_decided_anew() {
    let mut old_task = task(
        &info(),
        &[
            ("AFTER", "12:1:-1,key:a"),
            ("AFTER_FAILED", "run"),
            ("DEDUPE_KEY", "d"),
            ("OVERWRITE", "true"),
            ("DELAY", "PT1.5S"),
            ("MAX_ATTEMPTS", "7"),
            ("customer", "4711"),
        ],
        &[Awaited::Open(normal(1)), Awaited::Unbound, Awaited::Over, Awaited::NoResult],
    );
    let keys = BTreeMap::from([
        (normal(1), CopyKey::Idempotency("one".to_owned())),
        (normal(3), CopyKey::Dedupe("d".to_owned())),
    ]);
    let expires = Origin { expires_after: Some(Duration::from_secs(60)), ..origin() };
    let copy = expires.copy(normal(3), &old_task, &keys).unwrap();
    let expected = properties(&[
        ("AFTER_FAILED", "run"),
        ("COPY_OF", "9f/1/12:3:-1"),
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
    let copy = origin().copy(normal(3), &old_task, &keys).unwrap();
    assert_eq!((copy.start_ms, copy.properties.get("EXPIRES_AT")), (Some(9_000), None));
    assert_eq!(origin().copy(normal(2), &old_task, &keys), None);
}

#[test]
fn a_task_without_a_result_keeps_those_that_wait_for_it() {
    let info = info();
    let mut open = OpenTasks::from([
        (normal(1), task(&info, &[], &[Awaited::NoResult])),
        (normal(2), task(&info, &[("AFTER_FAILED", "run")], &[Awaited::NoResult])),
        (normal(3), task(&info, &[], &[Awaited::Open(normal(1)), Awaited::Open(normal(4))])),
        (normal(4), task(&info, &[], &[])),
        (normal(5), task(&info, &[], &[Awaited::Over, Awaited::Unbound])),
        (normal(6), task(&info, &[], &[Awaited::Open(normal(7))])),
        (normal(7), task(&info, &[], &[])),
    ]);
    open.get_mut(&normal(7)).unwrap().info.cancel_requested = true;
    let fates = fates(&open);
    let stays = |entry| matches!(fates[&normal(entry)], Fate::Stay(_));
    assert_eq!([1, 2, 3, 4, 5, 6, 7].map(stays), [true, false, true, true, false, true, false]);
    assert!(matches!(fates[&normal(7)], Fate::Close(_)));
    assert_eq!((&fates[&normal(2)], &fates[&normal(5)]), (&Fate::Copy, &Fate::Copy));
}

#[test]
fn the_last_of_the_tasks_that_replace_each_other_goes() {
    let info = info();
    let (replaces, plain) = (&[("DEDUPE_KEY", "a"), ("OVERWRITE", "true")], &[("DEDUPE_KEY", "a")]);
    let open = OpenTasks::from([
        (normal(1), task(&info, plain, &[])),
        (normal(2), task(&info, replaces, &[])),
        (normal(3), task(&info, replaces, &[])),
        (normal(4), task(&info, &[("DEDUPE_KEY", "b"), ("OVERWRITE", "true")], &[])),
        (old(Priority::High, 0), task(&info, plain, &[])),
    ]);
    let fates = fates(&open);
    let by = Fate::Close("Superseded by 12:3:-1".to_owned());
    assert_eq!((&fates[&normal(1)], &fates[&normal(2)]), (&by, &by));
    for copied in [normal(3), normal(4), old(Priority::High, 0)] {
        assert_eq!(fates[&copied], Fate::Copy, "{copied}");
    }
}

#[test]
fn a_task_is_closed_before_those_that_it_waits_for() {
    let info = info();
    let waits = |entry: u64| task(&info, &[], &[Awaited::Open(normal(entry))]);
    let open = OpenTasks::from([
        (normal(1), task(&info, &[], &[])),
        (normal(2), waits(1)),
        (normal(3), waits(2)),
        (normal(4), waits(5)),
        (normal(5), waits(4)),
        (normal(6), waits(6)),
    ]);
    let all = open.keys().copied().collect();
    let waves = waves(all, &open);
    let entries = |wave: &Vec<OldTask>| wave.iter().map(|old| old.id.entry).collect::<Vec<_>>();
    let waves: Vec<_> = waves.iter().map(entries).collect();
    assert_eq!(waves, [vec![3, 6], vec![2], vec![1], vec![4, 5]]);
}

#[test]
fn a_copy_remains_if_its_task_was_closed_for_it_or_nobody_knows() {
    let copy: TaskRef = "there@12:3:-1".parse().unwrap();
    let own = moved_as(&copy, "there at pulsar://b");
    let other = moved_as(&"there@12:3:-1:0".parse().unwrap(), "there");
    let cancelled = Some(TaskStatus::Cancelled);
    for (status, reasons, remains) in [
        (None, [None, None], true),
        (Some(TaskStatus::Ended), [None, None], true),
        (cancelled, [Some(own.as_str()), None], true),
        (cancelled, [None, Some(own.as_str())], true),
        (cancelled, [None, None], true),
        (cancelled, [Some(other.as_str()), None], false),
        (cancelled, [None, Some("Process was cancelled: cancelled by client")], false),
        (Some(TaskStatus::Completed), [Some(own.as_str()), None], false),
        (Some(TaskStatus::Failed), [None, None], false),
    ] {
        assert_eq!(keeps_copy(&copy, status, reasons), remains, "{status:?}, {reasons:?}");
    }
}

#[test]
fn tasks_that_wait_for_each_other_are_taken_back_together() {
    let info = info();
    let waits = |entry: u64| task(&info, &[], &[Awaited::Open(normal(entry))]);
    let open = OpenTasks::from([
        (normal(1), task(&info, &[], &[])),
        (normal(2), waits(1)),
        (normal(3), waits(2)),
        (normal(4), waits(5)),
        (normal(5), task(&info, &[], &[])),
    ]);
    let group = |entry| connected(&open, BTreeSet::from([normal(entry)]));
    assert_eq!(group(1), BTreeSet::from([1, 2, 3].map(normal)));
    assert_eq!(group(4), BTreeSet::from([4, 5].map(normal)));
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
