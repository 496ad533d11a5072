//! Removals, repairs and restores, and their times.

use super::*;

const ID: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };
const RETENTION: Duration = Duration::from_secs(100);

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

fn completed(epoch: u32) -> TaskFold {
    TaskFold { epoch: Epoch(epoch), phase: Phase::Completed, ..TaskFold::default() }
}

const AT: Position = Position { ledger: 3, entry: 4, batch_index: None };

fn shown(epoch: u32, terminal: bool) -> ShownEntry {
    ShownEntry { epoch: Some(epoch), terminal, last_updated_ms: 0, at: AT }
}

/// The chore that is due for a task in this state, without an end in flight.
fn poll(keeper: &mut MetadataMaintenance, now: Moment, fold: TaskFold) -> Option<Chore> {
    let repair = keeper.poll_repair(now, now, |_| fold, |_| false);
    repair.or_else(|| keeper.poll_removal(now, |_| fold))
}

#[test]
fn an_outcome_is_removed_after_its_retention_whoever_wrote_it() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    let foreign = ShownEntry { epoch: None, terminal: true, last_updated_ms: 40_000, at: AT };
    keeper.read(ID, foreign, &TaskFold::default(), false, at(7), 50_000);
    let witness = TaskId { entry: 3, ..ID };
    let later = ShownEntry { terminal: false, last_updated_ms: 140_000, ..foreign };
    keeper.read(witness, later, &TaskFold::default(), true, at(90), 140_000);
    assert_eq!(keeper.next_removal(), Some(at(97)));
    assert_eq!(poll(&mut keeper, at(96), completed(1)), None);
    assert_eq!(poll(&mut keeper, at(97), completed(1)), Some(Chore::Remove(ID)));
    assert_eq!(poll(&mut keeper, at(97), completed(1)), None);
}

/// Earlier, a worker whose wall clock was a day ahead deleted every result when it started, and
/// each new one at once.
#[test]
fn one_wrong_wall_clock_deletes_no_result() {
    const AHEAD: u64 = 1_000_000_000;
    for (live, stamp) in [(true, 0), (false, 0), (true, AHEAD), (false, AHEAD)] {
        let mut keeper = MetadataMaintenance::new(RETENTION);
        let result = ShownEntry { last_updated_ms: stamp, ..shown(1, true) };
        keeper.read(ID, result, &completed(1), live, at(7), AHEAD);
        assert_eq!(poll(&mut keeper, at(106), completed(1)), None, "{live} {stamp}");
        assert_eq!(poll(&mut keeper, at(107), completed(1)), Some(Chore::Remove(ID)));
    }
}

/// The clock of one writer was slow, so its entry of a moment ago looked old. An entry cannot be
/// older than those before it.
#[test]
fn a_slow_clock_of_a_writer_deletes_no_result() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    let (other, stamp) =
        (TaskId { entry: 3, ..ID }, |ms| ShownEntry { last_updated_ms: ms, ..shown(1, true) });
    keeper.read(other, stamp(500_000), &completed(1), false, at(0), 510_000);
    keeper.read(ID, stamp(1_000), &completed(1), false, at(1), 511_000);
    assert_eq!(poll(&mut keeper, at(99), completed(1)), None);
}

/// Earlier, a worker that got an old delivery showed the end of a task after it had been removed.
#[test]
fn an_end_that_was_shown_is_not_shown_again() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    assert!(!keeper.has_shown_end(ID, Epoch(1)));
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    assert!(keeper.has_shown_end(ID, Epoch(1)) && !keeper.has_shown_end(ID, Epoch(2)));
    assert_eq!(poll(&mut keeper, at(100), completed(1)), Some(Chore::Remove(ID)));
    assert!(keeper.has_shown_end(ID, Epoch(1)));
    keeper.gone(ID, &completed(1));
    assert!(keeper.has_shown_end(ID, Epoch(1)));
    keeper.sealed(ID..=ID, at(100));
    assert!(!keeper.has_shown_end(ID, Epoch(1)));
}

/// Earlier, after a broker had refused one entry of a task and the outcome once, the outcome was
/// never shown.
#[test]
fn an_end_that_was_refused_is_tried_again_until_it_stands() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.missed(ID, at(0));
    assert_eq!(poll(&mut keeper, at(9), completed(1)), None);
    assert_eq!(poll(&mut keeper, at(10), completed(1)), Some(Chore::Repair(ID, Lack::Missing)));
    keeper.missed(ID, at(11));
    keeper.read(ID, shown(1, true), &completed(1), true, at(12), 12_000);
    assert_eq!(poll(&mut keeper, at(60), completed(1)), None);
}

