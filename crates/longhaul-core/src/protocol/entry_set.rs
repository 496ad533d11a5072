//! Sets of entries of one partition of the task topic, as ranges: the entries of a topic are dense,
//! so finished ones form a few ranges instead of a million ids.

use crate::task::{EntryId, TaskId};
use std::ops::RangeInclusive;

/// The outcome of all tasks of an entry. The set includes it for tasks that depend on a task in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BatchOutcome {
    /// All are COMPLETED, or were dropped because no worker runs them.
    Completed,
    /// All are over without a result: FINAL, CANCELLED, EXPIRED.
    Failed,
    /// A batch in which only some tasks are COMPLETED; which ones is no longer known.
    Mixed,
}

/// A set of entries, each with the outcome of its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntrySet {
    /// Sorted, disjoint and as long as possible: equal sets are equal values.
    ranges: Vec<Range>,
}

/// Consecutive entries of one ledger of the managed log with the same outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The ledger of the managed log.
    pub ledger: u64,
    /// The first entry.
    pub first: u64,
    /// The last entry.
    pub last: u64,
    /// The outcome of the tasks of all of them.
    pub ended: BatchOutcome,
}

impl Range {
    /// The entries.
    #[must_use]
    pub const fn entries(&self) -> RangeInclusive<EntryId> {
        let Self { ledger, first, last, .. } = *self;
        EntryId { ledger, entry: first }..=EntryId { ledger, entry: last }
    }

    /// The ids of all tasks of these entries, for any partition and batch index.
    #[must_use]
    pub const fn tasks(&self) -> RangeInclusive<TaskId> {
        let entries = self.entries();
        *TaskId::all_of(*entries.start()).start()..=*TaskId::all_of(*entries.end()).end()
    }

    /// Whether the entry is in the range.
    const fn contains(&self, entry: EntryId) -> bool {
        self.ledger == entry.ledger && self.first <= entry.entry && entry.entry <= self.last
    }

    /// Whether the next range continues this one with the same outcome.
    fn is_followed_by(&self, next: &Self) -> bool {
        self.ledger == next.ledger
            && self.last.checked_add(1) == Some(next.first)
            && self.ended == next.ended
    }
}

impl EntrySet {
    /// Adds a range behind all others. Returns false, without adding it, if it is not behind them
    /// or is empty.
    pub fn push(&mut self, range: Range) -> bool {
        let behind = self
            .ranges
            .last()
            .is_none_or(|last| (last.ledger, last.last) < (range.ledger, range.first));
        if !behind || range.first > range.last {
            return false;
        }
        match self.ranges.last_mut() {
            Some(last) if last.is_followed_by(&range) => last.last = range.last,
            _ => self.ranges.push(range),
        }
        true
    }

    /// Adds an entry behind all others.
    pub fn push_entry(&mut self, entry: EntryId, ended: BatchOutcome) -> bool {
        let EntryId { ledger, entry } = entry;
        self.push(Range { ledger, first: entry, last: entry, ended })
    }

    /// The outcome of the tasks of this entry, if it is in the set.
    #[must_use]
    pub fn get(&self, entry: EntryId) -> Option<BatchOutcome> {
        let behind = |range: &Range| (range.ledger, range.last) < (entry.ledger, entry.entry);
        let range = self.ranges.get(self.ranges.partition_point(behind))?;
        range.contains(entry).then_some(range.ended)
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range> {
        self.ranges.iter().copied()
    }

    /// Number of ranges, which determines the size of the set.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The union of two sets. For an entry in both, `self` provides the outcome; no two seals of a
    /// ledger differ in it.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut union = Self::default();
        let (mut ours, mut theirs) = (self.ranges(), other.ranges());
        let (mut our, mut their) = (ours.next(), theirs.next());
        loop {
            match (our, their) {
                (Some(a), Some(b)) if (b.ledger, b.first) < (a.ledger, a.first) => {
                    // The part before our next range is added, and the rest is handled in the next
                    // step.
                    let cut = if b.ledger == a.ledger { b.last.min(a.first - 1) } else { b.last };
                    union.push(Range { last: cut, ..b });
                    their = if cut < b.last {
                        Some(Range { first: cut + 1, ..b })
                    } else {
                        theirs.next()
                    };
                }
                (Some(a), Some(b)) if b.ledger == a.ledger && b.first <= a.last => {
                    their = if b.last > a.last {
                        Some(Range { first: a.last + 1, ..b })
                    } else {
                        theirs.next()
                    };
                }
                (Some(a), _) => {
                    union.push(a);
                    our = ours.next();
                }
                (None, Some(b)) => {
                    union.push(b);
                    their = theirs.next();
                }
                (None, None) => return union,
            }
        }
    }

    /// Adds the entries of another set, as in [`union`](Self::union). Takes as long as the other set
    /// and what follows its first entry here are large, or as the other set is, if nothing is new.
    pub fn extend(&mut self, other: &Self) {
        let Some(first) = other.ranges.first().filter(|_| !self.covers(other)) else { return };
        let before = |range: &Range| (range.ledger, range.last) < (first.ledger, first.first);
        let rest = Self { ranges: self.ranges.split_off(self.ranges.partition_point(before)) };
        for range in rest.union(other).ranges {
            self.push(range);
        }
    }

