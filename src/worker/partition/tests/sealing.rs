//! When what is over is sealed: by its age, by how much of it there is, in turns, and again when a seal is lost.

use super::solo::{OTHER, Solo};
use super::*;
use crate::protocol::entry_set::{Ended, EntrySet};
use crate::protocol::key::SealKey;
use crate::protocol::seal::{Counts, Seal};

/// Between two looks when nothing is due.
const LOOK: Duration = Duration::from_secs(450);
/// Between two turns to close what was left behind.
const TURN: Duration = Duration::from_secs(900);
/// Between two looks when something is due.
const SOON: Duration = Duration::from_millis(100);
/// What is over keeps its keys for so long even where there is much of it: 2 H and a minute.
const PRESSED: Duration = Duration::from_secs(80);
const SECOND: Duration = Duration::from_secs(1);

/// A worker at one of its looks, so that R and turns end at later ones.
fn alone() -> Solo {
    let mut it = Solo::new(2);
    it.run_for(it.core.look_after_at().since(it.now));
    it
}

fn at(entry: u64) -> TaskId {
    TaskId { entry, ..TASK }
}

/// The seals among what was done, and when.
fn seals(did: &[(Moment, Effect)]) -> Vec<(Moment, Entry)> {
    let seals = did.iter().filter_map(|(at, effect)| {
        let Effect::Do(Action::Publish(entry @ Entry::Seal(_))) = effect else { return None };
        Some((*at, entry.clone()))
    });
    seals.collect()
}

/// The only seal of what was done, when it was published, and how many entries it names.
#[track_caller]
fn seal(did: &[(Moment, Effect)]) -> (Moment, Entry, u64) {
    match seals(did).as_slice() {
        [(at, Entry::Seal(seal))] => (*at, Entry::Seal(seal.clone()), count(&seal.entries)),
        other => panic!("not one seal: {other:?}"),
    }
}

fn count(entries: &EntrySet) -> u64 {
    entries.ranges().map(|range| range.last - range.first + 1).sum()
}

/// What this worker has begun to close, and when.
fn closings(did: &[(Moment, Effect)]) -> Vec<(Moment, TaskId)> {
    let shown = did.iter().filter_map(|(at, effect)| {
        let Effect::Do(Action::ShowOutcome(id)) = effect else { return None };
        Some((*at, *id))
    });
    shown.collect()
}

/// A seal that did not come back took its tasks along: they would keep their keys for ever.
#[test]
fn a_seal_that_was_lost_is_published_again_after_2h() {
    let mut it = alone();
    it.closed(TASK);
    let (lost_at, _, named) = seal(&it.run_for(R + SECOND));
    assert_eq!(named, 1);
    let (again_at, again, named) = seal(&it.run_for(2 * H));
    assert_eq!(named, 1);
    let waited = again_at.since(lost_at);
    assert!(waited > 2 * H && waited <= 2 * H + 2 * SOON, "{waited:?}");
    assert_eq!(it.core.finished(), 1);
    it.land(again);
    assert_eq!(seals(&it.run_for(R)), []);
    assert!(it.core.machine().is_sealed(TASK) && it.core.finished() == 0);
}

/// A union of seals that the broker refused, because it was too large for it, was published again at each look: what had ended was never sealed.
#[test]
fn where_unions_are_lost_what_has_ended_is_sealed_all_the_same() {
    let mut it = alone();
    for entry in 1..=16 {
        let mut entries = EntrySet::default();
        entries.push_entry(at(2 * entry).entry_id(), Ended::Completed);
        let key = SealKey { owner: OTHER, serial: entry };
        it.land(Entry::Seal(Seal { key, counts: Counts::default(), entries }));
    }
    it.closed(TASK);
    let is_own =
        |(_, entry): &(Moment, Entry)| matches!(entry, Entry::Seal(it) if count(&it.entries) == 1);
    let did = seals(&it.run_for(R + LOOK));
    let (_, own) = did.iter().find(|seal| is_own(seal)).expect("not unions alone");
    it.land(own.clone());
    assert!(it.core.machine().is_sealed(TASK));
    let then = seals(&it.run_for(2 * LOOK));
    assert!(!then.is_empty() && !then.iter().any(is_own), "unions are not given up");
}

