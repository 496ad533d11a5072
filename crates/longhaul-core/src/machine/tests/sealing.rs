//! The entries that a seal may name, the limit of their number, and the effects of others' seals.

use super::*;
use crate::protocol::seal::{SEAL_BYTES_MAX, encode};

/// Another worker has completed the task, and this one has closed it.
fn close(bench: &mut Bench, task: TaskId) {
    let owner = OTHER;
    let key = |serial| OnceKey { task, epoch: Epoch(1), owner, serial };
    let (kind, batch_size, base) = (ClaimKind::Run, None, None);
    bench.land(&Entry::Claim(Claim { batch_size, base, ..Claim::plain(key(1), 1, kind) }));
    bench.land(&Entry::Done(Done {
        key: key(2),
        attempt: 1,
        outcome: Outcome::Completed,
        writer: None,
    }));
    bench.machine.close(task);
    bench.machine.metadata_stored(task);
    bench.machine.acked(task.entry_id());
    bench.actions();
}

/// A seal is final: whatever the claims say of the batch size, an entry with a running task is not
/// sealed.
#[test]
fn an_entry_of_which_a_task_runs_is_not_sealed() {
    let mut bench = Bench::new();
    let [first, second] = [0, 1].map(|index| TaskId { batch_index: Some(index), ..T });
    close(&mut bench, first);
    assert!(bench.machine.may_seal(T.entry_id()));
    let key = OnceKey { task: second, epoch: Epoch(1), owner: OTHER, serial: 3 };
    let (attempt, kind) = (1, ClaimKind::Run);
    bench.land(&Entry::Claim(Claim::plain(key, attempt, kind)));
    assert!(!bench.machine.may_seal(T.entry_id()));
    assert_eq!(bench.machine.seal(&[T.entry_id()]), 0);
}

/// Every reader would refuse a larger seal.
#[test]
fn a_seal_is_as_large_as_it_may_be_and_takes_the_first_half_of_more() {
    // Eighteen bytes each, in ledgers of their own, and the last one has the remaining size.
    const FULL: u64 = 3_641;
    let place = |number: u64| {
        let entry = if number == FULL { 1 << 42 } else { 1 << 63 };
        TaskId { ledger: number << 42, entry, ..T }
    };
    let mut bench = Bench::new();
    let mut ids = Vec::new();
    for id in (1..=FULL + 1).map(place) {
        close(&mut bench, id);
        ids.push(id.entry_id());
    }
    let mut publish = |some: &[EntryId]| {
        let count = bench.machine.seal(some);
        let action = bench.actions().pop();
        bench.machine.seal_failed();
        let Some(Action::Publish(Entry::Seal(seal))) = action else { panic!("{action:?}") };
        assert_eq!((seal.entries.len(), seal.counts.completed), (count, count as u64));
        (encode(&seal.entries).len(), seal.entries)
    };
    let (bytes, all) = publish(&ids[..ids.len() - 1]);
    assert_eq!((bytes, all.len() as u64), (SEAL_BYTES_MAX, FULL));
    let (_, half) = publish(&ids);
    assert_eq!(half.len() as u64, FULL.div_ceil(2));
    assert!(ids.iter().take(half.len()).all(|id| half.get(*id).is_some()));
}

/// Another worker's seal says nothing about the own one, which may still land.
#[test]
fn one_seal_is_under_way_at_a_time_until_it_comes_back() {
    let mut bench = Bench::new();
    let next = TaskId { entry: T.entry + 1, ..T };
    close(&mut bench, T);
    close(&mut bench, next);
    let Entry::Seal(own) = sealed(&mut bench) else { panic!("not a seal") };
    let mut other = own.clone();
    other.key.owner = OTHER;
    other.entries = EntrySet::default();
    other.entries.push_entry(next.entry_id(), BatchOutcome::Completed);
    bench.land(&Entry::Seal(other));
    assert!(bench.machine.seals_underway());
    bench.machine.merge_seals(1);
    assert_eq!(bench.actions(), [], "nor is a union published meanwhile");
    bench.land(&Entry::Seal(own));
    assert!(!bench.machine.seals_underway());
    bench.machine.merge_seals(1);
    assert_eq!(bench.actions().len(), 1);
}

#[test]
fn who_has_not_read_all_seals_does_not_merge_them() {
    let mut bench = Bench::new();
    let next = TaskId { entry: T.entry + 1, ..T };
    close(&mut bench, T);
    let Entry::Seal(first) = sealed(&mut bench) else { panic!("not a seal") };
    let mut second = first.clone();
    second.key.serial += 1;
    second.entries = EntrySet::default();
    second.entries.push_entry(next.entry_id(), BatchOutcome::Failed);
    let mut reading = Bench { machine: Machine::new(OwnerId(3), 3), length: 0 };
    for seal in [first, second] {
        reading.land(&Entry::Seal(seal));
    }
    reading.machine.merge_seals(2);
    assert_eq!(reading.actions(), []);
    reading.machine.bootstrap_ended();
    reading.machine.merge_seals(2);
    assert_eq!(reading.actions().len(), 1);
}

/// A task may be known only by its delivery, or only by its keys.
#[test]
fn a_seal_has_no_more_to_end_than_there_is() {
    let mut closed_here = Bench::new();
    closed(&mut closed_here);
    let seal = sealed(&mut closed_here);
    assert_eq!(closed_here.land(&seal), [], "nothing is held, and no payload");
    assert_eq!(closed_here.machine.left(), 1);

    let mut holder = Bench::new();
    holder.machine.delivered(T, None);
    let actions = [Action::Ack(T.entry_id()), Action::DropPayload(T)];
    assert_eq!(holder.land(&seal), actions);
    assert_eq!(holder.machine.left(), 0, "it has no keys");
}

/// A reader that starts over at the beginning of the ledger already knows its seals.
#[test]
fn a_seal_that_is_read_again_changes_nothing() {
    let mut bench = Bench::new();
    closed(&mut bench);
    let Entry::Seal(seal) = sealed(&mut bench) else { panic!("not a seal") };
    let at = |entry| Position { ledger: 1, entry, batch_index: None };
    assert_eq!(bench.machine.read_seal(at(1), &seal), [T]);
    bench.actions();
    let before = bench.machine.clone();
    let mut other = seal.clone();
    other.key.serial += 1;
    for position in [at(1), at(0)] {
        assert_eq!(bench.machine.read_seal(position, &other), []);
        assert_eq!(bench.machine, before);
    }
    assert_eq!(bench.machine.read_seal(at(2), &other), []);
    assert_ne!(bench.machine, before);
    let unknown = TaskId { entry: 99, ..T };
    assert_eq!(bench.machine.fold(T), TaskFold::SEALED);
    assert_eq!(bench.machine.fold(unknown), TaskFold::default());
}

/// If all tasks come from another cluster, and none of this one is ever sealed, memory must not
/// grow without limit.
#[test]
fn dropped_entries_wait_for_a_seal_up_to_a_limit() {
    const MAX: u64 = 100_000;
    let mut bench = Bench::new();
    for entry in 0..=MAX {
        bench.machine.drop_entry(EntryId { ledger: 1, entry });
    }
    assert_eq!(bench.machine.dropped() as u64, MAX);
}
