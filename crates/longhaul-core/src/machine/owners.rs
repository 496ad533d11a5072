//! The owner ids of a process, which mark claims and outcomes as its own.

use crate::protocol::key::OwnerId;

/// Number of ids kept. Claims of an earlier id may arrive for a while, but a process that is fenced
/// for years must not grow.
const KEPT_MAX: usize = 65;

/// The owner ids of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnerIds {
    /// The id of the current incarnation, used for new claims.
    current: OwnerId,
    /// Ids that self-fences have replaced, in order. They own the attempts that went on through a
    /// self-fence.
    former: Vec<OwnerId>,
}

impl OwnerIds {
    pub(super) const fn new(current: OwnerId) -> Self {
        Self { current, former: Vec::new() }
    }

    /// The id of the current incarnation.
    pub(super) const fn current(&self) -> OwnerId {
        self.current
    }

    /// Whether the id belongs to this process.
    pub(super) fn contains(&self, owner: OwnerId) -> bool {
        owner == self.current || self.former.contains(&owner)
    }

    /// Whether the id is that of a lease that this process has requested.
    pub(super) fn has_granted(&self, owner: OwnerId) -> bool {
        owner.is_lease_of(self.current)
            || self.former.iter().any(|former| owner.is_lease_of(*former))
    }

    /// Begins another incarnation. Ids with running attempts are never forgotten.
    pub(super) fn renew(&mut self, current: OwnerId, at_work: &[OwnerId]) {
        self.former.push(std::mem::replace(&mut self.current, current));
        let mut excess = (self.former.len() + 1).saturating_sub(KEPT_MAX);
        self.former.retain(|owner| {
            let kept = excess == 0 || at_work.contains(owner);
            excess -= usize::from(!kept);
            kept
        });
    }

    /// The ids that need heartbeats: the current one, and others with running attempts. Sorted.
    pub(super) fn alive(&self, at_work: impl Iterator<Item = OwnerId>) -> Vec<OwnerId> {
        let mut owners = vec![self.current];
        if !self.former.is_empty() {
            owners.extend(at_work.filter(|owner| self.former.contains(owner)));
            owners.sort_unstable();
            owners.dedup();
        }
        owners
    }
}
