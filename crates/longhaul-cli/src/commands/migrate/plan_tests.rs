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
        awaited: awaited.iter().map(|state| (name.clone(), state.clone())).collect(),
        duplicate_of: None,
    }
}

fn idempotency(text: impl Into<String>) -> CopyKey {
    CopyKey { kind: KeyKind::Idempotency, text: text.into() }
}

fn dedupe(text: impl Into<String>) -> CopyKey {
    CopyKey { kind: KeyKind::Dedupe, text: text.into() }
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
        (&[][..], idempotency(moved.clone())),
        (&[("IDEMPOTENCY_KEY", "a")], idempotency("a")),
        (&[("DEDUPE_KEY", "a")], dedupe("a")),
        (&[("DEDUPE_KEY", "a"), ("IDEMPOTENCY_KEY", "b")], idempotency("b")),
        (&[("IDEMPOTENCY_KEY", "dlq/12:1:-1")], idempotency(moved.clone())),
        (&[("DEDUPE_KEY", "")], idempotency(moved.clone())),
    ] {
        let message = OldMessage { properties: properties(pairs), ..OldMessage::default() };
        let keys: Vec<CopyKey> = origin().keys(normal(3), &message).take(3).collect();
        assert_eq!(keys[0], first, "{pairs:?}");
        let mut again = keys.iter().skip_while(|key| key.text != moved);
        assert!(again.next().is_some(), "{keys:?}");
        assert!(again.next().is_none_or(|key| key.text == format!("{moved}/2")), "{keys:?}");
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
        &[Awaited::Open(normal(1)), Awaited::Key("a".to_owned()), Awaited::Over, Awaited::NoResult],
    );
    let keys = BTreeMap::from([(normal(1), idempotency("one")), (normal(3), dedupe("d"))]);
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

    // Later tasks with its order key would overtake a copy that starts later.
    old_task.message.as_mut().unwrap().order_key = Some("line".to_owned());
    old_task.message.as_mut().unwrap().properties.remove("DELAY");
    assert_eq!(origin().copy(normal(3), &old_task, &keys).unwrap().start_ms, None);
}

#[test]
fn a_task_that_waits_for_one_without_a_result_cannot_move() {
    let info = info();
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
    let fates = fates(&open);
    assert!(matches!(fates[&normal(7)], Fate::Close(_)));
    let immovable = immovable(&open, &fates);
    let without = "it waits for key:a, which has no result";
    let expected = [(1, without), (6, without), (8, "its message is gone")];
    assert_eq!(immovable, expected.map(|(entry, cause)| (normal(entry), cause.to_owned())));
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

fn links(pairs: &[(u64, u64)]) -> Links {
    let mut links = Links::default();
    for (waiting, awaited) in pairs {
        links.insert(normal(*waiting), normal(*awaited));
    }
    links
}

#[test]
fn a_task_is_closed_before_those_that_it_waits_for() {
    let links = links(&[(2, 1), (3, 2), (4, 5), (5, 4), (6, 6)]);
    let entries = |wave: &Vec<OldTask>| wave.iter().map(|old| old.id.entry).collect::<Vec<_>>();
    let waves = |all: &[u64]| -> Vec<Vec<u64>> {
        links.waves(all.iter().copied().map(normal).collect()).iter().map(entries).collect()
    };
    assert_eq!(waves(&[1, 2, 3, 4, 5, 6]), [vec![3, 6], vec![2], vec![1], vec![4, 5]]);
    assert_eq!(waves(&[1, 3]), [[1, 3]]);
}

/// 100,000 tasks that wait for each other in a chain do not take minutes.
#[test]
fn a_long_chain_is_put_in_order() {
    let pairs: Vec<(u64, u64)> = (0..100_000).map(|entry| (entry + 1, entry)).collect();
    let links = links(&pairs);
    let first = BTreeSet::from([normal(0)]);
    let all = links.with_waiting(first.clone());
    assert_eq!((all.len(), links.with_connected(first).len()), (100_001, 100_001));
    assert_eq!(links.waves(all).len(), 100_001);
}

#[test]
fn linked_tasks_are_found_in_one_direction_or_both() {
    let links = links(&[(2, 1), (3, 2), (4, 5)]);
    let some = |entry| BTreeSet::from([normal(entry)]);
    assert_eq!(links.with_waiting(some(2)), BTreeSet::from([2, 3].map(normal)));
    assert_eq!(links.with_connected(some(2)), BTreeSet::from([1, 2, 3].map(normal)));
    assert_eq!(links.with_connected(some(4)), BTreeSet::from([4, 5].map(normal)));
}

#[test]
fn a_task_was_closed_for_a_copy_if_its_reason_says_so_or_is_unknown() {
    let id = |text: &str| text.parse::<TaskId>().unwrap();
    let own = moved_as(id("12:3:-1"), "8e/1");
    let reason = format!("{own}to there at pulsar://b");
    let others = [moved_as(id("12:3:-1:0"), "8e/1"), moved_as(id("12:3:-1"), "7d/1")];
    let cut = "x".repeat(SHOWN_CHARS_MAX);
    let cancelled = Some(TaskStatus::Cancelled);
    for (status, on_ledger, shown, expected) in [
        (None, None, None, true),
        (Some(TaskStatus::Ended), None, None, true),
        (cancelled, Some(&reason[..]), None, true),
        (cancelled, None, Some(&reason[..]), true),
        (cancelled, None, None, true),
        (cancelled, None, Some(&cut), true),
        (cancelled, Some(&others[0]), Some(&cut), false),
        (cancelled, None, Some(&others[0]), false),
        (cancelled, None, Some(&others[1]), false),
        (cancelled, None, Some("Process was cancelled: cancelled by client"), false),
        (Some(TaskStatus::Completed), Some(&reason), None, false),
        (Some(TaskStatus::Failed), None, None, false),
    ] {
        let moved = was_moved(&own, status, on_ledger, shown);
        assert_eq!(moved, expected, "{status:?}, {on_ledger:?}, {shown:?}");
    }
}

#[test]
fn a_key_whose_task_never_ran_is_not_used() {
    let mut info = info();
    for (status, attempts, usable) in [
        (TaskStatus::Ready, 0, [true, true]),
        (TaskStatus::Running, 1, [true, true]),
        (TaskStatus::Completed, 1, [true, false]),
        (TaskStatus::Failed, 1, [true, false]),
        (TaskStatus::Failed, 0, [false, false]),
        (TaskStatus::Expired, 0, [false, false]),
        (TaskStatus::Cancelled, 1, [false, false]),
        (TaskStatus::Ended, 0, [false, false]),
    ] {
        (info.status, info.attempts) = (status, attempts);
        let is_usable = [idempotency("a"), dedupe("a")].map(|key| key.is_usable(Some(&info)));
        assert_eq!(is_usable, usable, "{status:?} with {attempts} attempts");
    }
    assert!(!idempotency("a").is_usable(None));
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
