//! Slots by ordinal. Removed entries take no memory.

use super::entries::EntrySlot;
use super::rows::Rows;
use crate::log::RecordLocation;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Number of consecutive ordinals per page.
const PAGE: u64 = 1024;
const WORDS: usize = 16;

/// The slots of up to 1,024 consecutive ordinals, without gaps.
#[derive(Clone, Debug, Default)]
struct EntryPage {
    /// One bit per ordinal: whether it has a slot.
    here: [u64; WORDS],
    slots: Rows,
    /// No slot is at this index or after it.
    end: u64,
    /// Every slot is between these two log segments. Slots at the ends may have moved since.
    segments: (u32, u32),
    /// The latest publish time of all slots.
    latest: u64,
    /// Size of the entries in bytes.
    bytes: u64,
}

/// Iterates over the set bits, the lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let lowest = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (lowest < 64).then_some(u64::from(lowest))
    }
}

impl EntryPage {
    fn word(&self, at: u64) -> u64 {
        self.here.get((at / 64) as usize).copied().unwrap_or_default()
    }

    fn has(&self, at: u64) -> bool {
        self.word(at) >> (at % 64) & 1 == 1
    }

    /// Number of slots before this index.
    fn rank(&self, at: u64) -> usize {
        let before: u32 =
            self.here.iter().take((at / 64) as usize).map(|word| word.count_ones()).sum();
        (before + (self.word(at) & !(u64::MAX << (at % 64))).count_ones()) as usize
    }

    fn get(&self, at: u64) -> Option<EntrySlot> {
        if self.has(at) { self.slots.get(self.rank(at)) } else { None }
    }

    /// Sets a slot. Returns the previous one.
    fn put(&mut self, at: u64, slot: EntrySlot) -> Option<EntrySlot> {
        self.note(&slot);
        self.bytes += u64::from(slot.location.size);
        if at >= self.end {
            self.mark(at);
            self.slots.insert(self.slots.len(), &slot);
            return None;
        }
        let rank = self.rank(at);
        if self.has(at) {
            let former = self.slots.get(rank);
            self.slots.set(rank, &slot);
            self.bytes -= former.map_or(0, |former| u64::from(former.location.size));
            return former;
        }
        self.mark(at);
        self.slots.insert(rank, &slot);
        None
    }

    /// Appends slots after all existing ones, consecutively from this index on.
    fn extend(&mut self, at: u64, slots: &[EntrySlot]) {
        for (at, slot) in (at..).zip(slots) {
            self.note(slot);
            self.mark(at);
            self.bytes += u64::from(slot.location.size);
        }
        self.slots.extend(slots);
    }

    fn mark(&mut self, at: u64) {
        if let Some(word) = self.here.get_mut((at / 64) as usize) {
            *word |= 1 << (at % 64);
        }
        self.end = self.end.max(at + 1);
    }

    /// Updates the page's summary for a new slot.
    fn note(&mut self, slot: &EntrySlot) {
        let segment = slot.location.segment;
        self.segments = if self.end == 0 {
            (segment, segment)
        } else {
            (self.segments.0.min(segment), self.segments.1.max(segment))
        };
        self.latest = self.latest.max(slot.publish_time);
    }

    /// The slots from this index on.
    fn from(&self, at: u64) -> impl Iterator<Item = (u64, EntrySlot)> {
        let words = (0..).zip(&self.here).skip((at / 64) as usize);
        let ats = words.flat_map(move |(word, &bits)| {
            let hidden = if word == at / 64 { !(u64::MAX << (at % 64)) } else { 0 };
            Bits(bits & !hidden).map(move |bit| word * 64 + bit)
        });
        ats.zip(self.slots.from(self.rank(at)))
    }

    /// The last slot before this index.
    fn last_before(&self, at: u64) -> Option<(u64, EntrySlot)> {
        let slot = self.slots.get(self.rank(at).checked_sub(1)?)?;
        let at = (0..at).rev().find(|&index| self.has(index))?;
        Some((at, slot))
    }

    /// The page without the dead slots.
    fn without(&self, dead: &[u64]) -> Self {
        let mut left = Self::default();
        let mut dead = dead.iter().copied().peekable();
        for (at, slot) in self.from(0) {
            if dead.next_if_eq(&at).is_none() {
                left.note(&slot);
                left.bytes += u64::from(slot.location.size);
                left.mark(at);
                left.slots.insert(left.slots.len(), &slot);
            }
        }
        left.slots.shrink();
        left
    }
}

/// The slots of a topic.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    /// Number of the first page.
    base: u64,
    /// `None` if no ordinal of the page has a slot.
    pages: VecDeque<Option<Arc<EntryPage>>>,
}

impl Pages {
    fn index(&self, page: u64) -> Option<usize> {
        usize::try_from(page.checked_sub(self.base)?).ok()
    }

