//! The owner ids of a process: whose claims and outcomes are its own.

use crate::protocol::key::OwnerId;

/// So many are kept. Claims of an earlier id may land for a while; but a process that is fenced for
/// years must not grow.
const KEPT_MAX: usize = 65;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnerIds {
    /// That of the current incarnation: new claims are its.
    current: OwnerId,
    /// Those that self-fences have replaced, in their order. Attempts that went on through one are
    /// theirs.
    former: Vec<OwnerId>,
}

impl OwnerIds {
    pub(super) const fn new(current: OwnerId) -> Self {
        Self { current, former: Vec::new() }
    }

    /// That of the current incarnation.
    pub(super) const fn current(&self) -> OwnerId {
        self.current
    }

    /// Whether the id is this process's.
    pub(super) fn contains(&self, owner: OwnerId) -> bool {
        owner == self.current || self.former.contains(&owner)
    }

    /// Whether the id is that of a lease that this process has asked for.
    pub(super) fn has_granted(&self, owner: OwnerId) -> bool {
        owner.is_lease_of(self.current)
            || self.former.iter().any(|former| owner.is_lease_of(*former))
    }

    /// Begins another incarnation. Ids at work are never forgotten.
    pub(super) fn renew(&mut self, current: OwnerId, at_work: &[OwnerId]) {
        self.former.push(std::mem::replace(&mut self.current, current));
        let mut excess = (self.former.len() + 1).saturating_sub(KEPT_MAX);
        self.former.retain(|owner| {
            let kept = excess == 0 || at_work.contains(owner);
            excess -= usize::from(!kept);
            kept
        });
    }

    /// Those of which others must go on hearing: the current one, and the others that are at work.
    /// Sorted.
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
