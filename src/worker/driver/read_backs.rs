//! Whether what this worker has stored on a register comes back to it. A follower may pass an entry
//! without getting it: one that fell behind the retention of its topic, for example. Whatever waits
//! for an own entry would then wait for ever.

use longhaul_core::task::Position;
use std::collections::BTreeSet;

/// More entries than this have no receipt only if the broker never says what became of them.
const EARLY_MAX: usize = 10_000;

/// The entries of one register.
#[derive(Debug, Default)]
pub(super) struct ReadBacks {
    /// Stored, and not read.
    awaited: BTreeSet<Position>,
    /// Read before the receipt came.
    early: BTreeSet<Position>,
}

impl ReadBacks {
    /// An own entry is stored here.
    pub(super) fn stored(&mut self, at: Position) {
        if !self.early.remove(&at) {
            self.awaited.insert(at);
        }
    }

    /// An entry was read, and those before it were. Returns whether an own one was not among them.
    pub(super) fn read(&mut self, at: Position, is_own: bool) -> bool {
        if !self.awaited.remove(&at) && is_own {
            self.early.insert(at);
            if self.early.len() > EARLY_MAX {
                self.early.pop_first();
            }
        }
        self.awaited.first().is_some_and(|first| *first < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(entry: u64) -> Position {
        Position { ledger: 1, entry, batch_index: None }
    }

    #[test]
    fn what_was_passed_unread_is_missed_whenever_its_receipt_comes() {
        let mut backs = ReadBacks::default();
        backs.stored(at(1));
        assert!(!backs.read(at(1), true));
        assert!(!backs.read(at(2), true));
        assert!(!backs.read(at(3), false));
        backs.stored(at(2));
        assert!(!backs.read(at(4), false), "it was read before its receipt came");
        backs.stored(at(6));
        assert!(!backs.read(at(5), false), "it is still to come");
        assert!(backs.read(at(7), false));
        let mut backs = ReadBacks::default();
        assert!(!backs.read(at(2), false));
        backs.stored(at(1));
        assert!(backs.read(at(3), false), "its receipt came late");
    }
}