    pub(super) fn get(&self, ordinal: u64) -> Option<EntrySlot> {
        self.pages.get(self.index(ordinal / PAGE)?)?.as_ref()?.get(ordinal % PAGE)
    }

    /// Sets the slot of an ordinal. Returns the previous one.
    pub(super) fn put(&mut self, ordinal: u64, slot: EntrySlot) -> Option<EntrySlot> {
        Arc::make_mut(self.page(ordinal / PAGE)?).put(ordinal % PAGE, slot)
    }

    /// Sets the slots of consecutive ordinals. Passes on the previous ones.
    pub(super) fn put_run(
        &mut self,
        mut ordinal: u64,
        mut slots: &[EntrySlot],
        mut former: impl FnMut(EntrySlot),
    ) {
        while !slots.is_empty() {
            let (at, left) = (ordinal % PAGE, PAGE - ordinal % PAGE);
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(slots.len());
            let (here, rest) = slots.split_at(most);
            let Some(page) = self.page(ordinal / PAGE).map(Arc::make_mut) else { return };
            if at >= page.end {
                page.extend(at, here);
            } else {
                for (at, slot) in (at..).zip(here) {
                    page.put(at, *slot).into_iter().for_each(&mut former);
                }
            }
            ordinal += here.len() as u64;
            slots = rest;
        }
    }

    /// The page of this number, which is created if needed.
    fn page(&mut self, page: u64) -> Option<&mut Arc<EntryPage>> {
        if self.pages.is_empty() {
            self.base = page;
        }
        while page < self.base {
            self.pages.push_front(None);
            self.base -= 1;
        }
        let index = self.index(page)?;
        if index >= self.pages.len() {
            // The last page is usually full.
            if let Some(last) =
                self.pages.back_mut().and_then(Option::as_mut).and_then(Arc::get_mut)
            {
                last.slots.shrink();
            }
            self.pages.resize(index + 1, None);
        }
        Some(self.pages.get_mut(index)?.get_or_insert_default())
    }

    /// The pages with slots, from the page of this ordinal on, each with its first ordinal.
    fn from(&self, ordinal: u64) -> impl Iterator<Item = (u64, &EntryPage)> {
        let first = (ordinal / PAGE).max(self.base);
        let index = self.index(first).unwrap_or_default().min(self.pages.len());
        let pages = (first..).zip(self.pages.range(index..));
        pages.filter_map(|(number, page)| Some((number * PAGE, page.as_deref()?)))
    }

