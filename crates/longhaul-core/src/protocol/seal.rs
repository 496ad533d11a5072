//! Seals: compact records of finished tasks.
//!
//! A finished task keeps its keys on the ledger for a while. Then a seal names its entry on the
//! task topic as over, and any worker that has read the seal may tombstone the keys. A sealed task
//! is terminal, whatever else is on the ledger, before or behind the seal. The order of the
//! tombstones makes this safe, without clocks: first every entry that the fold did not accept, and
//! after those are gone the accepted ones. Rejected entries are then either gone, or they lie
//! behind an accepted entry, or behind a seal that a reader must still pass. A view may lag, but
//! never accepts a rejected entry.
//!
//! Many small seals are merged: their union is published and read back, the keys of their tasks are
//! removed, and then the covered seals. A seal may be removed only if it precedes the seal that
//! covers it.

use super::entry_set::{BatchOutcome, EntrySet, Range};
use super::key::SealKey;
use crate::task::{EntryId, Position};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The largest body of a seal, in bytes.
pub const SEAL_BYTES_MAX: usize = 64 * 1024;

/// Number of tasks by outcome. Tasks that two workers sealed at once are counted by both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EndedCounts {
    /// With a result: COMPLETED.
    pub completed: u64,
    /// Failed for good: FINAL.
    pub failed: u64,
    /// Cancelled on request, or because another task has or takes its key: CANCELLED.
    pub cancelled: u64,
    /// No attempt began in time: EXPIRED.
    pub expired: u64,
}

impl EndedCounts {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            completed: self.completed.saturating_add(other.completed),
            failed: self.failed.saturating_add(other.failed),
            cancelled: self.cancelled.saturating_add(other.cancelled),
            expired: self.expired.saturating_add(other.expired),
        }
    }
}

/// A seal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seal {
    /// Its key.
    pub key: SealKey,
    /// Number of tasks by outcome.
    pub counts: EndedCounts,
    /// Entries of the task topic, of the ledger's own partition, whose tasks are all over.
    pub entries: EntrySet,
}

/// Form byte of a body that holds a set of entries.
const ENTRIES: u8 = 0x02;

/// Encodes the body of a seal: the form byte, then each range as three variable-length numbers: the
/// distance of its ledger from the last one's, its start (from the end of the last range in the
/// same ledger), and its length minus one, with the outcome in the two lowest bits.
#[must_use]
pub fn encode(entries: &EntrySet) -> Bytes {
    let mut body = BytesMut::with_capacity(1 + 4 * entries.len());
    body.put_u8(ENTRIES);
    numbers(entries).for_each(|number| put(&mut body, number));
    body.freeze()
}

/// The size of the body of a seal.
#[must_use]
pub fn body_bytes(entries: &EntrySet) -> usize {
    let bytes = |number: u128| (u128::BITS - number.leading_zeros()).div_ceil(7).max(1) as usize;
    1 + numbers(entries).map(bytes).sum::<usize>()
}

/// The numbers in the body of a seal.
fn numbers(entries: &EntrySet) -> impl Iterator<Item = u128> {
    let (mut ledger, mut next) = (0, 0);
    entries.ranges().flat_map(move |range| {
        let from = if range.ledger == ledger { next } else { 0 };
        let ended = match range.ended {
            BatchOutcome::Completed => 0,
            BatchOutcome::Failed => 1,
            BatchOutcome::Mixed => 2,
        };
        let length = u128::from(range.last - range.first) << 2 | ended;
        let numbers = [u128::from(range.ledger - ledger), u128::from(range.first - from), length];
        (ledger, next) = (range.ledger, range.last.saturating_add(1));
        numbers
    })
}

/// Reads the body of a seal; `None` if it is not one.
#[must_use]
pub fn decode(body: &[u8]) -> Option<EntrySet> {
    let (form, mut rest) = body.split_first()?;
    if *form != ENTRIES || body.len() > SEAL_BYTES_MAX {
        return None;
    }
    let mut entries = EntrySet::default();
    let (mut ledger, mut next) = (0_u64, 0_u64);
    while !rest.is_empty() {
        let delta = u64::try_from(take(&mut rest)?).ok()?;
        let from = if delta == 0 { next } else { 0 };
        ledger = ledger.checked_add(delta)?;
        let first = from.checked_add(u64::try_from(take(&mut rest)?).ok()?)?;
        let length = take(&mut rest)?;
        let last = first.checked_add(u64::try_from(length >> 2).ok()?)?;
        let ended = match length & 3 {
            0 => BatchOutcome::Completed,
            1 => BatchOutcome::Failed,
            2 => BatchOutcome::Mixed,
            _ => return None,
        };
        if !entries.push(Range { ledger, first, last, ended }) {
            return None;
        }
        next = last.saturating_add(1);
    }
    Some(entries)
}

