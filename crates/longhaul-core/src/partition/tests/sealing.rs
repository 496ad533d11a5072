//! When finished tasks are sealed: by their age, by their number, in turns, and again when a seal
//! is lost.

use super::solo::{OTHER, Solo, task};
use super::*;
use crate::protocol::entry_set::{BatchOutcome, EntrySet};
use crate::protocol::key::SealKey;
use crate::protocol::seal::{EndedCounts, Seal};

/// The interval between two turns to close tasks that were left behind.
const TURN: Duration = Duration::from_secs(900);
/// The interval between two looks when something is due.
const SOON: Duration = Duration::from_millis(100);
/// The shortest time for which a finished task keeps its keys, even if there are many: 2 heartbeat
/// intervals and a minute.
const PRESSED: Duration = Duration::from_secs(80);

/// A worker at one of its looks, so that the ledger retention and turns end at later ones.
fn alone() -> Solo {
    let mut solo = Solo::new(2);
    solo.run_for(solo.core.look_after_at().since(solo.now));
    solo
}

/// The published seals, and when.
fn seals(did: &[(Moment, PartitionEffect)]) -> Vec<(Moment, Entry)> {
    let seals = did.iter().filter_map(|(at, effect)| {
        let PartitionEffect::Do(Action::Publish(entry @ Entry::Seal(_))) = effect else {
            return None;
        };
        Some((*at, entry.clone()))
    });
    seals.collect()
}

/// The only published seal: time, entry, and number of entries that it names.
#[track_caller]
fn seal(did: &[(Moment, PartitionEffect)]) -> (Moment, Entry, u64) {
    match seals(did).as_slice() {
        [(at, Entry::Seal(seal))] => (*at, Entry::Seal(seal.clone()), count(&seal.entries)),
        other => panic!("not one seal: {other:?}"),
    }
}

fn count(entries: &EntrySet) -> u64 {
    entries.ranges().map(|range| range.last - range.first + 1).sum()
}

/// The tasks that this worker has begun to close, and when.
fn closings(did: &[(Moment, PartitionEffect)]) -> Vec<(Moment, TaskId)> {
    let shown = did.iter().filter_map(|(at, effect)| {
        let PartitionEffect::Do(Action::ShowOutcome(id)) = effect else { return None };
        Some((*at, *id))
    });
    shown.collect()
}

/// Otherwise the tasks of a lost seal would keep their keys forever.
#[test]
fn a_seal_that_was_lost_is_published_again_after_2h() {
    let mut solo = alone();
    solo.closed(TASK);
    let (lost_at, _, named) = seal(&solo.run_for(R + SECOND));
    assert_eq!(named, 1);
    let (again_at, again, named) = seal(&solo.run_for(2 * H));
    assert_eq!(named, 1);
    let waited = again_at.since(lost_at);
    assert!(waited > 2 * H && waited <= 2 * H + 2 * SOON, "{waited:?}");
    assert_eq!(solo.core.finished(), 1);
    solo.land(again);
    assert_eq!(seals(&solo.run_for(R)), []);
    assert!(solo.core.machine().is_sealed(TASK) && solo.core.finished() == 0);
}

/// Regression: a union of seals that the broker refused as too large was published again at each
/// look, so finished tasks were never sealed.
#[test]
fn where_unions_are_lost_what_has_ended_is_sealed_all_the_same() {
    let mut solo = alone();
    for entry in 1..=16 {
        let mut entries = EntrySet::default();
        entries.push_entry(task(2 * entry).entry_id(), BatchOutcome::Completed);
        let key = SealKey { owner: OTHER, serial: entry };
        solo.land(Entry::Seal(Seal { key, counts: EndedCounts::default(), entries }));
    }
    solo.closed(TASK);
    let is_own = |(_, entry): &(Moment, Entry)| matches!(entry, Entry::Seal(solo) if count(&solo.entries) == 1);
    let did = seals(&solo.run_for(R + LOOK));
    let (_, own) = did.iter().find(|seal| is_own(seal)).expect("not unions alone");
    solo.land(own.clone());
    assert!(solo.core.machine().is_sealed(TASK));
    let then = seals(&solo.run_for(2 * LOOK));
    assert!(!then.is_empty() && !then.iter().any(is_own), "unions are not given up");
}

