//! Counts the claims and outcomes that were published, for the heartbeats: see `protocol::gap`.

use crate::protocol::key::OwnerId;
use std::collections::BTreeMap;

/// By owner id of this process: an attempt that was kept through a self-fence ends under its former one.
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