/// Each reader of a seal takes time for each of its tasks.
#[test]
fn not_more_than_ten_thousand_tasks_are_sealed_at_once() {
    let mut it = alone();
    for entry in 0..10_001 {
        it.closed(at(entry));
    }
    let (_, first, named) = seal(&it.run_for(R));
    assert_eq!(named, 10_000);
    it.land(first);
    let (_, second, named) = seal(&it.run_for(5 * SECOND));
    assert_eq!(named, 1);
    it.land(second);
    it.run_for(SOON);
    assert_eq!(it.core.finished(), 0);
}

/// Looking through what others have left behind holds up nothing else.
#[test]
fn not_more_than_ten_thousand_tasks_are_looked_at_at_once() {
    let mut it = alone();
    for entry in 0..10_000 {
        it.completed(at(entry));
    }
    it.closed(at(10_000));
    assert_eq!(seals(&it.run_for(R - STEP)), []);
    it.now = it.now + STEP;
    let first = it.now;
    assert_eq!(it.run(), []);
    let (then, _, named) = seal(&it.run_for(SOON));
    assert_eq!((then.since(first), named), (SOON, 1));
}

/// More than 100,000 finished tasks are too many to be kept for R.
#[test]
fn above_a_hundred_thousand_finished_tasks_the_oldest_are_sealed_early() {
    let mut it = alone();
    it.closed(at(0));
    for entry in 1..100_000 {
        it.completed(at(entry));
    }
    assert_eq!(seals(&it.run_for(PRESSED + SECOND)), [], "they are not too many");
    it.completed(at(100_000));
    let did = it.run();
    assert!(matches!(did[..], [Effect::Do(Action::Publish(Entry::Seal(_)))]), "{did:?}");
}

/// While a seal was under way for long and the next tasks were due by then, the worker looked again at once, and again.
#[test]
fn a_worker_under_pressure_rests_between_two_looks() {
    let mut it = alone();
    let begin = it.now;
    it.closed(at(0));
    it.now = it.now + SECOND;
    for entry in 1..=100_001 {
        if entry <= 2 { it.closed(at(entry)) } else { it.completed(at(entry)) }
    }
    assert_eq!(it.core.look_after_at(), begin + PRESSED, "nothing is due before");
    let (first, entry, named) = seal(&it.run_for(PRESSED));
    assert_eq!(named, 1, "as soon as it is old enough");
    assert_eq!(it.now.since(first), SECOND);
    assert_eq!(seals(&it.run_for(SECOND)), [], "one is under way");
    it.land(entry);
    let (second, _, named) = seal(&it.run_for(PRESSED));
    assert_eq!((second.since(first), named), (5 * SECOND, 2));
}

/// Whoever had sealed a tenth of a second's tasks sealed those of the next as soon as the seal was back, ten times a second, and merged none of
/// them: a day made 864,000 keys that no compaction removes, and a start of hours.
#[test]
fn seals_are_few_and_merged_also_where_there_is_always_something_to_seal() {
    let (published, needed_max) = seals_of_a_busy_worker(|_| {});
    // Four minutes of seals, one every eighth of R, and two unions.
    assert!((30..=40).contains(&published), "{published} seals");
    assert_eq!(needed_max, 16);
}

/// While a task that was left behind could not be closed, for want of a topic for its dead letter, the worker looked for its end ten times a
/// second, and sealed what was due each time.
#[test]
fn a_task_that_cannot_be_closed_makes_no_seals() {
    let (published, needed_max) = seals_of_a_busy_worker(|it| {
        it.claimed(at(1_000_000), None);
        it.ended(at(1_000_000), Outcome::Final);
        it.run_for(120 * SECOND);
    });
    assert!((45..=60).contains(&published), "one every five seconds, and unions: {published}");
    assert_eq!(needed_max, 16);
}

/// R is a minute, and a task comes to its end every 20 ms, for five minutes. Returns how many seals were published, and how many there were at
/// most that no other one covers.
fn seals_of_a_busy_worker(first: impl FnOnce(&mut Solo)) -> (usize, usize) {
    let (r, h, g) = (60 * SECOND, 2 * SECOND, 15 * SECOND);
    let ledger = crate::WorkerConfig::default().ledger();
    let ledger = LedgerConfig { ledger_retention: r, heartbeat: h, self_fence: g, ..ledger };
    let mut it = Solo::with(ledger, 2);
    it.run();
    first(&mut it);
    let (mut published, mut needed_max) = (0, 0);
    for entry in 0..15_000 {
        it.closed(at(entry));
        for (_, effect) in it.run_for(SECOND / 50) {
            if let Effect::Do(Action::Publish(seal @ Entry::Seal(_))) = effect {
                published += 1;
                it.land(seal);
            } else if let Effect::Do(Action::Tombstone(_)) = effect {
                it.core.handle_tombstoned(true, it.now);
            }
        }
        needed_max = needed_max.max(it.core.machine().seals().needed());
    }
    (published, needed_max)
}