/// Appends a number: seven bits per byte, the lowest first, the highest bit set on all but the
/// last.
fn put(body: &mut BytesMut, mut number: u128) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0x7f);
        number >>= 7;
        if number == 0 {
            return body.put_u8(low);
        }
        body.put_u8(low | 0x80);
    }
}

fn take(rest: &mut &[u8]) -> Option<u128> {
    // Ten bytes hold 64 bits and the two for the outcome of a range.
    const BYTES_MAX: u32 = 10;
    let mut number = 0;
    for place in 0..BYTES_MAX {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u128::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// All seals of a ledger that were read and not tombstoned, and their union.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Seals {
    /// All sealed entries, including those of removed seals that another one covers.
    all: EntrySet,
    /// Seals with entries that no later seal contains.
    needed: BTreeMap<SealKey, PlacedSeal>,
    /// Removable seals, with their entries: one seal behind each contains all of them. This remains
    /// true, because the later one may be removed only when one behind it contains both.
    covered: BTreeMap<SealKey, EntrySet>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlacedSeal {
    at: Position,
    counts: EndedCounts,
    entries: EntrySet,
}

/// Only numbers: a worker may know a million ranges.
impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seals")
            .field("ranges", &self.all.ranges().count())
            .field("needed", &self.needed.len())
            .field("covered", &self.covered.len())
            .finish()
    }
}

impl Seals {
    /// Whether the entry is sealed.
    #[must_use]
    pub fn holds(&self, entry: EntryId) -> bool {
        self.all.get(entry).is_some()
    }

    /// The outcome of the tasks of the entry, if it is sealed.
    #[must_use]
    pub fn ended(&self, entry: EntryId) -> Option<BatchOutcome> {
        self.all.get(entry)
    }

    /// All sealed entries.
    pub(crate) const fn entries(&self) -> &EntrySet {
        &self.all
    }

    /// Whether all of these entries are sealed.
    #[must_use]
    pub fn hold_all(&self, entries: &EntrySet) -> bool {
        self.all.covers(entries)
    }

    /// Number of tasks of the partition that were ever sealed, by outcome. Seals are never dropped,
    /// so this survives restarts and compactions. Each task counts once, except for those that two
    /// workers sealed at once.
    #[must_use]
    pub fn counts(&self) -> EndedCounts {
        self.needed.values().fold(EndedCounts::default(), |sum, placed| sum.plus(placed.counts))
    }

    /// Adds a seal.
    pub fn read(&mut self, at: Position, seal: &Seal) {
        self.all.extend(&seal.entries);
        let Seal { key, counts, ref entries, .. } = *seal;
        let covered = &mut self.covered;
        self.needed.retain(|earlier, placed| {
            let is_covered = entries.covers(&placed.entries);
            if is_covered {
                covered.insert(*earlier, std::mem::take(&mut placed.entries));
            }
            !is_covered
        });
        covered.remove(&key);
        self.needed.insert(key, PlacedSeal { at, counts, entries: entries.clone() });
    }

    /// Removes a tombstoned seal. Its entries stay: another seal contains them.
    pub fn gone(&mut self, key: SealKey) {
        self.needed.remove(&key);
        self.covered.remove(&key);
    }

    /// Number of seals with entries that no later one contains.
    #[cfg(test)]
    pub(crate) fn needed(&self) -> usize {
        self.needed.len()
    }

    /// The removable seals, with their entries: one seal behind each contains all of them.
    pub fn covered(&self) -> impl Iterator<Item = (SealKey, &EntrySet)> {
        self.covered.iter().map(|(key, entries)| (*key, entries))
    }

