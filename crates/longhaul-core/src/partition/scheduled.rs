//! Deliveries that came before their scheduled time, kept as ids: a task that starts in a month
//! needs no payload, no slot and no credit of the broker until then. They are dropped with the
//! session that brought them, and the broker delivers them again.
//!
//! 32 bytes each, in one heap: a million take 32 MB, or 64 MB while the heap grows. Pure.

use crate::protocol::moment::Moment;
use crate::task::{EntryId, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hash::{Hash, Hasher};

/// Maximum number kept per partition. A delivery beyond that is neither kept nor given back: it
/// comes again with the next session.
const KEPT_MAX: usize = 10_000_000;

/// The kept deliveries of a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Scheduled {
    kept: BinaryHeap<Reverse<ScheduledStart>>,
    /// Tasks that must not wait any longer if they are kept.
    sought: BTreeSet<TaskId>,
    /// When to look for these.
    look_at: Moment,
}

/// A kept delivery; the order is that of the start times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ScheduledStart {
    /// Start time in ms since the epoch.
    at_ms: u64,
    ledger: u64,
    entry: u64,
    /// Index in its batch and size of the batch; zero if it was not in a batch.
    index: u32,
    batch_size: u32,
}

/// A kept delivery that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) id: TaskId,
    pub(super) batch_size: Option<u32>,
    /// Its start time by the wall clock, in ms since the epoch.
    pub(super) at_ms: u64,
}

impl ScheduledStart {
    fn due(self, partition: i32) -> Due {
        let Self { at_ms, ledger, entry, index, batch_size } = self;
        let batch_size = (batch_size > 0).then_some(batch_size);
        let id = TaskId { ledger, entry, partition, batch_index: batch_size.map(|_| index) };
        Due { id, batch_size, at_ms }
    }

    const fn entry_id(&self) -> EntryId {
        EntryId { ledger: self.ledger, entry: self.entry }
    }
}

impl Scheduled {
    /// Keeps a delivery until this time. Returns false if there is no room.
    pub(super) fn keep(&mut self, id: TaskId, batch_size: Option<u32>, at_ms: u64) -> bool {
        if self.kept.len() >= KEPT_MAX {
            return false;
        }
        let TaskId { ledger, entry, batch_index, .. } = id;
        let index = batch_index.unwrap_or(0);
        let batch_size = if batch_index.is_some() { batch_size.unwrap_or(1).max(1) } else { 0 };
        self.kept.push(Reverse(ScheduledStart { at_ms, ledger, entry, index, batch_size }));
        true
    }

    /// Start time of the first kept delivery, in ms since the epoch.
    pub(super) fn first_at_ms(&self) -> Option<u64> {
        self.kept.peek().map(|Reverse(first)| first.at_ms)
    }

    /// Takes the first delivery if its start time has come.
    pub(super) fn pop_due(&mut self, wall_ms: u64, partition: i32) -> Option<Due> {
        self.first_at_ms().filter(|at_ms| *at_ms <= wall_ms)?;
        self.kept.pop().map(|Reverse(due)| due.due(partition))
    }

    /// Notes that a task must not wait any longer if it is kept. Such tasks are looked for together,
    /// at intervals.
    pub(super) fn look_for(&mut self, id: TaskId, look_at: Moment) {
        if self.sought.is_empty() {
            self.look_at = look_at;
        }
        self.sought.insert(id);
    }

    /// When to look for these tasks.
    pub(super) fn look_at(&self) -> Option<Moment> {
        (!self.sought.is_empty()).then_some(self.look_at)
    }

    /// Takes the tasks that were looked for. Other tasks of their entries are still kept.
    pub(super) fn take_sought(&mut self, partition: i32) -> Vec<Due> {
        let sought = std::mem::take(&mut self.sought);
        let all = self.kept.iter().map(|Reverse(kept)| kept.due(partition));
        let out: Vec<Due> = all.filter(|due| sought.contains(&due.id)).collect();
        if !out.is_empty() {
            self.kept.retain(|Reverse(kept)| !sought.contains(&kept.due(partition).id));
        }
        out
    }

    /// Forgets an entry that goes back to the broker: all of its tasks come again.
    pub(super) fn forget(&mut self, entry: EntryId) {
        self.kept.retain(|Reverse(kept)| kept.entry_id() != entry);
    }