/// A finisher that died, and one other worker.
#[test]
fn what_was_left_behind_is_closed_a_quarter_of_r_later_and_sealed_when_that_is_done() {
    let mut it = alone();
    it.completed(TASK);
    assert_eq!(it.run_for(R), []);
    assert_eq!(it.core.look_after_at(), it.now + LOOK, "nothing is due before");
    assert_eq!(it.run_for(TURN - STEP), []);
    let did = it.run_for(STEP);
    assert_eq!(closings(&did), [(it.now, TASK)]);
    // The metadata topic is away for a while.
    assert_eq!(it.run_for(LOOK), []);
    it.see_to(TASK);
    let (then, entry, named) = seal(&it.run_for(SECOND));
    assert_eq!(named, 1);
    assert!(it.now.since(then) >= SECOND - SOON, "it is looked for soon");
    it.land(entry);
    it.run_for(SECOND);
    assert_eq!(it.core.finished(), 0);
}

/// Whoever is first may be there and do nothing about it.
#[test]
fn each_worker_in_line_waits_one_turn_longer() {
    let mut it = alone();
    it.alive = vec![OwnerId(20)];
    it.run_for(LOOK);
    let places = [0, 1].map(|place| {
        let of_place = |entry: &u64| it.core.rank(at(*entry), it.now) == place;
        at((0..100).find(of_place).expect("some of them are ours"))
    });
    for id in places {
        it.completed(id);
    }
    let begin = it.now;
    let did = it.run_for(R + 3 * TURN);
    let turns: Vec<_> = closings(&did).into_iter().map(|(at, id)| (id, at.since(begin))).collect();
    for (place, turn) in [(0, 1), (1, 2)] {
        let (id, took) = turns[place];
        let least = R + turn * TURN;
        assert!(id == places[place] && took >= least && took <= least + LOOK, "{turns:?}");
    }
    assert_eq!(turns.len(), 2);
}

/// Each of them costs an entry on the metadata topic, and an ack.
#[test]
fn not_more_than_a_thousand_tasks_that_were_left_behind_are_closed_at_once() {
    let mut it = alone();
    for entry in 0..1_002 {
        it.completed(at(entry));
    }
    let begun = closings(&it.run_for(R + TURN + LOOK));
    assert_eq!(begun.len(), 1_000);
    for (_, id) in begun {
        it.see_to(id);
    }
    let did = it.run_for(SOON);
    assert_eq!((seal(&did).2, closings(&did).len()), (1_000, 2));
}

/// What others see to first is looked at in portions, too, and no portion holds up the next.
#[test]
fn whoever_waits_for_many_turns_looks_at_the_rest_soon() {
    let mut it = alone();
    it.alive = vec![OwnerId(20)];
    it.run_for(LOOK);
    let place = |it: &Solo, entry| it.core.rank(at(entry), it.now);
    let theirs: Vec<u64> = (0..).filter(|entry| place(&it, *entry) == 1).take(10_000).collect();
    let ours = (theirs[9_999]..).find(|entry| place(&it, *entry) == 0).expect("there is one");
    for entry in theirs {
        it.completed(at(entry));
    }
    it.completed(at(ours));
    let ended = it.now;
    let closings = closings(&it.run_for(R + TURN + LOOK));
    // The last one was taken a portion later than the others, and is looked at a portion later, too.
    assert_eq!(closings, [(ended + R + TURN + 2 * SOON, at(ours))]);
}

/// The broker had forgotten an ack, and delivered what another worker had finished long ago.
#[test]
fn what_was_closed_before_its_turn_is_sealed_at_the_next_look_at_it() {
    let mut it = alone();
    it.completed(TASK);
    assert_eq!(it.run_for(R + STEP), []);
    it.deliver(TASK);
    it.see_to(TASK);
    let (_, _, named) = seal(&it.run_for(TURN));
    assert_eq!(named, 1);
}

