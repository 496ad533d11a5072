//! Entries whose tasks have ended, by the time of the end. The entries of a topic are dense and end
//! roughly in order, so those that ended within a short time form a few ranges: a million finished
//! tasks take no more room than a hundred.

use crate::protocol::moment::Moment;
use crate::task::EntryId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The ended entries by time. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct EndedEntries {
    /// In order of their times.
    lots: VecDeque<Lot>,
    /// Number of entries in all lots; an entry in two lots counts twice.
    len: usize,
}

/// Entries whose tasks ended at about the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lot {
    /// When the first of them ended.
    since: Moment,
    /// When the last of them ended; the age of the lot counts from this time.
    at: Moment,
    /// Ranges of consecutive entries: the first entry, and the number of the last one. Ranges do
    /// not touch.
    ranges: BTreeMap<EntryId, u64>,
}

impl EndedEntries {
    /// Builds the set from ends in any order. Times are rounded down by up to `grain`.
    pub(super) fn of(ended: impl Iterator<Item = (Moment, EntryId)>, grain: Duration) -> Self {
        let mut lots = BTreeMap::<Moment, Lot>::new();
        let mut len = 0;
        for (at, entry) in ended {
            let at = Moment(round_down(at.0, grain));
            let lot = lots.entry(at).or_insert_with(|| Lot { since: at, at, ..Lot::default() });
            len += usize::from(lot.insert(entry));
        }
        Self { lots: lots.into_values().collect(), len }
    }

    /// Adds an entry with a task that has ended. Times never go back. The time is up to `grain`
    /// later here.
    pub(super) fn push(&mut self, entry: EntryId, now: Moment, grain: Duration) {
        let fits = |lot: &Lot| now.since(lot.since) < grain || now == lot.at;
        if !self.lots.back().is_some_and(fits) {
            self.lots.push_back(Lot { since: now, ..Lot::default() });
        }
        if let Some(lot) = self.lots.back_mut() {
            lot.at = now;
            self.len += usize::from(lot.insert(entry));
        }
    }

    /// Puts entries returned by [`EndedEntries::pop`] back, in any order.
    pub(super) fn put_back(&mut self, at: Moment, entry: EntryId) {
        let place = self.lots.partition_point(|lot| lot.at < at);
        if self.lots.get(place).is_none_or(|lot| lot.at != at) {
            self.lots.insert(place, Lot { since: at, at, ..Lot::default() });
        }
        if let Some(lot) = self.lots.get_mut(place) {
            self.len += usize::from(lot.insert(entry));
        }
    }

    /// A lower bound of the earliest end.
    pub(super) fn first_at(&self) -> Option<Moment> {
        self.lots.front().map(|lot| lot.at)
    }

    /// Takes one of the entries that ended first.
    pub(super) fn pop(&mut self) -> Option<(Moment, EntryId)> {
        let lot = self.lots.front_mut()?;
        let popped = lot.pop().map(|entry| (lot.at, entry));
        if lot.ranges.is_empty() {
            self.lots.pop_front();
        }
        self.len -= usize::from(popped.is_some());
        popped
    }

    /// Whether a task of this entry is in the set.
    pub(super) fn contains(&self, entry: EntryId) -> bool {
        self.lots.iter().any(|lot| lot.range_of(entry).is_some_and(|(_, last)| last >= entry.entry))
    }

    /// Number of entries.
    pub(super) const fn len(&self) -> usize {
        self.len
    }
}

impl Lot {
    /// Returns whether the entry was new.
    fn insert(&mut self, entry: EntryId) -> bool {
        let EntryId { ledger, entry: number } = entry;
        let mut first = entry;
        let mut last = number;
        if let Some((before, end)) = self.range_of(entry) {
            if end >= number {
                return false;
            }
            if end.checked_add(1) == Some(number) {
                first = before;
            }
        }
        let next = number.checked_add(1).map(|entry| EntryId { ledger, entry });
        if let Some(end) = next.and_then(|next| self.ranges.remove(&next)) {
            last = end;
        }
        self.ranges.insert(first, last);
        true
    }

    /// The range that this entry is in or behind, in the same ledger.
    fn range_of(&self, entry: EntryId) -> Option<(EntryId, u64)> {
        let (first, last) = self.ranges.range(..=entry).next_back()?;
        (first.ledger == entry.ledger).then_some((*first, *last))
    }

    fn pop(&mut self) -> Option<EntryId> {
        let (first, last) = self.ranges.pop_first()?;
        let EntryId { ledger, entry } = first;
        if entry < last {
            self.ranges.insert(EntryId { ledger, entry: entry + 1 }, last);
        }
        Some(first)
    }
}