/// Reading a seal takes time for each of its tasks.
#[test]
fn not_more_than_ten_thousand_tasks_are_sealed_at_once() {
    let mut solo = alone();
    for entry in 0..10_001 {
        solo.closed(task(entry));
    }
    let (_, first, named) = seal(&solo.run_for(R));
    assert_eq!(named, 10_000);
    solo.land(first);
    let (_, second, named) = seal(&solo.run_for(5 * SECOND));
    assert_eq!(named, 1);
    solo.land(second);
    solo.run_for(SOON);
    assert_eq!(solo.core.finished(), 0);
}

/// Looking through tasks that other workers left behind must not delay anything else.
#[test]
fn not_more_than_ten_thousand_tasks_are_looked_at_at_once() {
    let mut solo = alone();
    for entry in 0..10_000 {
        solo.completed(task(entry));
    }
    solo.closed(task(10_000));
    assert_eq!(seals(&solo.run_for(R - STEP)), []);
    solo.now = solo.now + STEP;
    let first = solo.now;
    assert_eq!(solo.run(), []);
    let (then, _, named) = seal(&solo.run_for(SOON));
    assert_eq!((then.since(first), named), (SOON, 1));
}

/// More than 100,000 finished tasks are too many to keep for the ledger retention.
#[test]
fn above_a_hundred_thousand_finished_tasks_the_oldest_are_sealed_early() {
    let mut solo = alone();
    solo.closed(task(0));
    for entry in 1..100_000 {
        solo.completed(task(entry));
    }
    assert_eq!(seals(&solo.run_for(PRESSED + SECOND)), [], "they are not too many");
    solo.completed(task(100_000));
    let did = solo.run();
    assert!(matches!(did[..], [PartitionEffect::Do(Action::Publish(Entry::Seal(_)))]), "{did:?}");
}

/// Regression: while a seal was in flight for long and the next tasks became due, the worker looked
/// again at once, over and over.
#[test]
fn a_worker_under_pressure_rests_between_two_looks() {
    let mut solo = alone();
    let begin = solo.now;
    solo.closed(task(0));
    solo.now = solo.now + SECOND;
    for entry in 1..=100_001 {
        if entry <= 2 { solo.closed(task(entry)) } else { solo.completed(task(entry)) }
    }
    assert_eq!(solo.core.look_after_at(), begin + PRESSED, "nothing is due before");
    let (first, entry, named) = seal(&solo.run_for(PRESSED));
    assert_eq!(named, 1, "as soon as it is old enough");
    assert_eq!(solo.now.since(first), SECOND);
    assert_eq!(seals(&solo.run_for(SECOND)), [], "one is under way");
    solo.land(entry);
    let (second, _, named) = seal(&solo.run_for(PRESSED));
    assert_eq!((second.since(first), named), (5 * SECOND, 2));
}

/// Regression: a worker sealed the tasks of each tenth of a second as soon as the last seal was
/// back, ten times a second, and merged no seals. A day made 864,000 keys that no compaction
/// removes, and a start took hours.
#[test]
fn seals_are_few_and_merged_also_where_there_is_always_something_to_seal() {
    let (published, needed_max) = seals_of_a_busy_worker(|_| {});
    // Four minutes of seals, one every eighth of the ledger retention, and two unions.
    assert!((30..=40).contains(&published), "{published} seals");
    assert_eq!(needed_max, 16);
}

/// Regression: while a task left behind could not be closed, because its dead letter had no topic,
/// the worker looked for its end ten times a second, and sealed the due tasks each time.
#[test]
fn a_task_that_cannot_be_closed_makes_no_seals() {
    let (published, needed_max) = seals_of_a_busy_worker(|solo| {
        solo.claimed(task(1_000_000), None);
        solo.ended(task(1_000_000), Outcome::Final);
        solo.run_for(120 * SECOND);
    });
    assert!((45..=60).contains(&published), "one every five seconds, and unions: {published}");
    assert_eq!(needed_max, 16);
}

/// The ledger retention is a minute, and a task ends every 20 ms for five minutes. Returns the
/// number of published seals, and the most seals at a time that no other one covers.
fn seals_of_a_busy_worker(first: impl FnOnce(&mut Solo)) -> (usize, usize) {
    let (r, h, g) = (60 * SECOND, 2 * SECOND, 15 * SECOND);
    let ledger = LedgerConfig::default();
    let ledger = LedgerConfig { ledger_retention: r, heartbeat: h, self_fence: g, ..ledger };
    let mut solo = Solo::with(ledger, 2);
    solo.run();
    first(&mut solo);
    let (mut published, mut needed_max) = (0, 0);
    for entry in 0..15_000 {
        solo.closed(task(entry));
        for (_, effect) in solo.run_for(SECOND / 50) {
            if let PartitionEffect::Do(Action::Publish(seal @ Entry::Seal(_))) = effect {
                published += 1;
                solo.land(seal);
            } else if let PartitionEffect::Do(Action::Tombstone(_)) = effect {
                solo.core.handle_tombstoned(true, solo.now);
            }
        }
        needed_max = needed_max.max(solo.core.machine().seals().needed());
    }
    (published, needed_max)
}