/// Earlier, two entries led to two tombstones.
#[test]
fn an_entry_that_was_published_twice_is_removed_once() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    keeper.read(ID, shown(1, true), &completed(1), true, at(1), 1000);
    assert_eq!(poll(&mut keeper, at(200), completed(1)), Some(Chore::Remove(ID)));
    assert_eq!(poll(&mut keeper, at(200), completed(1)), None);
}

#[test]
fn a_foreign_tombstone_does_not_hide_the_end_to_come() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, false), &TaskFold::default(), true, at(0), 0);
    keeper.gone(ID, &completed(1));
    assert!(!keeper.has_shown_end(ID, Epoch(1)));
}

#[test]
fn what_another_keeper_has_removed_is_not_removed_again() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    keeper.gone(ID, &completed(1));
    assert_eq!(poll(&mut keeper, at(1000), completed(1)), None);
}

#[test]
fn a_late_entry_of_a_zombie_is_followed_by_the_ledgers_outcome() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(2, true), &completed(2), true, at(0), 0);
    keeper.read(ID, shown(1, false), &completed(2), true, at(1), 1000);
    assert_eq!(poll(&mut keeper, at(2), completed(2)), Some(Chore::Repair(ID, Lack::Covered)));
}

/// Earlier, if the reader of such an entry was killed and its successor read the metadata topic
/// before the ledger, no worker corrected it.
#[test]
fn an_entry_that_was_read_before_its_task_ended_is_repaired() {
    for (live, epoch, repaired) in [(true, 1, true), (false, 2, true), (true, 2, false)] {
        let mut keeper = MetadataMaintenance::new(RETENTION);
        keeper.read(ID, shown(epoch, false), &TaskFold::default(), true, at(0), 0);
        keeper.ended(ID, &completed(2), live, at(1));
        let chore = poll(&mut keeper, at(60), completed(2));
        assert_eq!(chore, repaired.then_some(Chore::Repair(ID, Lack::Missing)), "{live} {epoch}");
    }
}

/// Earlier, if a keeper with a lagging ledger read an end, and the late entry that covered it,
/// before the end of the task on the ledger, the task was shown as running for ever.
#[test]
fn an_end_that_was_covered_before_the_ledger_told_of_it_is_shown_again() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &TaskFold::default(), true, at(0), 0);
    keeper.read(ID, shown(1, false), &TaskFold::default(), true, at(1), 1000);
    keeper.ended(ID, &completed(1), true, at(2));
    assert_eq!(poll(&mut keeper, at(60), completed(1)), Some(Chore::Repair(ID, Lack::Covered)));
}

/// The first dead letter creates its topic, which takes a while: earlier, the end was published
/// twice.
#[test]
fn an_outcome_that_comes_by_itself_needs_no_repair() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, false), &completed(1), true, at(0), 0);
    assert_eq!(poll(&mut keeper, at(9), completed(1)), None);
    keeper.read(ID, shown(1, true), &completed(1), true, at(9), 9000);
    assert_eq!(poll(&mut keeper, at(99), completed(1)), None);
}

#[test]
fn an_outcome_that_does_not_come_is_missed_at_last() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, false), &completed(1), true, at(0), 0);
    assert_eq!(poll(&mut keeper, at(10), completed(1)), Some(Chore::Repair(ID, Lack::Missing)));
}

/// Earlier, if a zombie wrote PROCESSING when the ledger had no key of the task any more, the task
/// was shown as running for ever.
#[test]
fn a_sealed_task_that_m_shows_unfinished_is_restored_or_leaves() {
    let zombie = ShownEntry { at: Position { entry: 5, ..AT }, ..shown(1, false) };
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    keeper.read(ID, zombie, &TaskFold::SEALED, true, at(1), 0);
    assert_eq!(poll(&mut keeper, at(60), TaskFold::SEALED), Some(Chore::Restore(ID, AT)));

    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, zombie, &TaskFold::default(), true, at(1), 0);
    assert_eq!(poll(&mut keeper, at(60), TaskFold::SEALED), None, "nobody has said so");
    keeper.sealed(ID..=ID, at(60));
    assert_eq!(poll(&mut keeper, at(69), TaskFold::SEALED), None, "its end may be on its way");
    assert_eq!(poll(&mut keeper, at(70), TaskFold::SEALED), Some(Chore::Remove(ID)));
}

