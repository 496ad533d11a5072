//! The entries of a topic: ids and locations.

use super::pages::Pages;
pub use super::slot::EntrySlot;
use crate::log::{Facts, Indexed, RecordLocation};
use std::collections::{BTreeMap, BTreeSet};

/// Id of an entry, as clients use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryPosition {
    /// Id of the ledger. It is used once, by one topic.
    pub ledger: u64,
    /// Number of the entry in its ledger, from 0.
    pub entry: u64,
}

impl EntryPosition {
    /// No entry: -1:-1 for clients.
    pub const NONE: Self = Self { ledger: u64::MAX, entry: u64::MAX };
}

/// The ordinals of a ledger's entries are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LedgerSpan {
    ledger: u64,
    /// Ordinal of the ledger's entry 0.
    first: u64,
}

/// The entries of a topic.
///
/// Every entry has an *ordinal*: its number within the topic, over all ledgers, without gaps. The
/// broker identifies entries by ordinals; only clients and the log use [`EntryPosition`]. Entries
/// after the first stored one may have been removed.
#[derive(Clone, Debug, Default)]
pub struct TopicEntries {
    /// Everything before this ordinal was trimmed.
    first: u64,
    end: u64,
    /// Number of existing entries.
    count: u64,
    pages: Pages,
    /// In order, one per ledger, from the first ledger that is needed to resolve ids.
    spans: Vec<LedgerSpan>,
    /// Earliest delivery times, in ms since the epoch, of entries that have one.
    delays: BTreeMap<u64, u64>,
    /// Chunks, with a hash of their message.
    chunks: BTreeMap<u64, u64>,
}

/// A snapshot of some entries of a topic.
#[derive(Clone, Debug)]
pub struct EntryCopy {
    from: u64,
    to: u64,
    pages: Pages,
    spans: Vec<LedgerSpan>,
}

impl EntryCopy {
    /// Ordinal, id and location of each entry.
    pub fn iter(&self) -> impl Iterator<Item = (u64, EntryPosition, RecordLocation)> + '_ {
        self.pages.range(self.from, self.to).filter_map(|(ordinal, slot)| {
            Some((ordinal, position_in(&self.spans, ordinal)?, slot.location))
        })
    }

    /// Whether an entry may be in this segment of the log. The ends of whole pages are compared.
    pub(crate) fn may_be_in(&self, segment: u32) -> bool {
        self.pages.may_be_in(segment)
    }
}

/// The id of an ordinal.
fn position_in(spans: &[LedgerSpan], ordinal: u64) -> Option<EntryPosition> {
    let after = spans.partition_point(|span| span.first <= ordinal);
    let span = spans.get(after.checked_sub(1)?)?;
    Some(EntryPosition { ledger: span.ledger, entry: ordinal - span.first })
}

impl TopicEntries {
    /// Ordinal of the first stored entry.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Ordinal of the next entry.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Number of existing entries.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The ledgers, each with the ordinal of its first entry.
    pub fn ledgers(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.spans.iter().map(|span| (span.ledger, span.first))
    }

    /// Begins a ledger whose entry 0 has the ordinal `first`. Entries of the previous ledger from
    /// there on never existed.
    pub fn open_ledger(&mut self, ledger: u64, first: u64) {
        if self.first == self.end && first > self.first {
            (self.first, self.end) = (first, first);
        }
        // A ledger without entries has no ids to resolve. Each start opens one.
        if self.spans.last().is_some_and(|last| last.first == first) {
            self.spans.pop();
        }
        self.spans.push(LedgerSpan { ledger, first });
    }

    /// Id of the next entry.
    #[must_use]
    pub fn next_position(&self) -> Option<EntryPosition> {
        let span = self.spans.last()?;
        Some(EntryPosition { ledger: span.ledger, entry: self.end().saturating_sub(span.first) })
    }

    /// Adds an entry at the end. Returns its ordinal.
    pub fn push(&mut self, location: RecordLocation, facts: &Facts) -> u64 {
        let ordinal = self.end;
        self.end += 1;
        self.count += 1;
        self.pages.put(ordinal, EntrySlot::of(location, facts));
        self.note(ordinal, facts);
        ordinal
    }

