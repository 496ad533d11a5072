//! A second implementation of the ledger's rules, written from the protocol's table and not from
//! the library: a checker that shared the library's fold would share its mistakes. `table.rs`
//! compares the two.

use longhaul_core::protocol::entry::{
    AttemptCause, Claim, ClaimKind, Done, Entry, NextAttempt, Offer, Outcome,
};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::key::{Epoch, OwnerId};

/// The phase of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stand {
    /// It was never claimed.
    #[default]
    New,
    /// An attempt runs.
    Running,
    /// It waits for its next attempt.
    Waiting(NextAttempt),
    /// It is over.
    Ended(End),
}

/// The outcome of a task.
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

/// The state of one task, from its entries in log order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The current epoch.
    pub epoch: u32,
    /// The current attempt.
    pub attempt: u32,
    /// Its owner.
    pub owner: OwnerId,
    /// The phase of the task.
    pub stand: Stand,
    /// Whether a cancel was requested.
    pub cancel: bool,
}

impl State {
    /// Applies the next entry. Returns whether it counts.
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

    /// The outcome, if the task has ended.
    pub const fn end(&self) -> Option<End> {
        match self.stand {
            Stand::Ended(end) => Some(end),
            Stand::New | Stand::Running | Stand::Waiting(_) => None,
        }
    }

    fn take_claim(&mut self, claim: &Claim) -> bool {
        let next = Some(claim.key.epoch.0) == self.epoch.checked_add(1);
        // Entries before a claim with a base may be missing.
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

    /// The same state in the library's types, for checks of its invariants. Neither fold handles
    /// seals here: they are checked separately.
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

    /// Whether the library has the same state. The time of the next attempt matters only while the
    /// task waits for it.
    pub fn agrees_with(&self, fold: &TaskFold) -> bool {
        let mut own = self.in_library_words();
        if own.phase != Phase::Retry {
            own.next_attempt = fold.next_attempt;
        }
        own == *fold
    }
}