/// The ack of a batch waits for its other tasks, and so does its seal.
#[test]
fn a_batch_that_was_left_behind_is_sealed_when_all_of_it_is_over() {
    let mut it = alone();
    it.alive = vec![OTHER];
    let [first, second] = it.claimed_batch(TASK);
    it.ended(first, Outcome::Completed);
    let did = it.run_for(R + 2 * TURN);
    let shown: Vec<_> = closings(&did).into_iter().map(|(_, id)| id).collect();
    assert_eq!(shown, [first]);
    it.core.handle_metadata_stored(first);
    assert_eq!(seals(&it.run_for(R)), [], "the other one runs");
    it.ended(second, Outcome::Completed);
    it.core.handle_metadata_stored(second);
    it.core.handle_acked(TASK.entry_id());
    let did = it.run_for(TURN + LOOK);
    let (_, entry) = seals(&did).swap_remove(0);
    it.land(entry);
    assert_eq!(seals(&it.run_for(2 * R)), []);
    assert_eq!(it.core.finished(), 0);
}

/// The tasks of a batch end at different times: the last one was taken for left behind as soon as it ended, for the first had ended long ago, and
/// was shown a second time while its finisher was showing it.
#[test]
fn a_task_of_a_batch_is_left_behind_from_its_own_end_on() {
    let mut it = alone();
    it.alive = vec![OTHER];
    let [first, second] = it.claimed_batch(TASK);
    it.ended(first, Outcome::Completed);
    it.run_for(R - LOOK);
    it.ended(second, Outcome::Completed);
    let began = it.now;
    let closed = closings(&it.run_for(R + 3 * TURN));
    let both = closed.iter().filter(|(at, _)| at.since(began) >= R).map(|(_, id)| *id);
    assert_eq!(both.collect::<Vec<_>>(), [first, second], "{closed:?}");
    assert_eq!(closed.len(), 2);
}

/// The same where the last one came of age while the batch waited for the turn of the first.
#[test]
fn a_task_of_a_batch_that_waits_for_its_turn_is_left_behind_from_its_own_end_on() {
    let mut it = alone();
    it.alive = vec![OTHER];
    it.run_for(LOOK);
    let ours = (0..100).find(|entry| it.core.rank(at(*entry), it.now) == 0).expect("some are ours");
    let [first, second] = it.claimed_batch(at(ours));
    it.ended(first, Outcome::Completed);
    it.run_for(LOOK / 2 * 3);
    it.ended(second, Outcome::Completed);
    let began = it.now;
    let closed = closings(&it.run_for(R + 3 * TURN));
    let late = |(at, _): &(Moment, TaskId)| at.since(began) >= R + TURN;
    assert!(closed.len() == 2 && closed.iter().all(late), "{closed:?} since {began:?}");
}

/// A batch of which a task was not over was looked for at each turn once for each time at which another one of its tasks had ended.
#[test]
fn a_batch_that_is_not_over_is_kept_once() {
    let mut it = alone();
    let members: [_; 4] = it.claimed_batch(TASK);
    it.alive = vec![OTHER];
    for id in &members[..3] {
        it.ended(*id, Outcome::Completed);
        it.run_for(60 * SECOND);
    }
    assert_eq!(it.core.finished(), 3, "each has its time");
    it.run_for(R + LOOK);
    assert_eq!(it.core.finished(), 1);
    let shown: Vec<_> = closings(&it.run_for(R)).into_iter().map(|(_, id)| id).collect();
    assert_eq!(shown, members[..3]);
    for id in shown {
        it.core.handle_metadata_stored(id);
    }
    it.ended(members[3], Outcome::Completed);
    it.see_to(members[3]);
    let (_, entry) = seals(&it.run_for(TURN + LOOK)).swap_remove(0);
    it.land(entry);
    // The last end comes of age.
    assert_eq!(seals(&it.run_for(R + TURN)), []);
    assert_eq!(it.core.finished(), 0);
}

/// A worker that was to leave went on closing what others had left behind, 20,000 tasks of them, and gave up at its deadline.
#[test]
fn a_worker_that_drains_closes_nothing_of_others() {
    let mut it = alone();
    it.completed(TASK);
    it.run_for(R + TURN - STEP);
    it.core.drain(it.now);
    assert_eq!(closings(&it.run_for(2 * TURN)), []);
}