    /// Extends the ordinals to this end, for entries that are restored later or were removed: their
    /// ordinals are not used again.
    pub fn extend_to(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Restores an entry at its ordinal. After a restart, entries come in the order of the log,
    /// where some were copied forward. Entries that were trimmed or belong to no ledger are
    /// skipped. Returns whether the entry now exists, and its previous location.
    pub fn restore(
        &mut self,
        position: EntryPosition,
        location: RecordLocation,
        facts: &Facts,
    ) -> (bool, Option<RecordLocation>) {
        let ordinal = self.ordinal_of(position).filter(|&ordinal| ordinal >= self.first);
        let Some(ordinal) = ordinal else { return (false, None) };
        self.extend_to(ordinal + 1);
        let former = self.pages.put(ordinal, EntrySlot::of(location, facts));
        self.count += u64::from(former.is_none());
        self.note(ordinal, facts);
        (true, former.map(|former| former.location))
    }

    /// Restores consecutive entries, of which the first has this id. Returns the size of the
    /// entries that now exist, in bytes, and their previous locations.
    pub fn restore_run(
        &mut self,
        position: EntryPosition,
        run: &[Indexed],
    ) -> (u64, Vec<RecordLocation>) {
        let (mut added, mut formers) = (0, Vec::new());
        let Ok(at) = self.spans.binary_search_by_key(&position.ledger, |span| span.ledger) else {
            return (added, formers);
        };
        let limit = self.spans.get(at + 1).map_or(u64::MAX, |next| next.first);
        let start = self.spans.get(at).and_then(|span| span.first.checked_add(position.entry));
        let start = start.unwrap_or(limit).min(limit);
        // Skips trimmed entries, and those beyond the ledger.
        let skipped = usize::try_from(self.first.saturating_sub(start)).unwrap_or(usize::MAX);
        let most = usize::try_from(limit - start).unwrap_or(usize::MAX);
        let run = run.get(..most.min(run.len())).and_then(|run| run.get(skipped..));
        let Some(run) = run.filter(|run| !run.is_empty()) else { return (added, formers) };
        let start = start.max(self.first);
        let slots = run.iter().map(|entry| {
            added += u64::from(entry.location.size);
            EntrySlot::of(entry.location, &entry.facts)
        });
        let slots: Vec<EntrySlot> = slots.collect();
        self.pages.put_run(start, &slots, |former| formers.push(former.location));
        self.count += (run.len() - formers.len()) as u64;
        self.end = self.end.max(start + run.len() as u64);
        for (ordinal, entry) in (start..).zip(run) {
            self.note(ordinal, &entry.facts);
        }
        (added, formers)
    }

    /// Changes the location of an existing entry. Returns the previous one.
    pub fn relocate(&mut self, ordinal: u64, location: RecordLocation) -> Option<RecordLocation> {
        let slot = self.pages.get(ordinal)?;
        self.pages.put(ordinal, EntrySlot { location, ..slot }).map(|former| former.location)
    }

    /// The entry, unless it was removed or does not exist yet.
    #[must_use]
    pub fn get(&self, ordinal: u64) -> Option<EntrySlot> {
        self.pages.get(ordinal)
    }

    /// Keeps the facts that few entries have.
    fn note(&mut self, ordinal: u64, facts: &Facts) {
        if let Some(at) = facts.deliver_at {
            self.delays.insert(ordinal, at);
        }
        if let Some(hash) = facts.chunk_of {
            self.chunks.insert(ordinal, hash);
        }
    }

    /// Hash of the message that the entry is a chunk of.
    #[must_use]
    pub fn chunk_of(&self, ordinal: u64) -> Option<u64> {
        self.chunks.get(&ordinal).copied()
    }

    /// Earliest delivery of the entry, in ms since the epoch, if its producer set one.
    #[must_use]
    pub fn deliver_at(&self, ordinal: u64) -> Option<u64> {
        self.delays.get(&ordinal).copied()
    }

    /// The id of an ordinal; for the end, the id that the next entry would have.
    #[must_use]
    pub fn position_of(&self, ordinal: u64) -> Option<EntryPosition> {
        position_in(&self.spans, ordinal)
    }

    /// The ordinal of an id that exists, or existed before it was trimmed. It may be beyond the end
    /// in the last ledger.
    #[must_use]
    pub fn ordinal_of(&self, position: EntryPosition) -> Option<u64> {
        let at = self.spans.binary_search_by_key(&position.ledger, |span| span.ledger).ok()?;
        let ordinal = self.spans.get(at)?.first.checked_add(position.entry)?;
        let limit = self.spans.get(at + 1).map_or(u64::MAX, |next| next.first);
        (ordinal < limit).then_some(ordinal)
    }

    /// The first ordinal whose id is this one or a later one; the end if there is none.
    #[must_use]
    pub fn ordinal_at_or_after(&self, position: EntryPosition) -> u64 {
        let after = self.spans.partition_point(|span| span.ledger <= position.ledger);
        let next = self.spans.get(after).map_or_else(|| self.end(), |span| span.first);
        let span = after.checked_sub(1).and_then(|at| self.spans.get(at));
        let Some(span) = span else { return next.min(self.end()) };
        if span.ledger < position.ledger {
            return next;
        }
        span.first.saturating_add(position.entry).min(next).min(self.end())
    }

    /// The first entry before `end` that was published at or after this time. Producers' clocks
    /// differ, so publish times need not increase: the first match in order counts.
    #[must_use]
    pub fn ordinal_at_time(&self, time: u64, end: u64) -> u64 {
        self.pages.at_time(time, self.first).map_or(end, |ordinal| ordinal.min(end))
    }

    /// Removes the entries before the ordinal. Returns their locations.
    pub fn trim(&mut self, first: u64) -> Vec<RecordLocation> {
        let (freed, ..) = self.pages.forget(self.first, first, usize::MAX, |_, _| true);
        self.count -= freed.len() as u64;
        // The ordinal may be beyond the last entry.
        self.first = self.first.max(first);
        self.end = self.end.max(first);
        self.delays = self.delays.split_off(&self.first);
        self.chunks = self.chunks.split_off(&self.first);
        freed.into_iter().map(|freed| freed.1).collect()
    }

    /// Drops ledgers whose entries were trimmed, except that of the last trimmed entry: its id is the
    /// one before the first entry. Call it only if no compacted view has trimmed entries.
    pub fn drop_ledgers(&mut self) {
        let gone = self.spans.partition_point(|span| span.first < self.first).saturating_sub(1);
        self.spans.drain(..gone);
    }

    /// Removes the dead entries of `from..to`, in at most this many pages of 1,024 entries. Returns
    /// their locations, the number of checked pages, and where to continue if there are more.
    pub fn forget(
        &mut self,
        (from, to): (u64, u64),
        pages_max: usize,
        is_dead: impl FnMut(u64, &EntrySlot) -> bool,
    ) -> (Vec<RecordLocation>, usize, Option<u64>) {
        let (freed, looked_at, next) = self.pages.forget(from, to, pages_max, is_dead);
        self.count -= freed.len() as u64;
        for (ordinal, _) in &freed {
            self.delays.remove(ordinal);
            self.chunks.remove(ordinal);
        }
        (freed.into_iter().map(|freed| freed.1).collect(), looked_at, next)
    }

    /// The first existing entry at or after the ordinal; the end if there is none.
    #[must_use]
    pub fn next_here(&self, ordinal: u64) -> u64 {
        self.range(ordinal, u64::MAX).next().map_or(self.end, |found| found.0)
    }

    /// The n-th existing entry, from 0. The cost is small per 1,024 entries before it.
    #[must_use]
    pub fn nth(&self, nth: u64) -> Option<u64> {
        self.pages.nth(self.first, nth)
    }

    /// Size of the entries from the ordinal on, in bytes. The cost is small per 1,024 entries.
    #[must_use]
    pub fn bytes_from(&self, ordinal: u64) -> u64 {
        self.pages.bytes_from(ordinal)
    }

    /// The last existing entry before the ordinal.
    #[must_use]
    pub fn last_before(&self, ordinal: u64) -> Option<(u64, EntrySlot)> {
        self.pages.last_before(ordinal)
    }

    /// The first entry in this log segment or a later one; the end if there is none.
    #[must_use]
    pub fn first_in_segment(&self, segment: u32) -> u64 {
        self.pages.first_in_segment(segment).unwrap_or(self.end)
    }

    /// The entries in these segments of the log.
    pub fn in_segments<'a>(
        &'a self,
        segments: &'a BTreeSet<u32>,
    ) -> impl Iterator<Item = (u64, EntrySlot)> + 'a {
        self.pages.in_segments(segments)
    }

    /// A snapshot of the entries `from..to`. It costs a few bytes per 1,024 entries.
    #[must_use]
    pub fn copy(&self, from: u64, to: u64) -> EntryCopy {
        EntryCopy { from, to, pages: self.pages.copy(from, to), spans: self.spans.clone() }
    }

    /// The existing entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, EntrySlot)> {
        self.range(0, u64::MAX)
    }

    /// The existing entries of `from..to`.
    pub fn range(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, EntrySlot)> {
        self.pages.range(from, to)
    }

    /// The ordinals that were not trimmed and whose entries were removed.
    pub fn gone(&self) -> impl Iterator<Item = u64> {
        (self.first..self.end).filter(|&ordinal| self.pages.get(ordinal).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(offset: u32) -> RecordLocation {
        RecordLocation { segment: 1, offset, size: 10 }
    }

    fn published(publish_time: u64) -> Facts {
        Facts { publish_time, ..Facts::default() }
    }

    fn id(ledger: u64, entry: u64) -> EntryPosition {
        EntryPosition { ledger, entry }
    }

    /// Ledger 5 with three entries, ledger 9 with two.
    fn sample() -> TopicEntries {
        let mut entries = TopicEntries::default();
        entries.open_ledger(5, 0);
        for at in 0..3 {
            entries.push(location(at), &published(100 + u64::from(at)));
        }
        entries.open_ledger(9, 3);
        entries.push(location(3), &published(90));
        entries.push(location(4), &Facts { deliver_at: Some(200), ..published(105) });
        entries
    }

    #[test]
    fn ids_and_ordinals_belong_together() {
        let entries = sample();
        for (position, ordinal) in [(id(5, 0), 0), (id(5, 2), 2), (id(9, 0), 3), (id(9, 1), 4)] {
            assert_eq!(entries.ordinal_of(position), Some(ordinal));
            assert_eq!(entries.position_of(ordinal), Some(position));
        }
        assert_eq!(entries.ordinal_of(id(5, 3)), None, "the ledger ended before it");
        assert_eq!(entries.ordinal_of(id(6, 0)), None);
        assert_eq!(entries.next_position(), Some(id(9, 2)));
    }

    #[test]
    fn an_id_that_is_not_there_leads_to_the_next_one() {
        let entries = sample();
        for (position, ordinal) in [
            (id(1, 7), 0),
            (id(5, 1), 1),
            (id(5, 9), 3),
            (id(7, 0), 3),
            (id(9, 9), 5),
            (id(12, 0), 5),
        ] {
            assert_eq!(entries.ordinal_at_or_after(position), ordinal, "{position:?}");
        }
    }

    #[test]
    fn a_time_leads_to_the_first_entry_published_then_or_later() {
        let entries = sample();
        assert_eq!(entries.ordinal_at_time(0, 5), 0);
        assert_eq!(entries.ordinal_at_time(102, 5), 2);
        assert_eq!(entries.ordinal_at_time(103, 5), 4, "the fourth was published by a slow clock");
        assert_eq!(entries.ordinal_at_time(106, 5), 5);
    }

    #[test]
    fn trimmed_entries_keep_their_ids() {
        let mut entries = sample();
        assert_eq!(entries.trim(4).len(), 4);
        assert_eq!((entries.first(), entries.end()), (4, 5));
        assert_eq!(entries.ordinal_of(id(5, 1)), Some(1));
        assert!(entries.get(1).is_none());
        assert_eq!(entries.deliver_at(4), Some(200));
        entries.push(location(5), &Facts { chunk_of: Some(6), ..published(0) });
        assert_eq!((entries.chunk_of(5), entries.chunk_of(4)), (Some(6), None));
        entries.trim(50);
        assert_eq!((entries.first(), entries.end()), (50, 50));
        assert_eq!(entries.chunk_of(5), None);
        assert_eq!(entries.deliver_at(4), None);
    }

    /// Each start and each unload of a topic added 16 bytes, and a record to each checkpoint, for
    /// ever.
    #[test]
    fn ledgers_that_no_id_needs_are_dropped() {
        let ledgers = |entries: &TopicEntries| entries.ledgers().collect::<Vec<_>>();
        let mut entries = sample();
        for ledger in 10..20 {
            entries.open_ledger(ledger, 5);
        }
        assert_eq!(ledgers(&entries), [(5, 0), (9, 3), (19, 5)], "these have no entries");
        entries.push(location(5), &published(0));
        for (first, left) in [(3, 3), (4, 2), (5, 2), (6, 1)] {
            entries.trim(first);
            entries.drop_ledgers();
            assert_eq!(ledgers(&entries).len(), left, "{first}");
            let before = entries.position_of(first - 1);
            assert!(before.is_some() && entries.ordinal_of(before.unwrap()) == Some(first - 1));
        }
        assert_eq!(entries.ordinal_of(id(5, 0)), None);
        assert_eq!(entries.ordinal_at_or_after(id(5, 0)), 5, "the first that is known");
    }

    #[test]
    fn entries_come_back_in_any_order() {
        let mut entries = TopicEntries::default();
        entries.open_ledger(5, 0);
        entries.trim(1);
        let mut restore = |position: EntryPosition, offset| {
            entries.restore(position, location(offset), &published(0))
        };
        assert_eq!(restore(id(5, 3), 3), (true, None));
        assert_eq!(restore(id(5, 1), 1), (true, None));
        assert_eq!(restore(id(5, 3), 7), (true, Some(location(3))), "a copy takes its place");
        assert_eq!(restore(id(5, 0), 0), (false, None), "it was trimmed");
        assert_eq!(restore(id(6, 0), 0), (false, None), "no such ledger");
        assert_eq!((entries.first(), entries.gone().collect::<Vec<_>>()), (1, vec![2]));
        assert_eq!(entries.range(2, 9).map(|(ordinal, _)| ordinal).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn what_moves_or_goes_leaves_its_place() {
        let mut entries = sample();
        let moved = RecordLocation { segment: 2, offset: 0, size: 10 };
        assert_eq!(entries.relocate(1, moved), Some(location(1)));
        let dead = |ordinal: u64, _: &EntrySlot| ordinal == 2 || ordinal == 4;
        assert_eq!(entries.forget((0, 4), 1, dead), (vec![location(2)], 1, None));
        assert_eq!(entries.get(1).unwrap().location, moved);
        assert_eq!((entries.relocate(9, moved), entries.relocate(2, moved)), (None, None));
        assert_eq!((entries.next_here(1), entries.next_here(2), entries.next_here(9)), (1, 3, 5));
        assert_eq!(entries.ordinal_at_time(102, 5), 4, "the third one is gone");
        let copy = entries.copy(1, 4);
        let found: Vec<_> = copy.iter().map(|entry| (entry.0, entry.1)).collect();
        assert_eq!(found, vec![(1, id(5, 1)), (3, id(9, 0))]);
        entries.trim(2);
        assert_eq!(entries.copy(0, 9).iter().map(|entry| entry.0).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(copy.iter().count(), 2, "it stays as it was");
        assert_eq!(entries.range(4, 3).count(), 0);
        assert_eq!(entries.forget((0, 9), 1, dead), (vec![location(4)], 1, None));
        assert_eq!(entries.count(), entries.iter().count() as u64);
        assert_eq!((entries.deliver_at(4), entries.end()), (None, 5));
    }

    #[test]
    fn a_ledger_begins_where_it_says_only_in_a_topic_without_entries() {
        let mut entries = TopicEntries::default();
        entries.open_ledger(5, 7);
        assert_eq!((entries.first(), entries.end()), (7, 7));
        entries.open_ledger(6, 3);
        assert_eq!(entries.first(), 7, "never back");
        entries.extend_to(9);
        entries.open_ledger(7, 12);
        assert_eq!((entries.first(), entries.end()), (7, 9));
        assert_eq!(entries.trim(8), []);
        assert_eq!((entries.first(), entries.get(8)), (8, None));
    }

    #[test]
    fn segments_are_found_by_their_first_entry() {
        let mut entries = TopicEntries::default();
        entries.open_ledger(5, 4);
        for segment in [2, 2, 4] {
            let location = RecordLocation { segment, offset: 0, size: 10 };
            entries.push(location, &published(0));
        }
        let found: Vec<u64> = (1..=5).map(|segment| entries.first_in_segment(segment)).collect();
        assert_eq!(found, [4, 4, 6, 6, 7]);
    }
}