    /// Drops everything at the end of the session.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    fn in_order(&self) -> Vec<ScheduledStart> {
        let mut all: Vec<ScheduledStart> = self.kept.iter().map(|Reverse(kept)| *kept).collect();
        all.sort_unstable();
        all
    }
}

// The position in the heap is irrelevant: for the model, two workers that keep the same deliveries
// are equal.
impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.in_order() == other.in_order()
            && (&self.sought, self.look_at) == (&other.sought, other.look_at)
    }
}

impl Eq for Scheduled {}

impl Hash for Scheduled {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.in_order().hash(state);
        self.sought.hash(state);
        self.look_at.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn task(entry: u64, batch_index: Option<u32>) -> TaskId {
        TaskId { ledger: 7, entry, partition: 3, batch_index }
    }

    fn all(mut scheduled: Scheduled, wall_ms: u64) -> Vec<(u64, TaskId, Option<u32>)> {
        std::iter::from_fn(|| scheduled.pop_due(wall_ms, 3))
            .map(|due| (due.at_ms, due.id, due.batch_size))
            .collect()
    }

    #[test]
    fn each_takes_up_thirty_two_bytes() {
        assert_eq!(size_of::<ScheduledStart>(), 32);
    }

    #[test]
    fn they_start_in_the_order_of_their_times_and_ids() {
        let mut scheduled = Scheduled::default();
        let (a, b, c) = (task(9, None), task(2, Some(1)), task(5, Some(0)));
        for (id, size, at_ms) in [(a, None, 10), (b, Some(2), 20), (c, Some(4), 10)] {
            assert!(scheduled.keep(id, size, at_ms));
        }
        assert_eq!((scheduled.len(), scheduled.first_at_ms()), (3, Some(10)));
        assert_eq!(all(scheduled.clone(), 9), []);
        assert_eq!(all(scheduled.clone(), 19), [(10, c, Some(4)), (10, a, None)]);
        assert_eq!(all(scheduled, 20), [(10, c, Some(4)), (10, a, None), (20, b, Some(2))]);
    }

    /// Earlier, the rest of its batch came out with it and started before its time. The simulation
    /// found this.
    #[test]
    fn what_is_cancelled_comes_out_and_the_rest_of_its_entry_stays() {
        let mut scheduled = Scheduled::default();
        for (id, size) in
            [(task(1, None), None), (task(2, Some(0)), Some(2)), (task(2, Some(1)), Some(2))]
        {
            scheduled.keep(id, size, 10);
        }
        assert_eq!(scheduled.look_at(), None);
        let at = Moment(std::time::Duration::from_secs(1));
        scheduled.look_for(task(2, Some(1)), at);
        scheduled.look_for(task(8, None), at + std::time::Duration::from_secs(1));
        assert_eq!(scheduled.look_at(), Some(at));
        let out: Vec<_> = scheduled.take_sought(3).into_iter().map(|due| due.id).collect();
        assert_eq!(out, [task(2, Some(1))]);
        assert_eq!((scheduled.look_at(), scheduled.len()), (None, 2));
        scheduled.forget(task(2, Some(0)).entry_id());
        scheduled.forget(task(1, None).entry_id());
        assert!(scheduled.is_empty());
    }

    proptest! {
        #[test]
        fn the_heap_says_nothing_of_what_is_kept(mut times in prop::collection::vec((0..9_u64, 0..9_u64), 0..20)) {
            let of = |times: &[(u64, u64)]| {
                let mut scheduled = Scheduled::default();
                for (entry, at_ms) in times {
                    scheduled.keep(task(*entry, None), None, *at_ms);
                }
                scheduled
            };
            let hash = |scheduled: &Scheduled| {
                let mut hasher = std::hash::DefaultHasher::new();
                scheduled.hash(&mut hasher);
                hasher.finish()
            };
            let one = of(&times);
            times.reverse();
            let other = of(&times);
            prop_assert_eq!(hash(&one), hash(&other));
            prop_assert!(one == other);
            times.sort_unstable_by_key(|(entry, at)| (*at, *entry));
            let popped: Vec<_> = all(one, u64::MAX).into_iter().map(|(at, id, _)| (id.entry, at)).collect();
            prop_assert_eq!(popped, times);
        }
    }
}