    /// The slots of `from..to`, in order.
    pub(super) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, EntrySlot)> {
        let slots = self.from(from).flat_map(move |(first, page)| {
            let inside = page.from(from.saturating_sub(first));
            inside.map(move |(at, slot)| (first + at, slot))
        });
        slots.take_while(move |&(ordinal, _)| ordinal < to)
    }

    /// The n-th slot from the ordinal on, from 0. Pages before it are only counted.
    pub(super) fn nth(&self, from: u64, nth: u64) -> Option<u64> {
        let mut left = usize::try_from(nth).ok()?;
        for (first, page) in self.from(from) {
            let start = from.saturating_sub(first);
            let here = page.slots.len() - page.rank(start);
            if left < here {
                return page.from(start).nth(left).map(|(at, _)| first + at);
            }
            left -= here;
        }
        None
    }

    /// Size of the entries from the ordinal on, in bytes. Whole pages know their sum.
    pub(super) fn bytes_from(&self, ordinal: u64) -> u64 {
        let of = |(first, page): (u64, &EntryPage)| match ordinal.saturating_sub(first) {
            0 => page.bytes,
            part => page.from(part).map(|(_, slot)| u64::from(slot.location.size)).sum(),
        };
        self.from(ordinal).map(of).sum()
    }

    /// The last slot before the ordinal.
    pub(super) fn last_before(&self, ordinal: u64) -> Option<(u64, EntrySlot)> {
        let end = (self.base + self.pages.len() as u64) * PAGE;
        let mut before = ordinal.min(end);
        while let Some(last) = before.checked_sub(1) {
            let index = self.index(last / PAGE)?;
            let first = last / PAGE * PAGE;
            let page = self.pages.get(index)?.as_deref();
            if let Some((at, slot)) = page.and_then(|page| page.last_before(before - first)) {
                return Some((first + at, slot));
            }
            before = first;
        }
        None
    }

    /// The first ordinal from `from` on whose slot was published at or after this time.
    pub(super) fn at_time(&self, time: u64, from: u64) -> Option<u64> {
        let pages = self.from(from).filter(|(_, page)| page.latest >= time);
        let mut slots =
            pages.flat_map(|(first, page)| page.from(0).map(move |(at, slot)| (first + at, slot)));
        slots.find(|(at, slot)| *at >= from && slot.publish_time >= time).map(|found| found.0)
    }

    /// The first ordinal whose slot is in this log segment or a later one.
    pub(super) fn first_in_segment(&self, segment: u32) -> Option<u64> {
        let pages = self.from(0).filter(|(_, page)| page.segments.1 >= segment);
        let mut slots =
            pages.flat_map(|(first, page)| page.from(0).map(move |(at, slot)| (first + at, slot)));
        slots.find(|(_, slot)| slot.location.segment >= segment).map(|found| found.0)
    }

    /// Whether a page may have a slot in this segment of the log.
    pub(super) fn may_be_in(&self, segment: u32) -> bool {
        self.from(0).any(|(_, page)| (page.segments.0..=page.segments.1).contains(&segment))
    }

    /// The slots in these segments of the log.
    pub(super) fn in_segments<'a>(
        &'a self,
        segments: &'a BTreeSet<u32>,
    ) -> impl Iterator<Item = (u64, EntrySlot)> + 'a {
        let pages = self
            .from(0)
            .filter(|(_, page)| segments.range(page.segments.0..=page.segments.1).next().is_some());
        let slots =
            pages.flat_map(|(first, page)| page.from(0).map(move |(at, slot)| (first + at, slot)));
        slots.filter(|(_, slot)| segments.contains(&slot.location.segment))
    }

    /// A copy of the pages of `from..to`. Pages are shared until one of the copies changes.
    pub(super) fn copy(&self, from: u64, to: u64) -> Self {
        let base = (from / PAGE).max(self.base);
        let index = |page: u64| self.index(page).unwrap_or_default().min(self.pages.len());
        let (start, end) = (index(base), index(to.div_ceil(PAGE)));
        Self { base, pages: self.pages.range(start..end.max(start)).cloned().collect() }
    }

    /// Removes the dead slots of `from..to`, in at most this many pages. Returns their ordinals and
    /// locations, the number of checked pages, and where to continue if there are more.
    pub(super) fn forget(
        &mut self,
        from: u64,
        to: u64,
        pages_max: usize,
        mut is_dead: impl FnMut(u64, &EntrySlot) -> bool,
    ) -> (Vec<(u64, RecordLocation)>, usize, Option<u64>) {
        let (mut freed, mut next) = (Vec::new(), None);
        let mut pages_left = pages_max;
        let first = (from / PAGE).max(self.base);
        let start = self.index(first).unwrap_or_default().min(self.pages.len());
        for (number, page) in (first..).zip(self.pages.range_mut(start..)) {
            if number * PAGE >= to {
                break;
            }
            let Some(kept) = page else { continue };
            if pages_left == 0 {
                next = Some(number * PAGE);
                break;
            }
            pages_left -= 1;
            let since = from.saturating_sub(number * PAGE);
            let slots = kept.from(since).map(|(at, slot)| (at, number * PAGE + at, slot));
            let slots = slots.take_while(|slot| slot.1 < to);
            let dead = slots.filter(|(_, ordinal, slot)| is_dead(*ordinal, slot));
            let dead: Vec<u64> = dead
                .map(|(at, ordinal, slot)| {
                    freed.push((ordinal, slot.location));
                    at
                })
                .collect();
            if dead.is_empty() {
                continue;
            }
            *page = (dead.len() < kept.slots.len()).then(|| Arc::new(kept.without(&dead)));
        }
        while self.pages.front().is_some_and(Option::is_none) {
            self.pages.pop_front();
            self.base += 1;
        }
        (freed, pages_max - pages_left, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn slot(segment: u32, publish_time: u64) -> EntrySlot {
        EntrySlot::new(
            RecordLocation { segment, offset: 0, size: 10 + segment },
            None,
            publish_time,
        )
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, u32, u64),
        /// Several slots: the first one, a segment, and how many.
        Run(u64, u32, u64),
        /// Range, and the divisor: one of how many is dead.
        Forget(u64, u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let put = (0..5000_u64, 1..6_u32, 0..50_u64)
            .prop_map(|(at, segment, time)| Step::Put(at, segment, time));
        let forget = (0..5000_u64, 0..5000_u64, 1..4_u64)
            .prop_map(|(from, to, of)| Step::Forget(from, to, of));
        let run = (0..5000_u64, 1..6_u32, 0..3000_u64)
            .prop_map(|(at, segment, count)| Step::Run(at, segment, count));
        prop_oneof![80 => put, 1 => run, 10 => forget]
    }

    proptest! {
        /// After any operations, the pages equal a plain map.
        #[test]
        fn pages_are_a_map(
            steps in proptest::collection::vec(step(), 0..400),
            (from, to) in (0..5000_u64, 0..6000_u64),
            (time, segment, nth) in (0..51_u64, 0..7_u32, 0..400_u16),
        ) {
            let (mut pages, mut map) = (Pages::default(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Put(at, segment, time) => {
                        prop_assert_eq!(pages.put(at, slot(segment, time)), map.insert(at, slot(segment, time)));
                    }
                    Step::Run(at, segment, count) => {
                        let slots: Vec<EntrySlot> = (0..count).map(|time| slot(segment, time % 50)).collect();
                        let (mut former, mut expected) = (Vec::new(), Vec::new());
                        pages.put_run(at, &slots, |slot| former.push(slot));
                        for (at, slot) in (at..).zip(slots) {
                            expected.extend(map.insert(at, slot));
                        }
                        prop_assert_eq!(former, expected);
                    }
                    Step::Forget(from, to, of) => {
                        let dead = |at: &u64| (from..to).contains(at) && at.is_multiple_of(of);
                        let (freed, _, next) = pages.forget(from, to, usize::MAX, |at, _| at.is_multiple_of(of));
                        let expected: Vec<_> = map.iter().filter(|entry| dead(entry.0)).map(|(at, slot)| (*at, slot.location)).collect();
                        prop_assert_eq!((freed, next), (expected, None));
                        map.retain(|at, _| !dead(at));
                    }
                }
            }
            let within = |entry: &(&u64, &EntrySlot)| (from..to).contains(entry.0);
            let expected: Vec<_> = map.iter().filter(within).map(|(at, slot)| (*at, *slot)).collect();
            let found: Vec<_> = pages.range(from, to).collect();
            prop_assert_eq!(&found, &expected);
            let copied: Vec<_> = pages.copy(from, to).range(from, to).collect();
            prop_assert_eq!(&copied, &expected);
            prop_assert_eq!(pages.get(from), map.get(&from).copied());
            let expected = map.range(from..).map(|entry| *entry.0).nth(nth.into());
            prop_assert_eq!(pages.nth(from, nth.into()), expected);
            let bytes = map.range(from..).map(|(_, slot)| u64::from(slot.location.size)).sum::<u64>();
            prop_assert_eq!(pages.bytes_from(from), bytes);
            prop_assert_eq!(
                pages.last_before(to),
                map.range(..to).next_back().map(|(at, slot)| (*at, *slot))
            );
            prop_assert_eq!(
                pages.at_time(time, from),
                map.range(from..).find(|entry| entry.1.publish_time >= time).map(|entry| *entry.0)
            );
            prop_assert_eq!(
                pages.first_in_segment(segment),
                map.iter().find(|entry| entry.1.location.segment >= segment).map(|entry| *entry.0)
            );
            let chosen = BTreeSet::from([segment, 3]);
            let inside: Vec<u64> = pages.in_segments(&chosen).map(|entry| entry.0).collect();
            let expected: Vec<u64> =
                map.iter().filter(|entry| chosen.contains(&entry.1.location.segment)).map(|entry| *entry.0).collect();
            prop_assert_eq!(inside, expected);
        }
    }

    /// Each of six million acknowledged entries after an unacknowledged one kept its 24 bytes.
    #[test]
    fn what_is_gone_takes_no_memory() {
        let mut pages = Pages::default();
        for at in 0..100_000 {
            pages.put(at, slot(1, at));
        }
        let bytes = |pages: &Pages| -> usize {
            pages.pages.iter().flatten().map(|page| page.slots.capacity()).sum()
        };
        assert_eq!(bytes(&pages) / 100_000, 2, "those of a time that differs by a second");
        pages.forget(1, 99_999, usize::MAX, |_, _| true);
        let slots: usize = pages.pages.iter().flatten().map(|page| page.slots.len()).sum();
        assert_eq!((slots, pages.pages.iter().flatten().count(), pages.pages.len()), (2, 2, 98));
        assert_eq!(bytes(&pages), 0, "one slot alone is told by the base of its columns");
        pages.forget(0, 1, usize::MAX, |_, _| true);
        assert_eq!(pages.pages.len(), 1, "what is gone at the front has no pages");
    }

    #[test]
    fn so_many_pages_are_looked_at_and_gone_ones_do_not_count() {
        let mut pages = Pages::default();
        for at in [0, 5 * PAGE, 6 * PAGE + 1] {
            pages.put(at, slot(1, 0));
        }
        let mut seen = Vec::new();
        let mut look = |from| {
            pages
                .forget(from, u64::MAX, 2, |at, _| {
                    seen.push(at);
                    false
                })
                .2
        };
        assert_eq!(look(0), Some(6 * PAGE));
        assert_eq!(look(6 * PAGE), None);
        assert_eq!(seen, [0, 5 * PAGE, 6 * PAGE + 1]);
    }
}
