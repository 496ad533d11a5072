//! The entries that may be removed from a register, and their order.
//!
//! A reader in the middle of a compaction has read the beginning of the log before it, and reads
//! the rest as it was left. So of two entries the later one is removed first: a reader of the later
//! one has then read the earlier one. Therefore **rejected** entries are removed first, and
//! accepted ones after the tombstones of all rejected ones have been read back: no reader meets the
//! bind of a message that has lost without the bind that it has lost to.
//!
//! - A rejected entry is removed when it is older than a hold lasts: then all readers have
//!   forgotten the loss, and any earlier entry for that message is late.
//! - An accepted entry is removed when a newer entry of the key was accepted, unless a rejected
//!   entry needs it. A rejected entry needs the newest entry that was accepted before its period,
//!   and all entries accepted since. The newest accepted entry is removed when it is older than a
//!   hold lasts and the key has no rejected entry: then all readers forget the key.
//! - The entries that begin the periods stay.

use super::entry::RegisterKey;
use std::collections::BTreeSet;

/// Keys to tombstone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expired {
    rejected: BTreeSet<RegisterKey>,
    accepted: BTreeSet<RegisterKey>,
}

impl Expired {
    /// Whether there is nothing to remove.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rejected.is_empty() && self.accepted.is_empty()
    }

    /// Whether this key is still to be removed.
    #[must_use]
    pub fn contains(&self, key: &RegisterKey) -> bool {
        self.rejected.contains(key) || self.accepted.contains(key)
    }

    /// The keys to remove next.
    pub fn next(&self) -> impl Iterator<Item = &RegisterKey> {
        let first = if self.rejected.is_empty() { &self.accepted } else { &self.rejected };
        first.iter()
    }

    /// All keys to remove, in no order.
    pub fn all(&self) -> impl Iterator<Item = &RegisterKey> {
        self.rejected.iter().chain(&self.accepted)
    }

    pub(super) fn reject(&mut self, key: RegisterKey) {
        self.rejected.insert(key);
    }

    pub(super) fn supersede(&mut self, keys: impl IntoIterator<Item = RegisterKey>) {
        self.accepted.extend(keys);
    }

    pub(super) fn forget(&mut self, key: &RegisterKey) {
        self.rejected.remove(key);
        self.accepted.remove(key);
    }
}
