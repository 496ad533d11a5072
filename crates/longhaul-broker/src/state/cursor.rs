//! The acknowledged entries of a subscription.

use super::change::Ack;
use super::ranges::Ranges;
use std::collections::BTreeMap;

/// The acknowledged entries of a subscription, by their ordinals.
///
/// Invariant: the entry at `mark` is unacknowledged, and the other fields have nothing below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Everything before this ordinal is acknowledged.
    mark: u64,
    /// Acknowledged entries after the mark.
    acked: Ranges,
    /// Partly acknowledged batches: a set bit is an unacknowledged message, the lowest bit first.
    partial: BTreeMap<u64, Vec<u64>>,
}

impl Cursor {
    /// A cursor that has acknowledged everything before the ordinal.
    #[must_use]
    pub fn at(mark: u64) -> Self {
        Self { mark, ..Self::default() }
    }

    /// The first unacknowledged entry.
    #[must_use]
    pub const fn mark(&self) -> u64 {
        self.mark
    }

    /// Whether the entry is acknowledged.
    #[must_use]
    pub fn is_acked(&self, ordinal: u64) -> bool {
        ordinal < self.mark || self.acked.contains(ordinal)
    }

    /// Whether the entry before or after this one is acknowledged: together they are one range.
    #[must_use]
    pub fn touches(&self, ordinal: u64) -> bool {
        ordinal <= self.mark
            || self.acked.contains(ordinal - 1)
            || self.acked.contains(ordinal.saturating_add(1))
    }

    /// The first unacknowledged entry at or after this one.
    #[must_use]
    pub fn next_unacked(&self, ordinal: u64) -> u64 {
        self.acked.next_absent(ordinal.max(self.mark))
    }

    /// The first acknowledged entry at or after this one; `u64::MAX` if there is none.
    #[must_use]
    pub fn next_acked(&self, ordinal: u64) -> u64 {
        if ordinal < self.mark { ordinal } else { self.acked.next_present(ordinal) }
    }

    /// The n-th unacknowledged entry from this one on, from 0. The cost is small per acknowledged
    /// range.
    #[must_use]
    pub fn nth_unacked(&self, ordinal: u64, nth: u64) -> u64 {
        let (mut at, mut left) = (self.next_unacked(ordinal), nth);
        loop {
            let acked = self.acked.next_present(at);
            let open = acked - at;
            if left < open || acked == u64::MAX {
                return at.saturating_add(left);
            }
            left -= open;
            at = self.acked.next_absent(acked);
        }
    }

    /// Applies a recorded acknowledgement.
    pub fn apply(&mut self, ack: &Ack) {
        if let Some(before) = ack.before {
            self.ack_before(before);
        }
        ack.entries.iter().for_each(|&ordinal| self.ack(ordinal));
        for pair in ack.ranges.chunks_exact(2) {
            if let &[from, to] = pair {
                self.ack_range(from, to);
            }
        }
        for batch in &ack.batches {
            self.ack_in_batch(batch.ordinal, &batch.open, batch.messages);
        }
    }

    /// Acknowledges one entry.
    pub fn ack(&mut self, ordinal: u64) {
        self.ack_range(ordinal, ordinal + 1);
    }

    /// Acknowledges `from..to`.
    pub fn ack_range(&mut self, from: u64, to: u64) {
        while let Some((&ordinal, _)) = self.partial.range(from..to).next() {
            self.partial.remove(&ordinal);
        }
        if from > self.mark {
            self.acked.insert(from, to);
            return;
        }
        self.ack_before(to);
    }

    /// Acknowledges everything before the entry. The mark never goes back.
    pub fn ack_before(&mut self, to: u64) {
        self.mark = self.acked.next_absent(to.max(self.mark));
        self.acked.remove_below(self.mark);
        self.partial = self.partial.split_off(&self.mark);
    }

    /// Acknowledges the messages of a batch whose bits are cleared. Returns whether they were the
    /// last ones: the entry is then acknowledged as a whole.
    pub fn ack_in_batch(&mut self, ordinal: u64, still_open: &[u64], messages: u32) -> bool {
        if self.is_acked(ordinal) {
            return false;
        }
        let bits = self.partial.entry(ordinal).or_insert_with(|| all_open(messages));
        for (at, word) in bits.iter_mut().enumerate() {
            *word &= still_open.get(at).copied().unwrap_or_default();
        }
        let done = bits.iter().all(|&word| word == 0);
        if done {
            self.ack(ordinal);
        }
        done
    }

    /// The unacknowledged messages of a partly acknowledged batch.
    #[must_use]
    pub fn open_in_batch(&self, ordinal: u64) -> Option<&[u64]> {
        self.partial.get(&ordinal).map(Vec::as_slice)
    }

    /// Number of partly acknowledged batches.
    #[must_use]
    pub fn partly_acked(&self) -> usize {
        self.partial.len()
    }

    /// Forgets all acknowledgements, and starts again at the ordinal.
    pub fn reset(&mut self, mark: u64) {
        *self = Self::at(mark);
    }

