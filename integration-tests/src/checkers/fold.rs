//! The ledger's rules once more, written from the protocol's table and not from the library: a checker that shared the library's
//! fold would share its mistakes.

use longhaul::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul::protocol::fold::{Phase, TaskFold};
use longhaul::protocol::key::OwnerId;

/// Where a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stand {
    #[default]
    New,
    Running,
    Waiting,
    Ended(End),
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    Final,
    Cancelled,
    Expired,
}

/// What the entries of one task, in log order, make of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) epoch: u32,
    pub(super) attempt: u32,
    pub(super) owner: OwnerId,
    pub(super) stand: Stand,
}

impl State {
    /// Takes the next entry. Returns whether it counts.
    pub(super) fn take(&mut self, entry: &Entry) -> bool {
        match entry {
            Entry::Claim(claim) => self.take_claim(claim),
            Entry::Done(done) => self.take_done(done),
            Entry::Checkpoint(key) => self.is_current(key.epoch.0, key.owner),
            Entry::Cancel(_) => true,
            Entry::Heartbeat(_) | Entry::Seal(_) | Entry::Config(_) | Entry::Tombstone(_) => false,
        }
    }

    fn take_claim(&mut self, claim: &Claim) -> bool {
        let ended = matches!(self.stand, Stand::Ended(_));
        if ended || claim.key.epoch.0 != self.epoch + 1 {
            return false;
        }
        let stand = match claim.kind {
            ClaimKind::Run if claim.attempt <= self.attempt => return false,
            ClaimKind::Run => {
                self.attempt = claim.attempt;
                Stand::Running
            }
            ClaimKind::Final => Stand::Ended(End::Final),
            ClaimKind::Cancelled => Stand::Ended(End::Cancelled),
            ClaimKind::Expired => Stand::Ended(End::Expired),
        };
        self.epoch += 1;
        self.owner = claim.key.owner;
        self.stand = stand;
        true
    }

    fn take_done(&mut self, done: &Done) -> bool {
        if !self.is_current(done.key.epoch.0, done.key.owner) {
            return false;
        }
        self.stand = match done.outcome {
            Outcome::Completed => Stand::Ended(End::Completed),
            Outcome::Final => Stand::Ended(End::Final),
            Outcome::Cancelled => Stand::Ended(End::Cancelled),
            Outcome::Failed(_) => Stand::Waiting,
            Outcome::Released(_) => {
                self.attempt -= 1;
                Stand::Waiting
            }
        };
        true
    }

    fn is_current(&self, epoch: u32, owner: OwnerId) -> bool {
        self.stand == Stand::Running && self.epoch == epoch && self.owner == owner
    }

    /// Whether the library has come to the same.
    pub(super) fn agrees_with(&self, fold: &TaskFold) -> bool {
        let stand = match fold.phase {
            Phase::New => Stand::New,
            Phase::Running => Stand::Running,
            Phase::Retry => Stand::Waiting,
            Phase::Completed => Stand::Ended(End::Completed),
            Phase::Final => Stand::Ended(End::Final),
            Phase::Cancelled => Stand::Ended(End::Cancelled),
            Phase::Expired => Stand::Ended(End::Expired),
            // Neither fold is told of seals here: they are checked by themselves.
            Phase::Sealed => return false,
        };
        let theirs = Self { epoch: fold.epoch.0, attempt: fold.attempt, owner: fold.owner, stand };
        *self == theirs
    }
}