    /// Whether this set contains all entries of `other`, whatever their outcomes.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.ranges().all(|wanted| {
            let mut next = wanted.first;
            let behind = |range: &Range| (range.ledger, range.last) < (wanted.ledger, wanted.first);
            let from = self.ranges.partition_point(behind);
            for range in self.ranges.get(from..).unwrap_or_default() {
                if range.ledger != wanted.ledger || range.first > next {
                    return false;
                }
                if range.last >= wanted.last {
                    return true;
                }
                next = range.last + 1;
            }
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<(u64, u64), BatchOutcome>;

    fn any_model() -> impl Strategy<Value = Model> {
        let ended =
            prop_oneof![4 => Just(BatchOutcome::Completed), 1 => Just(BatchOutcome::Failed)];
        prop::collection::btree_map((0..3_u64, 0..12_u64), ended, 0..24)
    }

    fn set(model: &Model) -> EntrySet {
        let mut set = EntrySet::default();
        for ((ledger, entry), ended) in model {
            assert!(set.push_entry(EntryId { ledger: *ledger, entry: *entry }, *ended));
        }
        set
    }

    fn listed(set: &EntrySet) -> Model {
        let mut model = Model::new();
        for range in set.ranges() {
            for entry in range.first..=range.last {
                assert_eq!(model.insert((range.ledger, entry), range.ended), None);
            }
        }
        model
    }

    #[test]
    fn neighbours_that_ended_alike_are_one_range() {
        let mut set = EntrySet::default();
        for entry in 0..50_000 {
            set.push_entry(EntryId { ledger: 7, entry }, BatchOutcome::Completed);
        }
        assert_eq!(set.len(), 1);
        assert!(!set.push_entry(EntryId { ledger: 7, entry: 3 }, BatchOutcome::Completed));
        assert!(!set.push_entry(EntryId { ledger: 6, entry: 60_000 }, BatchOutcome::Completed));
        let last = EntryId { ledger: 7, entry: u64::MAX };
        assert!(
            set.push_entry(last, BatchOutcome::Failed)
                && !set.push_entry(last, BatchOutcome::Failed)
        );
    }

    proptest! {
        #[test]
        fn it_holds_what_was_put_in(model in any_model()) {
            let set = set(&model);
            prop_assert_eq!(&listed(&set), &model);
            for ledger in 0..4 {
                for entry in 0..13 {
                    let expected = model.get(&(ledger, entry)).copied();
                    prop_assert_eq!(set.get(EntryId { ledger, entry }), expected);
                }
            }
        }

        #[test]
        fn a_union_holds_both(one in any_model(), other in any_model()) {
            let union = set(&one).union(&set(&other));
            let mut both = other.clone();
            both.extend(one.clone());
            prop_assert_eq!(&listed(&union), &both);
            // Equal sets are equal values, however they were built.
            prop_assert_eq!(&union, &set(&both));
            let mut extended = set(&one);
            extended.extend(&set(&other));
            prop_assert_eq!(&union, &extended);
            prop_assert!(union.covers(&set(&one)) && union.covers(&set(&other)));
            let covered = other.keys().all(|entry| one.contains_key(entry));
            prop_assert_eq!(set(&one).covers(&set(&other)), covered);
        }
    }

    /// Each seal once copied all ranges that a worker knew: a million of them after months, on the
    /// thread of the heartbeat.
    #[test]
    fn new_entries_do_not_move_old_ones() {
        let every_other = |entries: std::ops::Range<u64>| {
            let mut set = EntrySet::default();
            for entry in entries {
                let entry = EntryId { ledger: 1, entry: 2 * entry };
                assert!(set.push_entry(entry, BatchOutcome::Completed));
            }
            set
        };
        let mut set = every_other(0..1_000);
        set.ranges.reserve(100);
        let place = set.ranges.as_ptr();
        set.extend(&every_other(990..1_050));
        set.extend(&every_other(3..7));
        assert_eq!((set.ranges.as_ptr(), &set), (place, &every_other(0..1_050)));
    }

    #[test]
    fn half_of_a_range_does_not_cover_it() {
        let set = |ranges: &[(u64, u64)]| {
            let mut set = EntrySet::default();
            for (first, last) in ranges {
                set.push(Range {
                    ledger: 1,
                    first: *first,
                    last: *last,
                    ended: BatchOutcome::Completed,
                });
            }
            set
        };
        assert!(!set(&[(1, 2)]).covers(&set(&[(1, 4)])));
        assert!(!set(&[(1, 2), (4, 4)]).covers(&set(&[(1, 4)])));
        assert!(set(&[(0, 9)]).covers(&set(&[(1, 4)])));
        let end = set(&[(u64::MAX - 3, u64::MAX)]);
        assert_eq!(end.union(&set(&[(u64::MAX, u64::MAX)])), end);
    }
}
