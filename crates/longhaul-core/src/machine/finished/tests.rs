//! Compares the set with a plain map, and checks its size.

use super::*;
use crate::task::EntryId;
use proptest::collection::vec;
use proptest::prelude::*;

fn id(number: u16) -> TaskId {
    let batch_index = (!number.is_multiple_of(3)).then_some(u32::from(number % 3));
    TaskId { ledger: 1, entry: u64::from(number / 3), partition: -1, batch_index }
}

fn key(owner: u128, epoch: u32, serial: u64) -> OnceKey {
    OnceKey { task: id(0), epoch: Epoch(epoch), owner: OwnerId(owner), serial }
}

fn any_trail(owner: u128, epoch: u32) -> impl Strategy<Value = Trail> {
    let other = vec((0..3_u128, 0..3_u32, 0..5_u64, any::<bool>(), any::<bool>()), 0..4);
    let other = (other, any::<bool>()).prop_map(|(keys, cancel)| {
        let mut trail = Trail::default();
        trail.cancel = cancel;
        for (owner, epoch, serial, accepted, base) in keys {
            trail.record_claim(key(owner, epoch, serial), accepted, base);
        }
        trail
    });
    let pair = (any::<u64>(), any::<u32>()).prop_map(move |(claim, higher)| {
        let mut trail = Trail::default();
        trail.record_claim(key(owner, epoch, claim), true, false);
        trail.note(key(owner, epoch, claim.saturating_add(u64::from(higher))), true);
        trail
    });
    prop_oneof![1 => other, 3 => pair]
}

prop_compose! {
    fn any_task()(owner in 0..4_u128, epoch in 0..3_u32)(
        trail in any_trail(owner, epoch),
        owner in Just(OwnerId(owner)),
        epoch in Just(Epoch(epoch)),
        phase in prop::sample::select(
            vec![Phase::Completed, Phase::Final, Phase::Cancelled, Phase::Expired],
        ),
        numbers in (0..4_u32, any::<u64>(), any::<u64>(), prop::option::of(1..=u32::MAX)),
        state_at in prop::option::of((any::<u64>(), any::<u64>(), prop::option::of(any::<u32>()))),
        bools in any::<[bool; 8]>(),
    ) -> Task {
        let (attempt, state_ms, created_ms, batch_size) = numbers;
        let [closed, cancel, taken_over, dead_letter, shown, acked, saved, by_other] = bools;
        let mut own_record = OwnRecord::default();
        (own_record.dead_letter, own_record.shown, own_record.acked) = (dead_letter, shown, acked);
        let at = |(ledger, entry, batch_index)| Position { ledger, entry, batch_index };
        let next_attempt = NextAttempt::default();
        let saved_at = Position { ledger: 5, entry: 5, batch_index: None };
        Task {
            fold: TaskFold { epoch, attempt, owner, phase, cancel, next_attempt },
            stage: if closed { Stage::Closing(TerminalStep::Closed) } else { Stage::Idle },
            batch_size,
            state_at: state_at.map(at),
            state_ms,
            ended_by: by_other.then(|| Box::new(OwnerId(9))),
            checkpoint: saved.then(|| Box::new((saved_at, key(1, 1, 1)))),
            created_ms,
            taken_over,
            own_record,
            trail,
            ..Task::default()
        }
    }
}

/// The order in which tasks are inserted.
#[derive(Clone, Copy, Debug)]
enum Order {
    Up,
    Down,
    /// Every other one, and then the others between them.
    Between,
}

impl Order {
    fn of(self, count: u16) -> Vec<u16> {
        match self {
            Self::Up => (0..count).collect(),
            Self::Down => (0..count).rev().collect(),
            Self::Between => (0..count).step_by(2).chain((1..count).step_by(2)).collect(),
        }
    }
}

/// An operation on the set.
#[derive(Clone, Debug)]
enum Happens {
    Put(u16, Box<Task>),
    Taken(u16),
    AllTaken(u16, u16),
}