#[test]
fn a_sealed_task_whose_end_m_shows_or_has_shown_is_left_alone() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    keeper.sealed(ID..=ID, at(1));
    keeper.missed(ID, at(1));
    assert_eq!(poll(&mut keeper, at(60), TaskFold::SEALED), None);
    keeper.gone(ID, &completed(1));
    keeper.missed(ID, at(61));
    assert_eq!(poll(&mut keeper, at(80), TaskFold::SEALED), None);
}

/// Earlier, after the death of a broker the end of one task was shown again by three workers, each
/// of which warned of an old epoch, although it was the only epoch and the end was in flight.
#[test]
fn an_end_that_is_on_its_way_is_not_missed() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, false), &completed(1), true, at(0), 0);
    assert_eq!(keeper.poll_repair(at(10), at(10), |_| completed(1), |_| true), None);
    assert_eq!(keeper.poll_repair(at(19), at(19), |_| completed(1), |_| false), None);
    let missing = Some(Chore::Repair(ID, Lack::Missing));
    assert_eq!(keeper.poll_repair(at(20), at(20), |_| completed(1), |_| false), missing);
    // No entry of the finisher follows a covered end.
    keeper.read(ID, shown(1, true), &completed(1), true, at(21), 0);
    keeper.read(ID, shown(1, false), &completed(1), true, at(22), 0);
    let covered = Some(Chore::Repair(ID, Lack::Covered));
    assert_eq!(keeper.poll_repair(at(60), at(60), |_| completed(1), |_| true), covered);
}

/// For an old epoch, the metadata topic may have shown an end that the ledger did not accept.
#[test]
fn an_end_of_an_epoch_that_is_over_is_repaired() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &completed(2), true, at(0), 0);
    assert_eq!(poll(&mut keeper, at(10), completed(2)), Some(Chore::Repair(ID, Lack::Covered)));
}

/// A former keeper knows nothing of the metadata topic, and does nothing about it.
#[test]
fn who_stops_keeping_forgets_what_was_read() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    let other = TaskId { entry: 3, ..ID };
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    keeper.read(other, shown(1, false), &completed(1), true, at(0), 0);
    keeper.stop();
    assert_eq!((keeper.next_repair(), keeper.next_removal()), (None, None));
    assert_eq!(poll(&mut keeper, at(1000), completed(1)), None);
    assert!(!keeper.has_shown_any_end(ID));
}

/// Tombstones must not hold up outcomes of running tasks, and one that may be lost is published
/// again.
#[test]
fn few_tombstones_are_on_their_way_at_once() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    let task = |entry| TaskId { entry, ..ID };
    for entry in 0..70 {
        keeper.read(task(entry), shown(1, true), &completed(1), true, at(0), 0);
    }
    let due = |keeper: &mut MetadataMaintenance| {
        std::iter::from_fn(|| poll(keeper, at(100), completed(1))).collect::<Vec<_>>()
    };
    let first: Vec<_> = (0..64).map(|entry| Chore::Remove(task(entry))).collect();
    assert_eq!(due(&mut keeper), first);
    assert_eq!(keeper.next_removal(), None, "their receipts wake it");
    keeper.removed(task(0), false);
    keeper.removed(task(1), true);
    assert_eq!(due(&mut keeper), [0, 64].map(|entry| Chore::Remove(task(entry))));
}

/// The retention counts from the last entry that shows the end.
#[test]
fn an_end_that_is_shown_again_stays_for_its_retention() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    keeper.read(ID, shown(1, true), &completed(1), true, at(50), 50_000);
    assert_eq!(poll(&mut keeper, at(149), completed(1)), None);
    assert_eq!(poll(&mut keeper, at(150), completed(1)), Some(Chore::Remove(ID)));
}

/// Earlier, no test failed when an end that has just come, of an old epoch or for a task shown as
/// open, was repaired at once: another entry may be in flight.
#[test]
fn the_end_to_come_is_waited_for() {
    let other = TaskId { entry: 3, ..ID };
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &completed(2), true, at(20), 0);
    keeper.read(other, shown(1, false), &TaskFold::default(), true, at(20), 0);
    keeper.ended(other, &completed(2), true, at(21));
    assert_eq!(poll(&mut keeper, at(29), completed(2)), None);
    assert_eq!(poll(&mut keeper, at(30), completed(2)), Some(Chore::Repair(ID, Lack::Covered)));
    assert_eq!(poll(&mut keeper, at(30), completed(2)), None);
    assert_eq!(poll(&mut keeper, at(31), completed(2)), Some(Chore::Repair(other, Lack::Missing)));
}

