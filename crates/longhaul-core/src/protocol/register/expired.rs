//! What may be removed from a register, and in which order.
//!
//! A reader in the middle of a compaction has read the beginning of the log as it was, and reads on
//! in what was left of the rest. So of two entries, if the later one goes first: whoever reads the
//! later one has read the earlier one. That is why what was **rejected** goes first, and what was
//! accepted goes when the tombstones of all that was rejected have been read back: no reader meets
//! the bind of a message that has lost without the one that it has lost to.
//!
//! - A rejected entry goes when it is older than a hold lasts: losses are forgotten then, by all,
//!   and whatever was written for that message before it is late.
//! - An accepted entry goes when a newer entry of the key was accepted, unless a rejected entry
//!   needs it. A rejected entry needs the newest entry that was accepted before its period, and
//!   everything that was accepted since.
//!   The newest accepted entry goes when it is older than a hold lasts and the key has no rejected
//!   entry: then all readers forget the key.
//! - The entries that begin the periods stay.

use super::entry::RegisterKey;
use std::collections::BTreeSet;

/// Keys that are to be tombstoned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expired {
    rejected: BTreeSet<RegisterKey>,
    accepted: BTreeSet<RegisterKey>,
}

impl Expired {
    /// Whether there is nothing to be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rejected.is_empty() && self.accepted.is_empty()
    }

    /// Whether this is still to be removed.
    #[must_use]
    pub fn contains(&self, key: &RegisterKey) -> bool {
        self.rejected.contains(key) || self.accepted.contains(key)
    }

    /// What is to be removed next.
    pub fn next(&self) -> impl Iterator<Item = &RegisterKey> {
        let first = if self.rejected.is_empty() { &self.accepted } else { &self.rejected };
        first.iter()
    }

    /// All that is to be removed, in no order.
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