fn happens() -> impl Strategy<Value = Happens> {
    let number = 0..600_u16;
    prop_oneof![
        6 => (number.clone(), any_task()).prop_map(|(at, task)| Happens::Put(at, Box::new(task))),
        2 => number.clone().prop_map(Happens::Taken),
        1 => (number, 0..40_u16).prop_map(|(at, many)| Happens::AllTaken(at, at + many)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn it_holds_what_was_put_in(
        before in 0..900_u16,
        order in prop::sample::select(vec![Order::Up, Order::Down, Order::Between]),
        happen in vec(happens(), 0..800),
        task in any_task(),
    ) {
        let mut finished = FinishedTasks::default();
        let mut model = BTreeMap::new();
        // Enough for a few chunks.
        for number in order.of(before) {
            finished.insert(id(number), task.clone());
            model.insert(id(number), task.clone());
        }
        for happens in happen {
            match happens {
                Happens::Put(number, task) => {
                    prop_assert!(FinishedTasks::takes(&task));
                    prop_assert_eq!(finished.remove(id(number)), model.remove(&id(number)));
                    finished.insert(id(number), (*task).clone());
                    model.insert(id(number), *task);
                }
                Happens::Taken(number) => {
                    prop_assert_eq!(finished.remove(id(number)), model.remove(&id(number)));
                }
                Happens::AllTaken(first, last) => {
                    let ids = id(first)..=id(last);
                    let all: Vec<_> = model.range(ids.clone()).map(|(id, task)| (*id, task.clone())).collect();
                    model.retain(|id, _| !ids.contains(id));
                    prop_assert!(finished.range(&ids).eq(all.iter().cloned()));
                    prop_assert_eq!(finished.remove_range(&ids), all);
                }
            }
        }
        prop_assert!(finished.iter().eq(model.iter().map(|(id, task)| (*id, task.clone()))));
        for number in 0..900 {
            prop_assert_eq!(finished.get(id(number)), model.get(&id(number)).cloned());
            let entry = EntryId { ledger: 1, entry: u64::from(number) };
            let of_entry = model.range(TaskId::all_of(entry)).map(|(id, task)| (*id, task.clone()));
            prop_assert!(finished.range(&TaskId::all_of(entry)).eq(of_entry));
        }
        let apart = finished.trails.len() + finished.checkpoints.len();
        finished.remove_range(&(id(0)..=id(u16::MAX)));
        prop_assert!(finished.chunks.is_empty(), "{} chunks", finished.chunks.len());
        prop_assert!(finished.trails.is_empty() && finished.checkpoints.is_empty(), "{apart} before");
    }
}

/// Earlier, tasks were only inserted in order, which never splits a chunk: no test failed when half
/// of a chunk was lost, when each task got a chunk of its own, or when a chunk had too much room.
#[test]
fn chunks_are_full_whatever_the_order_and_have_little_room_to_spare() {
    for (order, expected) in [
        (Order::Up, vec![CHUNK_MAX, CHUNK_MAX, 88]),
        (Order::Down, vec![88, CHUNK_MAX, CHUNK_MAX]),
        (Order::Between, vec![CHUNK_MAX, CHUNK_MAX, 88]),
    ] {
        let mut finished = FinishedTasks::default();
        for number in order.of(600) {
            finished.insert(id(number), Task::default());
        }
        let lengths: Vec<_> = finished.chunks.values().map(|chunk| chunk.records.len()).collect();
        assert_eq!(lengths, expected, "{order:?}");
        for RecordChunk { records, .. } in finished.chunks.values() {
            assert_eq!(records.capacity(), records.len().next_multiple_of(ROOM), "{order:?}");
        }
        assert_eq!(finished.iter().count(), 600);
        for number in 0..600 {
            assert!(finished.remove(id(number)).is_some(), "{order:?} {number}");
        }
        assert!(finished.chunks.is_empty());
    }
}

/// A chunk in which more owners have ended tasks than it can name forgets some, but none that is
/// needed.
#[test]
fn a_chunk_may_see_any_number_of_owners() {
    let mut finished = FinishedTasks::default();
    let task = |owner| {
        let mut task = Task::default();
        task.fold.phase = Phase::Completed;
        task.fold.owner = OwnerId(owner);
        task
    };
    for round in 0..4 {
        for number in 0..CHUNK_MAX as u128 {
            let (owner, id) = (round * 1_000 + number, id(u16::try_from(number).unwrap()));
            finished.remove(id);
            finished.insert(id, task(owner));
            assert_eq!(finished.get(id).map(|task| task.fold.owner), Some(OwnerId(owner)));
        }
    }
    let owners: Vec<u128> = finished.iter().map(|(_, task)| task.fold.owner.0).collect();
    assert_eq!(owners, (3_000..3_000 + CHUNK_MAX as u128).collect::<Vec<_>>());
    assert!(finished.chunks.values().all(|chunk| chunk.owners.len() <= CHUNK_MAX));
}

/// Finished tasks are most of a worker's data: a million of them must fit into 128 MB, including
/// all related data.
#[test]
fn a_record_is_small() {
    assert!(size_of::<FinishedRecord>() <= 104, "{}", size_of::<FinishedRecord>());
}