/// A finisher that died, and one other worker.
#[test]
fn what_was_left_behind_is_closed_a_quarter_of_r_later_and_sealed_when_that_is_done() {
    let mut solo = alone();
    solo.completed(TASK);
    assert_eq!(solo.run_for(R), []);
    assert_eq!(solo.core.look_after_at(), solo.now + LOOK, "nothing is due before");
    assert_eq!(solo.run_for(TURN - STEP), []);
    let did = solo.run_for(STEP);
    assert_eq!(closings(&did), [(solo.now, TASK)]);
    // The metadata topic is unavailable for a while.
    assert_eq!(solo.run_for(LOOK), []);
    solo.see_to(TASK);
    let (then, entry, named) = seal(&solo.run_for(SECOND));
    assert_eq!(named, 1);
    assert!(solo.now.since(then) >= SECOND - SOON, "it is looked for soon");
    solo.land(entry);
    solo.run_for(SECOND);
    assert_eq!(solo.core.finished(), 0);
}

/// The first worker in line may be alive and do nothing.
#[test]
fn each_worker_in_line_waits_one_turn_longer() {
    let mut solo = alone();
    solo.alive = vec![OwnerId(20)];
    solo.run_for(LOOK);
    let places = [0, 1].map(|place| {
        let of_place = |entry: &u64| solo.core.rank(task(*entry), solo.now) == place;
        task((0..100).find(of_place).expect("some of them are ours"))
    });
    for id in places {
        solo.completed(id);
    }
    let begin = solo.now;
    let did = solo.run_for(R + 3 * TURN);
    let turns: Vec<_> = closings(&did).into_iter().map(|(at, id)| (id, at.since(begin))).collect();
    for (place, turn) in [(0, 1), (1, 2)] {
        let (id, took) = turns[place];
        let least = R + turn * TURN;
        assert!(id == places[place] && took >= least && took <= least + LOOK, "{turns:?}");
    }
    assert_eq!(turns.len(), 2);
}

/// Each of them costs an entry on the metadata topic and an ack.
#[test]
fn not_more_than_a_thousand_tasks_that_were_left_behind_are_closed_at_once() {
    let mut solo = alone();
    for entry in 0..1_002 {
        solo.completed(task(entry));
    }
    let begun = closings(&solo.run_for(R + TURN + LOOK));
    assert_eq!(begun.len(), 1_000);
    for (_, id) in begun {
        solo.see_to(id);
    }
    let did = solo.run_for(SOON);
    assert_eq!((seal(&did).2, closings(&did).len()), (1_000, 2));
}

/// Tasks that other workers close first are looked at in portions, too, and no portion delays the
/// next.
#[test]
fn whoever_waits_for_many_turns_looks_at_the_rest_soon() {
    let mut solo = alone();
    solo.alive = vec![OwnerId(20)];
    solo.run_for(LOOK);
    let place = |solo: &Solo, entry| solo.core.rank(task(entry), solo.now);
    let theirs: Vec<u64> = (0..).filter(|entry| place(&solo, *entry) == 1).take(10_000).collect();
    let ours = (theirs[9_999]..).find(|entry| place(&solo, *entry) == 0).expect("there is one");
    for entry in theirs {
        solo.completed(task(entry));
    }
    solo.completed(task(ours));
    let ended = solo.now;
    let closings = closings(&solo.run_for(R + TURN + LOOK));
    // The last one was taken a portion later than the others, and is looked at a portion later,
    // too.
    assert_eq!(closings, [(ended + R + TURN + 2 * SOON, task(ours))]);
}

/// The broker had forgotten an ack, and redelivered a task that another worker had finished long
/// ago.
#[test]
fn what_was_closed_before_its_turn_is_sealed_at_the_next_look_at_it() {
    let mut solo = alone();
    solo.completed(TASK);
    assert_eq!(solo.run_for(R + STEP), []);
    solo.deliver(TASK);
    solo.see_to(TASK);
    let (_, _, named) = seal(&solo.run_for(TURN));
    assert_eq!(named, 1);
}

