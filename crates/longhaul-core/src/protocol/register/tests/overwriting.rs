//! Overwriters: their binds never lose against an earlier task of their lane.

use super::*;
use RegisterVerdict::{Accepted, Ignored as No, Lost};

fn over(text: &str, epoch: u32, entry: u64, serial: u64) -> RegisterEntry {
    bind(text, epoch, entry, serial).overwriting(true)
}

fn elsewhere(mut entry: RegisterEntry, level: Priority, partition: i32) -> RegisterEntry {
    if let RegisterEntry::Bind(Hold { key, .. }) = &mut entry {
        key.task.level = level;
        key.task.id.partition = partition;
    }
    entry
}

#[test]
fn an_overwriter_loses_against_later_tasks_only() {
    let log = [
        bind("k", 1, 7, 0),
        over("k", 1, 8, 1),
        // Not later than the holder.
        over("k", 1, 6, 2),
        bind("k", 1, 9, 3),
        release("k", 1, 7, 4),
        // It was behind the holder, which does not give it the key.
        over("k", 1, 8, 5),
        over("k", 2, 10, 6),
        over("k", 2, 8, 7),
        over("k", 2, 11, 8),
    ];
    let expected = [
        Accepted,
        No(RegisterIgnoredReason::Behind),
        Lost(task(7)),
        Lost(task(7)),
        Accepted,
        No(RegisterIgnoredReason::Stale),
        Accepted,
        Lost(task(10)),
        No(RegisterIgnoredReason::Behind),
    ];
    assert_eq!(verdicts(&log), expected);
}

/// If ids do not show which message is later, an overwriter is treated like any other task.
#[test]
fn an_overwriter_loses_against_a_task_of_another_lane() {
    for (level, partition) in [(Priority::High, -1), (Priority::Normal, 3)] {
        let log = [bind("k", 1, 7, 0), elsewhere(over("k", 1, 8, 1), level, partition)];
        assert_eq!(verdicts(&log), [Accepted, Lost(task(7))]);
    }
}

/// A lost overwriter stays lost, even when an earlier task comes to hold the key.
#[test]
fn an_overwriter_that_has_lost_has_lost() {
    let log = [
        bind("k", 1, 9, 0),
        over("k", 1, 8, 1),
        release("k", 1, 9, 2),
        bind("k", 2, 7, 3),
        over("k", 2, 8, 4),
    ];
    assert_eq!(verdicts(&log), [Accepted, Lost(task(9)), Accepted, Accepted, Lost(task(9))]);
}

#[test]
fn overwriters_wait_for_the_holder_and_the_highest_is_bound_first() {
    use Overwriting::{Bind, Over};
    let k = name("k");
    let mut log = vec![bind("k", 1, 7, 0), over("k", 1, 8, 1), over("k", 1, 9, 2)];
    let register = read(&log);
    let keys = register.keys();
    assert_eq!(keys.overwritten().collect::<Vec<_>>(), [&k]);
    assert_eq!(keys.overwriting(&k), Some(Over { holder: task(7), by: task(9) }));
    assert_eq!(keys.admission(&k, task(9)), Admission::Behind(task(7)));
    assert_eq!(keys.submitting(&k, Some(task(9)), None), Submitting::Answer(task(9)));
    assert_eq!(keys.admission(&k, task(8)), Admission::Lost(task(9)));
    assert_eq!(keys.submitting(&k, Some(task(8)), None), Submitting::Answer(task(9)));
    // A task without a published bind has not declared itself an overwriter.
    assert_eq!(keys.admission(&k, task(10)), Admission::Bind);
    log.push(release("k", 1, 7, 3));
    let register = read(&log);
    assert_eq!(register.keys().overwriting(&k), Some(Bind(task(9), None)));
    assert_eq!(register.keys().admission(&k, task(8)), Admission::Bind);
    log.push(over("k", 2, 9, 4));
    assert_eq!(read(&log).keys().overwriting(&k), Some(Bind(task(8), None)));
    log.push(over("k", 2, 8, 5));
    let register = read(&log);
    assert_eq!(register.keys().admission(&k, task(8)), Admission::Lost(task(9)));
    assert!(!register.keys().has_overwriters());
}

#[test]
fn a_submitter_overwrites_what_is_of_its_lane_and_answers_with_what_is_not() {
    let register = read(&[bind("k", 1, 7, 0)]);
    let submitting = |lane| register.keys().submitting(&name("k"), None, lane);
    assert_eq!(submitting(Some((Priority::Normal, -1))), Submitting::Submit);
    for lane in [None, Some((Priority::High, -1)), Some((Priority::Normal, 0))] {
        assert_eq!(submitting(lane), Submitting::Answer(task(7)));
    }
}

/// An overwriter with a late start time may wait for longer than anything is remembered. A worker
/// that gets its delivery binds it again.
#[test]
fn that_a_bind_was_behind_is_forgotten_as_losses_are() {
    let log = [
        bind("k", 1, 7, 0),
        over("k", 1, 8, 1),
        period(1),
        in_period(1, bind("k", 1, 7, 2)),
        period(2),
        in_period(2, bind("k", 1, 7, 3)),
        period(3),
    ];
    let register = read(&log);
    assert!(!register.keys().has_overwriters());
    assert_eq!(register.keys().admission(&name("k"), task(8)), Admission::Bind);
    assert_eq!(register.keys().expired().next().collect::<Vec<_>>(), [&log[1].key()]);
}

/// Regression: of two overwriters behind a task, each was bound by the worker that held its
/// delivery, and the earlier one could be bound and run first.
#[test]
fn the_latest_overwriter_is_bound_first() {
    let log = [
        bind("k", 1, 7, 0),
        over("k", 1, 8, 1),
        over("k", 1, 9, 2),
        release("k", 1, 7, 3),
        over("k", 2, 9, 4),
    ];
    let before = |count: usize| {
        let register = read(&log[..count]);
        [8, 9, 10].map(|it| register.keys().binds_before(&name("k"), task(it)))
    };
    assert_eq!(before(3), [false; 3], "it is held");
    assert_eq!(before(4), [true, false, false]);
    assert_eq!(before(5), [false; 3]);
}
