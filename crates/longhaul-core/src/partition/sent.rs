//! Counts the claims and outcomes that were published, for the heartbeats: see `protocol::gap`.

use crate::protocol::key::{OnceKey, OwnerId};
use std::collections::BTreeMap;

/// Published entries by owner id of this process: an attempt that was kept through a self-fence
/// ends under its former id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    counts: BTreeMap<OwnerId, SentCount>,
    /// Entries published for leases, by the owner id of this process.
    leased: BTreeMap<OwnerId, SentCount>,
    /// The owner id that counts an entry of a lease that has no receipt yet.
    underway: BTreeMap<OnceKey, OwnerId>,
}

/// Claims and outcomes of one owner id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SentCount {
    /// Entries with a receipt.
    pub(super) receipted: u64,
    /// Entries that wait for their receipt.
    pub(super) underway: u64,
}

impl Sent {
    pub(super) fn published(&mut self, key: OnceKey) {
        self.counts.entry(key.owner).or_default().underway += 1;
    }

    /// Counts an entry in the name of a lease.
    pub(super) fn published_for_lease(&mut self, key: OnceKey, by: OwnerId) {
        self.underway.insert(key, by);
        self.leased.entry(by).or_default().underway += 1;
    }

    pub(super) fn receipted(&mut self, key: OnceKey) {
        if let Some(count) = self.arrived(key) {
            count.receipted += 1;
        }
    }

    /// Notes an entry that will never have a receipt.
    pub(super) fn given_up(&mut self, key: OnceKey) {
        self.arrived(key);
    }

    fn arrived(&mut self, key: OnceKey) -> Option<&mut SentCount> {
        let count = match self.underway.remove(&key) {
            Some(by) => self.leased.get_mut(&by)?,
            None => self.counts.get_mut(&key.owner)?,
        };
        count.underway = count.underway.saturating_sub(1);
        Some(count)
    }

    /// Forgets all but these owners.
    pub(super) fn keep(&mut self, owners: &[OwnerId]) {
        self.counts.retain(|owner, _| owners.contains(owner));
        self.leased.retain(|owner, _| owners.contains(owner));
        self.underway.retain(|_, owner| owners.contains(owner));
    }

    pub(super) fn of(&self, owner: OwnerId) -> SentCount {
        self.counts.get(&owner).copied().unwrap_or_default()
    }

    pub(super) fn of_leases(&self, owner: OwnerId) -> SentCount {
        self.leased.get(&owner).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::key::Epoch;
    use crate::task::TaskId;

    fn key(owner: OwnerId, serial: u64) -> OnceKey {
        let task = TaskId { ledger: 1, entry: 1, partition: -1, batch_index: None };
        OnceKey { task, epoch: Epoch(1), owner, serial }
    }

    /// Heartbeats that counted a publish as in flight for ever would hide as many lost entries from
    /// their readers.
    #[test]
    fn what_was_given_up_is_neither_stored_nor_on_its_way() {
        let (me, former) = (OwnerId(1), OwnerId(2));
        let mut sent = Sent::default();
        let of = |owner| key(owner, 1);
        for owner in [me, me, me, former] {
            sent.published(of(owner));
        }
        sent.receipted(of(me));
        sent.given_up(of(me));
        assert_eq!(sent.of(me), SentCount { receipted: 1, underway: 1 });
        assert_eq!(sent.of(former), SentCount { receipted: 0, underway: 1 });
        sent.keep(&[me]);
        assert_eq!((sent.of(former), sent.of(me).receipted), (SentCount::default(), 1));
        // Nothing is counted for an owner that has published nothing.
        sent.receipted(of(former));
        sent.given_up(of(former));
        assert_eq!(sent.of(former), SentCount::default());
    }

    #[test]
    fn what_is_published_for_leases_is_counted_apart() {
        let me = OwnerId(1);
        let lease = |serial| key(OwnerId(7).of_lease(5), serial);
        let mut sent = Sent::default();
        sent.published(key(me, 1));
        for serial in 1..=3 {
            sent.published_for_lease(lease(serial), me);
        }
        sent.receipted(lease(2));
        sent.given_up(lease(3));
        assert_eq!(sent.of(me), SentCount { receipted: 0, underway: 1 });
        assert_eq!(sent.of_leases(me), SentCount { receipted: 1, underway: 1 });
        sent.keep(&[me]);
        assert_eq!(sent.of_leases(me).underway, 1);
        sent.keep(&[]);
        assert_eq!(sent, Sent::default());
    }
}