/// Rounds down to a multiple of `grain`.
fn round_down(at: Duration, grain: Duration) -> Duration {
    let (at, grain) = (at.as_nanos(), grain.as_nanos().max(1));
    Duration::from_nanos(u64::try_from(at - at % grain).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const GRAIN: Duration = Duration::from_secs(10);

    fn entry((ledger, entry): (u64, u64)) -> EntryId {
        EntryId { ledger, entry }
    }

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    #[test]
    fn what_ends_in_order_is_one_range() {
        let mut ended = EndedEntries::default();
        for number in 0..100_000 {
            // Slightly out of order, as concurrent tasks end.
            ended.push(entry((7, number ^ 3)), at(number / 10_000), GRAIN);
        }
        assert_eq!((ended.len(), ended.lots.len()), (100_000, 1));
        assert_eq!(ended.lots.front().map(|lot| lot.ranges.len()), Some(1));
        let last = entry((7, u64::MAX));
        ended.push(last, at(9), GRAIN);
        ended.push(last, at(9), GRAIN);
        assert_eq!(ended.len(), 100_001);
    }

    /// Earlier, no test failed when a first read kept a separate time for the end of each task.
    #[test]
    fn what_a_first_read_finds_is_together_that_ended_within_a_grain() {
        let all = (100..140).map(|second| (at(second), entry((7, second))));
        let mut ended = EndedEntries::of(all, GRAIN);
        let times: Vec<_> = ended.lots.iter().map(|lot| lot.at).collect();
        assert_eq!(times, [100, 110, 120, 130].map(at));
        assert_eq!(ended.pop(), Some((at(100), entry((7, 100)))));
    }

    proptest! {
        #[test]
        fn each_comes_out_at_its_time_but_for_the_grain(
            pushed in prop::collection::vec(((0..2_u64, 0..40_u64), 0..4_u64), 1..80),
        ) {
            let mut ended = EndedEntries::default();
            let (mut now, mut when) = (0, BTreeMap::<EntryId, BTreeSet<Moment>>::new());
            for (id, pause) in pushed {
                now += pause;
                ended.push(entry(id), at(now), GRAIN);
                when.entry(entry(id)).or_default().insert(at(now));
            }
            let all = when.iter().flat_map(|(id, times)| times.iter().map(move |at| (*at, *id)));
            let again = EndedEntries::of(all, GRAIN);
            for mut ended in [ended, again] {
                let all = (0..2).flat_map(|ledger| (0..40).map(move |number| entry((ledger, number))));
                prop_assert!(all.into_iter().all(|id| ended.contains(id) == when.contains_key(&id)));
                let mut missing: BTreeSet<EntryId> = when.keys().copied().collect();
                let mut before = at(0);
                let mut count = ended.len();
                while let Some((at, id)) = ended.pop() {
                    let near = |ended: &Moment| at.since(*ended).max(ended.since(at)) <= GRAIN;
                    prop_assert!(when[&id].iter().any(near), "{id:?} at {at:?} of {:?}", when[&id]);
                    prop_assert!(at >= before);
                    before = at;
                    missing.remove(&id);
                    count -= 1;
                    prop_assert_eq!(ended.len(), count);
                }
                prop_assert!(missing.is_empty(), "{missing:?}");
                prop_assert_eq!(count, 0);
            }
        }

        /// Earlier, entries of a lost seal came back in the order in which they were collected,
        /// where older tasks may follow younger ones, so the oldest waited behind the others. Nor
        /// did a test fail when each of them made a separate lot.
        #[test]
        fn what_was_taken_out_is_put_back_in_any_order(
            pushed in prop::collection::vec(((0..2_u64, 0..40_u64), 0..9_u64), 1..80),
            taken in 0..40_usize,
            order in prop::collection::vec(any::<u8>(), 40),
        ) {
            let mut ended = EndedEntries::default();
            let mut now = 0;
            for (id, pause) in pushed {
                now += pause;
                ended.push(entry(id), at(now), GRAIN);
            }
            let listed = |mut ended: EndedEntries| std::iter::from_fn(move || ended.pop()).collect::<Vec<_>>();
            let (before, lots) = (listed(ended.clone()), ended.lots.len());
            let out = (0..taken).map_while(|_| ended.pop());
            let mut out: Vec<_> = order.into_iter().zip(out).collect();
            out.sort_by_key(|(order, _)| *order);
            for (_, (at, entry)) in out {
                ended.put_back(at, entry);
            }
            prop_assert_eq!(ended.first_at(), before.first().map(|(at, _)| *at));
            prop_assert_eq!((ended.len(), ended.lots.len()), (before.len(), lots));
            prop_assert_eq!(listed(ended), before);
        }
    }
}
