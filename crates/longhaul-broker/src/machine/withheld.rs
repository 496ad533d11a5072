//! Unreadable entries of a topic, which are withheld from consumers.

use super::backoff::RetryBackoff;
use crate::state::cursor::Cursor;
use std::collections::BTreeSet;

/// Pause before entries that the operating system refused to read are tried again, at first and at
/// most.
const PAUSE_MS: (u64, u64) = (1000, 60_000);

/// Where an entry was read, and its ordinal.
pub(super) type WithheldCopy = (CopyLocation, u64);

/// Where an entry was read. The entry may be in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyLocation {
    /// In the log.
    Log,
    /// In the compacted view.
    View,
}

/// Withheld entries of a topic.
#[derive(Debug, Default)]
pub struct Withheld {
    /// Withheld for as long as the broker runs.
    pub(super) set_aside: BTreeSet<WithheldCopy>,
    /// Withheld until they are tried again.
    pub(super) waiting: BTreeSet<WithheldCopy>,
    pub(super) backoff: RetryBackoff,
}

/// Nothing is withheld.
#[cfg(test)]
pub(super) static NOTHING: Withheld = Withheld {
    set_aside: BTreeSet::new(),
    waiting: BTreeSet::new(),
    backoff: RetryBackoff { pause_ms: 0, retry_at: 0 },
};

impl Withheld {
    /// Whether the entry is set aside.
    #[must_use]
    pub fn is_set_aside(&self, location: CopyLocation, ordinal: u64) -> bool {
        self.set_aside.contains(&(location, ordinal))
    }

    /// Whether the entry is withheld.
    #[must_use]
    pub fn contains(&self, location: CopyLocation, ordinal: u64) -> bool {
        self.is_set_aside(location, ordinal) || self.waiting.contains(&(location, ordinal))
    }

    /// The first entry at or after an ordinal that will be tried again, for a reader of the log, or
    /// of the view up to this horizon.
    pub(super) fn first_waiting(&self, from: u64, horizon: u64, cursor: &Cursor) -> Option<u64> {
        let concerned = |&&(location, ordinal): &&WithheldCopy| {
            let is_in_view = ordinal < horizon;
            ordinal >= from
                && is_in_view == (location == CopyLocation::View)
                && !cursor.is_acked(ordinal)
        };
        self.waiting.iter().filter(concerned).map(|copy| copy.1).min()
    }

    /// The withheld entries before an ordinal, in order.
    pub(super) fn before(&self, end: u64) -> BTreeSet<u64> {
        let all = self.set_aside.iter().chain(&self.waiting);
        all.map(|copy| copy.1).filter(|&ordinal| ordinal < end).collect()
    }

    /// The first entry that a compaction would miss, of the log from this ordinal on and of the
    /// view before it.
    pub(super) fn first_to_compact(&self, from: u64) -> Option<u64> {
        let all = self.set_aside.iter().chain(&self.waiting);
        all.filter(|copy| copy.0 == CopyLocation::View || copy.1 >= from).map(|copy| copy.1).min()
    }

    pub(super) fn wait(&mut self, copy: WithheldCopy, up: u64) {
        if self.waiting.is_empty() {
            // An entry that fails again soon after it was tried waits longer.
            if up > self.backoff.retry_at.saturating_add(2 * PAUSE_MS.1) {
                self.backoff = RetryBackoff::default();
            }
            self.backoff.fail(up, PAUSE_MS);
        }
        self.waiting.insert(copy);
    }

    /// The entries to be tried again now.
    pub(super) fn take_due(&mut self, up: u64) -> BTreeSet<WithheldCopy> {
        if self.backoff.is_due(up) { std::mem::take(&mut self.waiting) } else { BTreeSet::new() }
    }
}