/// Earlier, no test failed when a covered end still counted as shown, so that it was not published
/// again.
#[test]
fn an_end_that_was_covered_is_not_shown_any_more() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    keeper.read(ID, shown(1, false), &completed(1), true, at(1), 0);
    assert!(!keeper.has_shown_end(ID, Epoch(1)) && keeper.has_shown_any_end(ID));
}

/// Earlier, no test failed when the end that another worker has removed was shown again, nor when
/// such tasks were remembered for ever.
#[test]
fn an_end_that_left_counts_as_shown_until_its_task_is_sealed() {
    for (fold, remembered) in [(completed(1), true), (TaskFold::SEALED, false)] {
        let mut keeper = MetadataMaintenance::new(RETENTION);
        keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
        keeper.gone(ID, &fold);
        assert_eq!(keeper.has_shown_end(ID, Epoch(1)), remembered, "{fold:?}");

        let mut keeper = MetadataMaintenance::new(RETENTION);
        keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
        assert_eq!(poll(&mut keeper, at(100), fold), Some(Chore::Remove(ID)));
        assert_eq!(keeper.has_shown_any_end(ID), remembered, "{fold:?}");
    }
}

/// Earlier, no test failed when this was always false, or true only for removed ends.
#[test]
fn whether_any_end_was_shown_is_known_whatever_came_after_it() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, false), &completed(1), true, at(0), 0);
    assert!(!keeper.has_shown_any_end(ID), "it shows that the task runs");
    for terminal in [true, false] {
        keeper.read(ID, shown(1, terminal), &completed(1), true, at(1), 0);
        assert!(keeper.has_shown_any_end(ID), "{terminal}");
    }
    keeper.read(ID, shown(1, true), &completed(1), true, at(2), 0);
    keeper.gone(ID, &completed(1));
    assert!(keeper.has_shown_any_end(ID));
}

/// Earlier, no test failed when sealed tasks that were removed, or about to be, were removed again.
#[test]
fn a_sealed_task_that_m_shows_unfinished_is_removed_once() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, false), &TaskFold::default(), true, at(0), 0);
    keeper.sealed(ID..=ID, at(0));
    assert_eq!(poll(&mut keeper, at(10), TaskFold::SEALED), Some(Chore::Remove(ID)));
    keeper.missed(ID, at(10));
    assert_eq!(poll(&mut keeper, at(60), TaskFold::SEALED), None);

    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, false), &TaskFold::default(), true, at(0), 0);
    keeper.gone(ID, &TaskFold::SEALED);
    keeper.missed(ID, at(10));
    assert_eq!(poll(&mut keeper, at(60), TaskFold::SEALED), None);
}

/// Earlier, no test failed when tombstones of sealed tasks did not count, so that any number of
/// others went out beside them.
#[test]
fn tombstones_of_sealed_tasks_count_as_well() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    for entry in 10..10 + REMOVING_MAX as u64 {
        let task = TaskId { entry, ..ID };
        assert_eq!(keeper.next_removal(), Some(at(100)), "there is room for {entry}");
        keeper.read(task, shown(1, false), &TaskFold::SEALED, true, at(0), 0);
        keeper.sealed(task..=task, at(0));
        let chore = keeper.poll_repair(at(10), at(10), |_| TaskFold::SEALED, |_| false);
        assert_eq!(chore, Some(Chore::Remove(task)));
    }
    assert_eq!(keeper.next_removal(), None);
    keeper.removed(ID, true);
    assert_eq!(keeper.next_removal(), Some(at(100)));
}

/// Earlier, no test failed when an end was published for a task that, on a ledger read again, had
/// not ended.
#[test]
fn what_has_not_ended_as_far_as_the_ledger_says_is_not_repaired() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.missed(ID, at(0));
    assert_eq!(poll(&mut keeper, at(60), TaskFold::default()), None);
}

/// Earlier, no test failed when an end written by another implementation counted as one of an old
/// epoch, and was written again.
#[test]
fn a_foreign_end_is_the_ledgers() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.read(ID, ShownEntry { epoch: None, ..shown(1, true) }, &completed(1), true, at(0), 0);
    keeper.missed(ID, at(0));
    assert_eq!(poll(&mut keeper, at(60), completed(1)), None);
}

/// Earlier, no test failed when a worker that became the keeper again removed each result as soon
/// as it read it.
#[test]
fn who_keeps_m_again_keeps_it_with_the_same_retention() {
    let mut keeper = MetadataMaintenance::new(RETENTION);
    keeper.stop();
    keeper.read(ID, shown(1, true), &completed(1), true, at(0), 0);
    assert_eq!(keeper.next_removal(), Some(at(100)));
}