/// The ack of a batch waits for its other tasks, and so does its seal.
#[test]
fn a_batch_that_was_left_behind_is_sealed_when_all_of_it_is_over() {
    let mut solo = alone();
    solo.alive = vec![OTHER];
    let [first, second] = solo.claimed_batch(TASK);
    solo.ended(first, Outcome::Completed);
    let did = solo.run_for(R + 2 * TURN);
    let shown: Vec<_> = closings(&did).into_iter().map(|(_, id)| id).collect();
    assert_eq!(shown, [first]);
    solo.core.handle_metadata_stored(first);
    assert_eq!(seals(&solo.run_for(R)), [], "the other one runs");
    solo.ended(second, Outcome::Completed);
    solo.core.handle_metadata_stored(second);
    solo.core.handle_acked(TASK.entry_id());
    let did = solo.run_for(TURN + LOOK);
    let (_, entry) = seals(&did).swap_remove(0);
    solo.land(entry);
    assert_eq!(seals(&solo.run_for(2 * R)), []);
    assert_eq!(solo.core.finished(), 0);
}

/// Regression: the tasks of a batch end at different times. The last one was treated as left behind
/// as soon as it ended, because the first had ended long ago, and was shown a second time while its
/// finisher was showing it.
#[test]
fn a_task_of_a_batch_is_left_behind_from_its_own_end_on() {
    let mut solo = alone();
    solo.alive = vec![OTHER];
    let [first, second] = solo.claimed_batch(TASK);
    solo.ended(first, Outcome::Completed);
    solo.run_for(R - LOOK);
    solo.ended(second, Outcome::Completed);
    let began = solo.now;
    let closed = closings(&solo.run_for(R + 3 * TURN));
    let both = closed.iter().filter(|(at, _)| at.since(began) >= R).map(|(_, id)| *id);
    assert_eq!(both.collect::<Vec<_>>(), [first, second], "{closed:?}");
    assert_eq!(closed.len(), 2);
}

/// The same if the last task reaches its age while the batch waits for the turn of the first.
#[test]
fn a_task_of_a_batch_that_waits_for_its_turn_is_left_behind_from_its_own_end_on() {
    let mut solo = alone();
    solo.alive = vec![OTHER];
    solo.run_for(LOOK);
    let ours =
        (0..100).find(|entry| solo.core.rank(task(*entry), solo.now) == 0).expect("some are ours");
    let [first, second] = solo.claimed_batch(task(ours));
    solo.ended(first, Outcome::Completed);
    solo.run_for(LOOK / 2 * 3);
    solo.ended(second, Outcome::Completed);
    let began = solo.now;
    let closed = closings(&solo.run_for(R + 3 * TURN));
    let late = |(at, _): &(Moment, TaskId)| at.since(began) >= R + TURN;
    assert!(closed.len() == 2 && closed.iter().all(late), "{closed:?} since {began:?}");
}

/// Regression: an unfinished batch was looked for at each turn as many times as there were end
/// times of its other tasks.
#[test]
fn a_batch_that_is_not_over_is_kept_once() {
    let mut solo = alone();
    let members: [_; 4] = solo.claimed_batch(TASK);
    solo.alive = vec![OTHER];
    for id in &members[..3] {
        solo.ended(*id, Outcome::Completed);
        solo.run_for(60 * SECOND);
    }
    assert_eq!(solo.core.finished(), 3, "each has its time");
    solo.run_for(R + LOOK);
    assert_eq!(solo.core.finished(), 1);
    let shown: Vec<_> = closings(&solo.run_for(R)).into_iter().map(|(_, id)| id).collect();
    assert_eq!(shown, members[..3]);
    for id in shown {
        solo.core.handle_metadata_stored(id);
    }
    solo.ended(members[3], Outcome::Completed);
    solo.see_to(members[3]);
    let (_, entry) = seals(&solo.run_for(TURN + LOOK)).swap_remove(0);
    solo.land(entry);
    // The last end reaches its age.
    assert_eq!(seals(&solo.run_for(R + TURN)), []);
    assert_eq!(solo.core.finished(), 0);
}

/// Regression: a draining worker went on closing tasks that others had left behind, 20,000 of them,
/// and gave up at its deadline.
#[test]
fn a_worker_that_drains_closes_nothing_of_others() {
    let mut solo = alone();
    solo.completed(TASK);
    solo.run_for(R + TURN - STEP);
    solo.core.drain(solo.now);
    assert_eq!(closings(&solo.run_for(2 * TURN)), []);
}
