//! How far a subscription reads the compacted view, and the log after it.
//!
//! A compaction removes values and their tombstones. A reader that has seen a value and is behind
//! when a new view replaces the previous one would never learn that the value was removed. So a
//! subscription that has begun to read keeps its horizon: from there on it reads the log, as far as
//! the log still has the entries. The values before its horizon come from the newest view: a value
//! that is missing there was replaced by an entry after its horizon, which is still to come.

use super::{ConsumerKey, Dispatcher};
use crate::state::cursor::Cursor;

/// How long the log keeps the entries that a reader of the compacted view has yet to read. A reader
/// that stopped would otherwise keep the log forever.
pub(in crate::machine) const READER_HOLD_MS: u64 = 600_000;

impl Dispatcher {
    /// Whether this consumer reads the compacted view.
    #[must_use]
    pub fn is_reader(&self, key: ConsumerKey) -> bool {
        self.consumers.iter().any(|consumer| consumer.key == key && consumer.reads_compacted)
    }

    /// Keeps this horizon, unless an earlier one is kept.
    pub fn pin(&mut self, horizon: u64) {
        self.pinned.get_or_insert(horizon);
    }

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
    /// compacted view, whose horizon is `newest`, may not have it. `mark` is the first entry that
    /// the subscription has not acknowledged.
    pub fn held_in_log(&mut self, newest: u64, mark: u64, up: u64) -> Option<u64> {
        let pinned = self.pinned.filter(|&pinned| self.reads_compacted && pinned < newest)?;
        // Entries that expired count as read.
        let at = self.next.max(mark);
        // A reader that reaches one horizon after the other may wait anew each time.
        let behind = self.behind.filter(|&(goal, _)| at < goal);
        self.behind = behind.or_else(|| (at < newest).then_some((newest, up)));
        let (_, since) = self.behind?;
        (up < since.saturating_add(READER_HOLD_MS)).then_some(at.max(pinned))
    }
}
