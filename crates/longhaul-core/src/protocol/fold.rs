//! The fold: computes the state of a task from its entries in log order.
//!
//! ```text
//!            claim RUN               done COMPLETED, FINAL, CANCELLED
//!   NEW ────────────────▶ RUNNING ──────────────────────────────────▶ terminal
//!    │                    ▲  │ ▲                                        ▲
//!    │          claim RUN │  │ └─ claim RUN (takeover, epoch + 1)       │
//!    │                    │  ▼ done FAILED, RELEASED                    │
//!    │                   RETRY                                          │
//!    └──────────────────────┴── closing claim FINAL, CANCELLED, EXPIRED ┘
//! ```
//!
//! A claim PARKED moves the task from any open state to RETRY: it waits for others, or is offered
//! to all workers.
//!
//! A seal that names the task makes it terminal, whatever else is on the ledger.
//!
//! The rules are strict and complete: there is no "first seen" or "higher epoch wins". One kind of
//! claim may come after a gap: a claim with a base, which carries the whole known state of the
//! task, so that the keys before it can be removed (`machine/sealing.rs`). If nothing was
//! removed it is the next claim like any other. Whether an owner is stale or a retry is due is
//! decided by the claimer and never by the fold, so clocks cannot make two followers disagree.

use super::entry::{Claim, ClaimKind, Done, Entry, NextAttempt, Outcome, Renewal};
use super::key::{Epoch, OwnerId};

/// The folded state of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaskFold {
    /// The last accepted epoch; zero before the first claim.
    pub epoch: Epoch,
    /// Attempts used, without those that were given back.
    pub attempt: u32,
    /// The owner of the epoch, or its last owner.
    pub owner: OwnerId,
    /// The phase of the task.
    pub phase: Phase,
    /// Whether a cancel was requested.
    pub cancel: bool,
    /// When the next attempt is due; meaningful in [`Phase::Retry`].
    pub next_attempt: NextAttempt,
}

/// The phase of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It was never claimed.
    #[default]
    New,
    /// An owner holds it.
    Running,
    /// It waits for its next attempt.
    Retry,
    /// Terminal: it has its result.
    Completed,
    /// Terminal: it failed for good.
    Final,
    /// Terminal: it was cancelled.
    Cancelled,
    /// Terminal: it was not started in time.
    Expired,
    /// Terminal by a seal: it has ended in one of these ways, and other ledger entries of it have
    /// no effect.
    Sealed,
}

impl Phase {
    /// Whether no entry can change the phase any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Final | Self::Cancelled | Self::Expired | Self::Sealed
        )
    }
}

/// The fold's verdict on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The entry is part of the task's history.
    Accepted,
    /// The entry has no effect, for this reason.
    Ignored(IgnoredReason),
}

/// Why an entry has no effect. Metrics count each reason by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IgnoredReason {
    /// The epoch of a claim is not the next one: another claim was first, or the task's history was
    /// removed.
    EpochNotNext,
    /// The attempt of a claim is not above the last one.
    AttemptNotAbove,
    /// The task has ended.
    Terminal,
    /// An outcome or checkpoint has another epoch or owner than the current one: a zombie wrote it.
    Fenced,
    /// An outcome or checkpoint of an attempt that no longer runs.
    NotRunning,
    /// The task is over by a seal.
    Sealed,
    /// Not an entry of a task.
    NotFolded,
}

impl TaskFold {
    /// The state of a sealed task: the earlier state no longer matters.
    pub const SEALED: Self = Self {
        epoch: Epoch(0),
        attempt: 0,
        owner: OwnerId(0),
        phase: Phase::Sealed,
        cancel: false,
        next_attempt: NextAttempt::new(0, 0),
    };

