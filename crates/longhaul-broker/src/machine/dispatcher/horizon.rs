//! How far a subscription reads the compacted view, and the log after it.
//!
//! A compaction removes values and their tombstones. A reader that has seen a value and is behind
//! when a new view replaces the previous one would never learn that the value was removed. So a
//! subscription that has begun to read keeps its horizon: from there on it reads the log, as far as
//! the log still has the entries. The values before its horizon come from the newest view: a value
//! that is missing there was replaced by an entry after its horizon, which is still to come.

use super::Dispatcher;
use crate::state::cursor::Cursor;

/// How long the log keeps the entries that a reader of the compacted view has yet to read. A reader
/// that stopped would otherwise keep the log forever.
pub(in crate::machine) const READER_HOLD_MS: u64 = 600_000;

impl Dispatcher {
    /// The ordinal from which the log is read instead of the compacted view, whose own horizon is
    /// `newest`. `first` is the first entry of the log.
    #[must_use]
    pub fn horizon(&self, newest: u64, first: u64, cursor: &Cursor) -> u64 {
        match self.pinned {
            // Nothing before the newest horizon is delivered again if all of it is acknowledged.
            Some(pinned) if cursor.mark() < newest => pinned.max(first).min(newest),
            Some(_) | None => newest,
        }
    }

    /// The first entry that must be kept in the log, because a reader has yet to read it and the
    /// compacted view, whose horizon is `newest`, may not have it.
    pub fn held_in_log(&mut self, newest: u64, up: u64) -> Option<u64> {
        let pinned = self.pinned.filter(|&pinned| self.reads_compacted && pinned < newest)?;
        // A reader that reaches one horizon after the other may wait anew each time.
        let behind = self.behind.filter(|&(goal, _)| self.next < goal);
        self.behind = behind.or_else(|| (self.next < newest).then_some((newest, up)));
        let (_, since) = self.behind?;
        (up < since.saturating_add(READER_HOLD_MS)).then_some(self.next.max(pinned))
    }
}
