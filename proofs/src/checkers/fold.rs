//! The ledger's rules once more, written from the protocol's table and not from the library: a
//! checker that shared the library's fold would share its mistakes. `table.rs` compares the two.

use longhaul_core::protocol::entry::{
    AttemptCause, Claim, ClaimKind, Done, Entry, NextAttempt, Offer, Outcome,
};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::key::{Epoch, OwnerId};

/// Where a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stand {
    /// Nobody has claimed it.
    #[default]
    New,
    /// An attempt runs.
    Running,
    /// For its next attempt, until then.
    Waiting(NextAttempt),
    /// It is over.
    Ended(End),
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a result.
    Completed,
    /// Failed for good.
    Final,
    /// Cancelled.
    Cancelled,
    /// Expired before it began.
    Expired,
}

/// What the entries of one task, in log order, make of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The current epoch.
    pub epoch: u32,
    /// The current attempt.
    pub attempt: u32,
    /// Its owner.
    pub owner: OwnerId,
    /// Where the task stands.
    pub stand: Stand,
    /// Somebody asked for its end.
    pub cancel: bool,
}

impl State {
    /// Takes the next entry. Returns whether it counts.
    pub fn take(&mut self, entry: &Entry) -> bool {
        match entry {
            Entry::Claim(claim) => self.take_claim(claim),
            Entry::Done(done) => self.take_done(done),
            Entry::Checkpoint(key) => self.is_current(key.epoch.0, key.owner),
            Entry::Renewal(renewal) => self.is_current(renewal.key.epoch.0, renewal.key.owner),
            Entry::Cancel(_) => {
                self.cancel = true;
                true
            }
            Entry::Heartbeat(_) | Entry::Seal(_) | Entry::Config(_) | Entry::Tombstone(_) => false,
        }
    }

    /// How it ended, if it did.
    pub const fn end(&self) -> Option<End> {
        match self.stand {
            Stand::Ended(end) => Some(end),
            Stand::New | Stand::Running | Stand::Waiting(_) => None,
        }
    }

    fn take_claim(&mut self, claim: &Claim) -> bool {
        let next = Some(claim.key.epoch.0) == self.epoch.checked_add(1);
        // What stands before a claim with a base need not be there.
        let based = claim.base.is_some() && claim.key.epoch.0 > self.epoch;
        if self.end().is_some() || !(next || based) {
            return false;
        }
        let stand = match claim.kind {
            ClaimKind::Run if claim.attempt <= self.attempt && !based => return false,
            ClaimKind::Run => {
                self.attempt = claim.attempt;
                Stand::Running
            }
            ClaimKind::Final => Stand::Ended(End::Final),
            ClaimKind::Cancelled => Stand::Ended(End::Cancelled),
            ClaimKind::Expired => Stand::Ended(End::Expired),
            ClaimKind::Park => Stand::Waiting(NextAttempt::PARKED),
            ClaimKind::Offer(Offer { task_type, ready_ms }) => {
                let after = AttemptCause::Offer(task_type);
                Stand::Waiting(NextAttempt { after, ..NextAttempt::new(ready_ms, 0) })
            }
        };
        self.epoch = claim.key.epoch.0;
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
            Outcome::Failed(next) => Stand::Waiting(next),
            Outcome::Released(next) => {
                self.attempt = self.attempt.saturating_sub(1);
                Stand::Waiting(next)
            }
        };
        true
    }

    fn is_current(&self, epoch: u32, owner: OwnerId) -> bool {
        self.stand == Stand::Running && self.epoch == epoch && self.owner == owner
    }

    /// The same in the words of the library, for its invariants to be asked. Neither fold is told
    /// of seals here: they are checked by themselves.
    pub fn in_library_words(&self) -> TaskFold {
        let (phase, next_attempt) = match self.stand {
            Stand::New => (Phase::New, NextAttempt::default()),
            Stand::Running => (Phase::Running, NextAttempt::default()),
            Stand::Waiting(next) => (Phase::Retry, next),
            Stand::Ended(End::Completed) => (Phase::Completed, NextAttempt::default()),
            Stand::Ended(End::Final) => (Phase::Final, NextAttempt::default()),
            Stand::Ended(End::Cancelled) => (Phase::Cancelled, NextAttempt::default()),
            Stand::Ended(End::Expired) => (Phase::Expired, NextAttempt::default()),
        };
        let Self { epoch, attempt, owner, cancel, .. } = *self;
        TaskFold { epoch: Epoch(epoch), attempt, owner, phase, cancel, next_attempt }
    }

    /// Whether the library has come to the same. When the next attempt is due means something only
    /// while it is waited for.
    pub fn agrees_with(&self, fold: &TaskFold) -> bool {
        let mut own = self.in_library_words();
        if own.phase != Phase::Retry {
            own.next_attempt = fold.next_attempt;
        }
        own == *fold
    }
}