    /// The union of the smallest uncovered seals, as many as fit into one; `None` if these are
    /// fewer than two, or than `min`. With `min` = n there are at most n times as many seals as
    /// needed: n of them that do not fit into one fill an n-th of a seal each on average.
    ///
    /// The size of a union is not known from its parts: the seals of two workers over the same tasks
    /// are long, and their union is a few bytes.
    #[must_use]
    pub fn merged(&self, min: usize) -> Option<(EndedCounts, EntrySet)> {
        if self.needed.len() < min.max(2) {
            return None;
        }
        let mut seals: Vec<&PlacedSeal> = self.needed.values().collect();
        seals.sort_by_key(|placed| (placed.entries.len(), placed.at));
        let (mut counts, mut union, mut merged) = (EndedCounts::default(), EntrySet::default(), 0);
        for placed in seals {
            let next = union.union(&placed.entries);
            if body_bytes(&next) > SEAL_BYTES_MAX {
                break;
            }
            (counts, union, merged) = (counts.plus(placed.counts), next, merged + 1);
        }
        (merged >= min.max(2)).then_some((counts, union))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::key::OwnerId;
    use proptest::prelude::*;

    fn any_entries() -> impl Strategy<Value = EntrySet> {
        let number = prop_oneof![0..200_u64, any::<u64>()];
        let ended = prop_oneof![
            Just(BatchOutcome::Completed),
            Just(BatchOutcome::Failed),
            Just(BatchOutcome::Mixed)
        ];
        let range = (number.clone(), number.clone(), number, ended);
        prop::collection::vec(range, 0..40).prop_map(|mut ranges| {
            ranges.sort_unstable();
            let mut entries = EntrySet::default();
            for (ledger, first, length, ended) in ranges {
                let last = first.saturating_add(length);
                // A range that overlaps the one before is left out.
                entries.push(Range { ledger, first, last, ended });
            }
            entries
        })
    }

    fn at(entry: u64) -> Position {
        Position { ledger: 9, entry, batch_index: None }
    }

    fn seal(serial: u64, entries: &[u64]) -> Seal {
        let mut set = EntrySet::default();
        for entry in entries {
            set.push_entry(EntryId { ledger: 1, entry: *entry }, BatchOutcome::Completed);
        }
        let counts = EndedCounts { completed: entries.len() as u64, ..EndedCounts::default() };
        Seal { key: SealKey { owner: OwnerId(1), serial }, counts, entries: set }
    }

    fn covered(seals: &Seals) -> Vec<u64> {
        seals.covered().map(|(key, _)| key.serial).collect()
    }

    #[test]
    fn a_dense_ledger_is_a_few_bytes() {
        let all: Vec<u64> = (0..50_000).collect();
        assert!(encode(&seal(1, &all).entries).len() <= 8);
    }

    /// A missing entry, or one with another outcome than its
    /// neighbours, splits a range.
    #[test]
    fn holes_and_failures_cost_three_bytes_each() {
        const ENTRIES_OF_A_LEDGER: u64 = 50_000;
        let (mut holes, mut failures) = (EntrySet::default(), EntrySet::default());
        for entry in 0..ENTRIES_OF_A_LEDGER {
            let ended =
                if entry % 10 == 9 { BatchOutcome::Failed } else { BatchOutcome::Completed };
            failures.push_entry(EntryId { ledger: 1, entry }, ended);
            if ended == BatchOutcome::Completed {
                holes.push_entry(EntryId { ledger: 1, entry }, ended);
            }
        }
        assert_eq!((holes.len(), encode(&holes).len()), (5_000, 15_001));
        assert_eq!((failures.len(), encode(&failures).len()), (10_000, 30_001));
        assert_eq!(size_of::<Range>(), 32);
        // A year at 1,000 tasks a second.
        let mut year = EntrySet::default();
        for ledger in 0..1_000 * 3600 * 24 * 365 / ENTRIES_OF_A_LEDGER {
            let last = ENTRIES_OF_A_LEDGER - 1;
            year.push(Range { ledger: 7 * ledger, first: 0, last, ended: BatchOutcome::Completed });
        }
        assert_eq!((year.len(), encode(&year).len()), (630_720, 3_153_601));
    }

    #[test]
    fn only_a_seal_that_stands_before_the_one_that_covers_it_may_go() {
        let mut seals = Seals::default();
        seals.read(at(1), &seal(1, &[1, 2]));
        seals.read(at(2), &seal(2, &[3]));
        assert_eq!(covered(&seals), [0_u64; 0]);
        seals.read(at(3), &seal(3, &[1, 2, 3]));
        assert_eq!(covered(&seals), [1, 2]);
        // Of two equal seals the later one stays, even if it is the same one read again.
        seals.read(at(4), &seal(4, &[1, 2, 3]));
        assert_eq!((covered(&seals), seals.needed()), (vec![1, 2, 3], 1));
        seals.read(at(5), &seal(4, &[1, 2, 3]));
        assert_eq!((covered(&seals), seals.needed()), (vec![1, 2, 3], 1));
        for serial in 1..=3 {
            seals.gone(SealKey { owner: OwnerId(1), serial });
        }
        assert_eq!((covered(&seals), seals.needed()), (vec![], 1));
        assert!(seals.holds(EntryId { ledger: 1, entry: 2 }));
    }

    #[test]
    fn a_union_says_what_its_seals_say_and_is_no_larger_than_a_seal_may_be() {
        let mut seals = Seals::default();
        seals.read(at(1), &seal(1, &[1, 2]));
        assert_eq!(seals.merged(2), None);
        seals.read(at(2), &seal(2, &[3, 9]));
        let (counts, union) = seals.merged(2).expect("there are two");
        assert_eq!((counts.completed, union), (4, seal(3, &[1, 2, 3, 9]).entries));
        // Every other entry: more than two bytes for each, so that two such seals do not fit into
        // one.
        for serial in 3..5 {
            let entries: Vec<u64> = (0..15_000).map(|n| 100_000 * serial + 2 * n).collect();
            seals.read(at(serial), &seal(serial, &entries));
        }
        let (counts, union) = seals.merged(2).expect("there are four");
        assert!(encode(&union).len() <= SEAL_BYTES_MAX);
        assert_eq!(counts.completed, 15_004);
    }

    proptest! {
        #[test]
        fn a_set_survives_its_body(entries in any_entries()) {
            let body = encode(&entries);
            prop_assert_eq!(body.len(), body_bytes(&entries));
            prop_assert_eq!(decode(&body), Some(entries));
        }

        #[test]
        fn garbage_is_read_without_a_panic(mut body in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(form) = body.first_mut() {
                *form = ENTRIES;
            }
            if let Some(entries) = decode(&body) {
                prop_assert_eq!(decode(&encode(&entries)), Some(entries));
            }
        }
    }

    /// Every build must read the bytes of every other build.
    #[test]
    fn the_bytes_of_a_seal_are_those() {
        let mut entries = EntrySet::default();
        for (ledger, first, last, ended) in [
            (1, 2, 2, BatchOutcome::Completed),
            (1, 3, 300, BatchOutcome::Failed),
            (9, 1, 1, BatchOutcome::Mixed),
        ] {
            assert!(entries.push(Range { ledger, first, last, ended }));
        }
        let bytes = [2, 1, 2, 0, 0, 0, 0xa5, 0x09, 8, 1, 2];
        assert_eq!(encode(&entries).as_ref(), bytes);
        assert_eq!(decode(&bytes), Some(entries));
        for wrong in [&[][..], &[1, 1, 2, 0], &[2, 1, 2, 3], &[2, 1], &[2, 1, 2, 0x80]] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }

    /// Sets of every other entry: three bytes for each, and one in front.
    fn spread(serial: u64, entries: std::ops::Range<u64>) -> Seal {
        seal(serial, &entries.map(|entry| 2 * entry).collect::<Vec<_>>())
    }

    #[test]
    fn a_seal_may_be_as_large_as_it_may_be_and_no_larger() {
        let largest = encode(&spread(1, 0..21_845).entries);
        assert_eq!(largest.len(), SEAL_BYTES_MAX);
        assert!(decode(&largest).is_some());
        assert_eq!(decode(&encode(&spread(1, 0..21_846).entries)), None);
        let mut seals = Seals::default();
        seals.read(at(1), &spread(1, 0..10_000));
        seals.read(at(2), &spread(2, 10_000..21_845));
        let union = seals.merged(2).map(|(_, union)| union);
        assert_eq!(union, Some(spread(3, 0..21_845).entries));
    }

    /// Each worker seals what it has closed. Once seals were merged only if their bodies fit into one
    /// side by side, and those of two workers on a busy partition never were.
    #[test]
    fn seals_of_two_workers_over_the_same_tasks_are_merged() {
        let mut seals = Seals::default();
        for serial in 0..16 {
            let entries: Vec<u64> =
                (0..2_000).map(|n| 2 * (serial / 2 * 2_000 + n) + serial % 2).collect();
            seals.read(at(serial), &seal(serial, &entries));
        }
        let (counts, union) = seals.merged(16).expect("together they are one range");
        assert_eq!((counts.completed, union.len(), body_bytes(&union)), (32_000, 1, 6));
    }

    /// One large seal in front of many small ones must not prevent their merge.
    #[test]
    fn the_smallest_are_merged_first() {
        let mut seals = Seals::default();
        seals.read(at(1), &spread(1, 100..21_900));
        seals.read(at(2), &spread(2, 0..20));
        seals.read(at(3), &spread(3, 30..60));
        let union = seals.merged(2).map(|(_, union)| union);
        assert_eq!(union, Some(spread(2, 0..20).entries.union(&spread(3, 30..60).entries)));
    }
}