    /// Applies the task's next entry in log order.
    pub const fn apply(&mut self, entry: &Entry) -> Verdict {
        let verdict = match entry {
            Entry::Heartbeat(_) | Entry::Seal(_) | Entry::Config(_) | Entry::Tombstone(_) => {
                Verdict::Ignored(IgnoredReason::NotFolded)
            }
            _ if matches!(self.phase, Phase::Sealed) => Verdict::Ignored(IgnoredReason::Sealed),
            Entry::Claim(claim) => self.judge_claim(claim),
            Entry::Done(done) => self.judge_owned(done.key.epoch, done.key.owner),
            Entry::Checkpoint(key) | Entry::Renewal(Renewal { key, .. }) => {
                self.judge_owned(key.epoch, key.owner)
            }
            Entry::Cancel(_) => Verdict::Accepted,
        };
        if matches!(verdict, Verdict::Accepted) {
            match entry {
                Entry::Claim(claim) => self.take_claim(claim),
                Entry::Done(done) => self.take_done(done),
                Entry::Cancel(_) => self.cancel = true,
                Entry::Checkpoint(_)
                | Entry::Renewal(_)
                | Entry::Heartbeat(_)
                | Entry::Seal(_)
                | Entry::Config(_)
                | Entry::Tombstone(_) => {}
            }
        }
        verdict
    }

    /// Whether `owner` runs the task in `epoch`, as far as this fold knows.
    #[must_use]
    pub fn is_run_by(&self, epoch: Epoch, owner: OwnerId) -> bool {
        self.phase == Phase::Running && self.epoch == epoch && self.owner == owner
    }

    /// Whether the task waits until others are over.
    #[must_use]
    pub const fn is_parked(&self) -> bool {
        matches!(self.phase, Phase::Retry) && self.next_attempt.is_parked()
    }

    /// Whether any worker may claim the task at once, because the last owner had no request for it.
    #[must_use]
    pub const fn is_offered(&self) -> bool {
        matches!(self.phase, Phase::Retry) && self.next_attempt.is_offered()
    }

    const fn judge_claim(&self, claim: &Claim) -> Verdict {
        if self.phase.is_terminal() {
            Verdict::Ignored(IgnoredReason::Terminal)
        } else if claim.base.is_some() && claim.key.epoch.0 > self.epoch.0 {
            Verdict::Accepted
        } else if claim.key.epoch.0 != self.epoch.next().0 || self.epoch.0 == u32::MAX {
            Verdict::Ignored(IgnoredReason::EpochNotNext)
        } else if matches!(claim.kind, ClaimKind::Run) && claim.attempt <= self.attempt {
            Verdict::Ignored(IgnoredReason::AttemptNotAbove)
        } else {
            Verdict::Accepted
        }
    }

    const fn judge_owned(&self, epoch: Epoch, owner: OwnerId) -> Verdict {
        if self.phase.is_terminal() {
            Verdict::Ignored(IgnoredReason::Terminal)
        } else if epoch.0 != self.epoch.0 || owner.0 != self.owner.0 {
            Verdict::Ignored(IgnoredReason::Fenced)
        } else if !matches!(self.phase, Phase::Running) {
            Verdict::Ignored(IgnoredReason::NotRunning)
        } else {
            Verdict::Accepted
        }
    }

    const fn take_claim(&mut self, claim: &Claim) {
        self.epoch = claim.key.epoch;
        self.owner = claim.key.owner;
        self.phase = match claim.kind {
            ClaimKind::Run => Phase::Running,
            ClaimKind::Final => Phase::Final,
            ClaimKind::Cancelled => Phase::Cancelled,
            ClaimKind::Expired => Phase::Expired,
            ClaimKind::Park | ClaimKind::Offer(_) => Phase::Retry,
        };
        if matches!(claim.kind, ClaimKind::Run) {
            self.attempt = claim.attempt;
        }
        self.next_attempt = match claim.kind {
            ClaimKind::Park => NextAttempt::PARKED,
            ClaimKind::Offer(offer) => NextAttempt::offered(offer),
            ClaimKind::Run | ClaimKind::Final | ClaimKind::Cancelled | ClaimKind::Expired => {
                NextAttempt::new(0, 0)
            }
        };
    }

    const fn take_done(&mut self, done: &Done) {
        match done.outcome {
            Outcome::Completed => self.phase = Phase::Completed,
            Outcome::Final => self.phase = Phase::Final,
            Outcome::Cancelled => self.phase = Phase::Cancelled,
            Outcome::Failed(next) => {
                self.phase = Phase::Retry;
                self.next_attempt = next;
            }
            Outcome::Released(next) => {
                self.phase = Phase::Retry;
                self.attempt = self.attempt.saturating_sub(1);
                self.next_attempt = next;
            }
        }
    }
}

#[cfg(test)]
mod tests;