    /// Acknowledged entries after the mark.
    #[must_use]
    pub const fn acked(&self) -> &Ranges {
        &self.acked
    }

    /// The partly acknowledged batches, with their unacknowledged messages.
    pub fn partial(&self) -> impl Iterator<Item = (u64, &[u64])> {
        self.partial.iter().map(|(&ordinal, open)| (ordinal, open.as_slice()))
    }

    /// Number of unacknowledged entries before `end`, counted from `first` on.
    #[must_use]
    pub fn open_between(&self, first: u64, end: u64) -> u64 {
        let from = self.mark.max(first);
        end.saturating_sub(from).saturating_sub(self.acked.count_within(from, end))
    }
}

fn all_open(messages: u32) -> Vec<u64> {
    let whole = (messages / 64) as usize;
    let mut bits = vec![u64::MAX; whole];
    if !messages.is_multiple_of(64) {
        bits.push((1 << (messages % 64)) - 1);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_out_of_order_close_up() {
        let mut cursor = Cursor::at(10);
        cursor.ack(12);
        cursor.ack(11);
        assert_eq!((cursor.mark(), cursor.acked().pieces()), (10, 1));
        assert_eq!((cursor.next_unacked(0), cursor.next_unacked(11)), (10, 13));
        assert_eq!(cursor.open_between(0, 15), 3);
        cursor.ack(10);
        assert_eq!((cursor.mark(), cursor.acked().pieces()), (13, 0));
        assert!(cursor.is_acked(3) && !cursor.is_acked(13));
    }

    #[test]
    fn a_cumulative_ack_swallows_what_lies_before_it() {
        let mut cursor = Cursor::at(0);
        cursor.ack(3);
        cursor.ack(7);
        cursor.ack_before(3);
        assert_eq!(cursor.mark(), 4, "3 was acknowledged already");
        cursor.ack_before(2);
        assert_eq!(cursor.mark(), 4, "a cumulative ack never goes back");
        assert_eq!(cursor.acked().iter().collect::<Vec<_>>(), [(7, 8)]);
    }

    #[test]
    fn a_batch_is_acknowledged_when_its_last_message_is() {
        let mut cursor = Cursor::at(0);
        assert!(!cursor.ack_in_batch(2, &[0b101], 3));
        assert_eq!(cursor.open_in_batch(2), Some(&[0b101][..]));
        assert!(!cursor.ack_in_batch(2, &[0b011], 3), "0 is open still");
        assert!(cursor.ack_in_batch(2, &[], 3));
        assert!(cursor.is_acked(2) && cursor.open_in_batch(2).is_none());
        assert!(!cursor.ack_in_batch(2, &[], 3), "only once");
    }

    #[test]
    fn a_batch_of_sixty_four_has_sixty_four_bits() {
        assert_eq!(all_open(64), [u64::MAX]);
        assert_eq!(all_open(65), [u64::MAX, 1]);
    }
    /// An entry that is acknowledged as a whole is no longer a partly acknowledged batch; other
    /// batches are.
    #[test]
    fn ranges_swallow_the_batches_in_them() {
        let mut cursor = Cursor::at(1);
        for ordinal in [3, 4, 5, 6] {
            cursor.ack_in_batch(ordinal, &[1], 2);
        }
        cursor.ack_range(4, 6);
        assert_eq!(cursor.partial().map(|batch| batch.0).collect::<Vec<_>>(), [3, 6]);
        assert_eq!((cursor.partly_acked(), cursor.mark()), (2, 1));
        assert_eq!(cursor.acked().iter().collect::<Vec<_>>(), [(4, 6)]);
        cursor.ack_range(0, 1);
        assert_eq!(cursor.mark(), 1, "it was acknowledged");
        cursor.ack_range(0, 4);
        assert_eq!((cursor.mark(), cursor.partly_acked()), (6, 1));
        cursor.ack(6);
        assert_eq!(cursor, Cursor::at(7));
        cursor.ack(9);
        cursor.reset(2);
        assert_eq!(cursor, Cursor::at(2));
    }

    #[test]
    fn open_entries_are_counted_between_two_places() {
        let mut cursor = Cursor::at(2);
        cursor.ack(4);
        for (first, end, open) in [(0, 6, 3), (3, 6, 2), (0, 1, 0), (5, 6, 1)] {
            assert_eq!(cursor.open_between(first, end), open, "{first}..{end}");
        }
    }

    /// To skip a million entries, each of them was checked.
    #[test]
    fn the_nth_open_entry_is_found_behind_what_is_acknowledged() {
        let mut cursor = Cursor::at(3);
        cursor.ack_range(5, 8);
        cursor.ack(9);
        let open: Vec<u64> = (0..20).filter(|&ordinal| !cursor.is_acked(ordinal)).collect();
        for (nth, ordinal) in (0..).zip(open) {
            assert_eq!(cursor.nth_unacked(0, nth), ordinal);
        }
        assert_eq!((cursor.nth_unacked(6, 0), cursor.nth_unacked(6, 1)), (8, 10));
        assert_eq!(cursor.nth_unacked(0, u64::MAX), u64::MAX);
    }
}
