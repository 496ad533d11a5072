//! Counts the claims and outcomes that were published, for the heartbeats: see `protocol::gap`.

use crate::protocol::key::OwnerId;
use std::collections::BTreeMap;

/// By owner id of this process: an attempt that was kept through a self-fence ends under its former
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    owners: BTreeMap<OwnerId, Count>,
}

/// Claims and outcomes of one owner id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Count {
    /// They have their receipt.
    pub(super) receipted: u64,
    /// They wait for it.
    pub(super) underway: u64,
}

impl Sent {
    pub(super) fn published(&mut self, owner: OwnerId) {
        self.owners.entry(owner).or_default().underway += 1;
    }

    pub(super) fn receipted(&mut self, owner: OwnerId) {
        if let Some(count) = self.owners.get_mut(&owner) {
            count.receipted += 1;
            count.underway = count.underway.saturating_sub(1);
        }
    }

    /// It will never have its receipt.
    pub(super) fn given_up(&mut self, owner: OwnerId) {
        if let Some(count) = self.owners.get_mut(&owner) {
            count.underway = count.underway.saturating_sub(1);
        }
    }

    /// Forgets all but these owners.
    pub(super) fn keep(&mut self, owners: &[OwnerId]) {
        self.owners.retain(|owner, _| owners.contains(owner));
    }

    pub(super) fn of(&self, owner: OwnerId) -> Count {
        self.owners.get(&owner).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heartbeats that counted a publish as on its way for ever would hide as many lost entries
    /// from all who read them.
    #[test]
    fn what_was_given_up_is_neither_stored_nor_on_its_way() {
        let (me, former) = (OwnerId(1), OwnerId(2));
        let mut sent = Sent::default();
        for owner in [me, me, me, former] {
            sent.published(owner);
        }
        sent.receipted(me);
        sent.given_up(me);
        assert_eq!(sent.of(me), Count { receipted: 1, underway: 1 });
        assert_eq!(sent.of(former), Count { receipted: 0, underway: 1 });
        sent.keep(&[me]);
        assert_eq!((sent.of(former), sent.of(me).receipted), (Count::default(), 1));
        // Nothing is counted of whom nothing was published.
        sent.receipted(former);
        sent.given_up(former);
        assert_eq!(sent.of(former), Count::default());
    }
}
