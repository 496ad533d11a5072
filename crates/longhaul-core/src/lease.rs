//! The end of a lease, and the answers to its holder, as far as the ledger is known here.

use crate::machine::Machine;
use crate::protocol::entry::Outcome;
use crate::protocol::fold::Phase;
use crate::protocol::key::{Epoch, OwnerId};
use crate::task::{TaskId, TaskOutcome, TaskState};
use bytes::Bytes;
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use std::fmt;
use std::time::Duration;

/// State of a lease as far as the ledger is known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// The lease runs.
    Runs,
    /// The lease does not run and never will again.
    Not(ReportError),
    /// The view may be behind.
    Behind,
    /// The task has succeeded under this lease.
    Succeeded,
}

impl LeaseState {
    /// The state of the lease with this epoch and owner id.
    #[must_use]
    pub fn of(machine: &Machine, task: TaskId, (epoch, owner): (Epoch, OwnerId)) -> Self {
        let fold = machine.fold(task);
        if !machine.is_ready() || fold.epoch < epoch && !fold.phase.is_terminal() {
            return Self::Behind;
        }
        if fold.is_run_by(epoch, owner) && machine.lease(task).is_some() {
            return Self::Runs;
        }
        let same = (fold.epoch, fold.owner) == (epoch, owner);
        match fold.phase {
            Phase::Completed if same => Self::Succeeded,
            _ if fold.epoch == epoch && fold.owner != owner && !fold.phase.is_terminal() => {
                Self::Not(ReportError::NotOwner)
            }
            Phase::New
            | Phase::Running
            | Phase::Retry
            | Phase::Completed
            | Phase::Final
            | Phase::Cancelled
            | Phase::Expired
            | Phase::Sealed => Self::Not(error_of(fold.phase, fold.epoch, epoch)),
        }
    }
}

/// Why a report of this epoch has no effect on a task in this phase.
#[must_use]
pub const fn error_of(phase: Phase, current: Epoch, epoch: Epoch) -> ReportError {
    let outcome = match phase {
        Phase::Completed | Phase::Sealed => {
            return ReportError::Ended { state: TaskState::Completed, outcome: None };
        }
        Phase::Final => TaskOutcome::Final,
        Phase::Cancelled => TaskOutcome::Cancelled,
        Phase::Expired => TaskOutcome::Expired,
        Phase::New | Phase::Running | Phase::Retry => {
            let stale = current.0 > epoch.0;
            let error = ReportError::StaleLease { current: current.0 };
            return if stale { error } else { ReportError::Expired };
        }
    };
    ReportError::Ended { state: TaskState::Failed, outcome: Some(outcome) }
}

/// The part of a holder's report that the answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportedOutcome {
    /// A result.
    Success,
    /// A failed attempt, or a task that failed for good.
    Failure {
        /// Whether the task must not be tried again.
        fatal: bool,
    },
    /// The task was given back undone.
    Release,
}

impl ReportedOutcome {
    /// The outcome in this report.
    #[must_use]
    pub const fn of(outcome: &LeaseOutcome) -> Self {
        match outcome {
            LeaseOutcome::Succeeded(_) => Self::Success,
            LeaseOutcome::Failed { fatal, .. } => Self::Failure { fatal: *fatal },
            LeaseOutcome::Released { .. } => Self::Release,
        }
    }

    /// Whether the end on the ledger confirms the reported one. Another gateway may have been
    /// faster, with a report that the holder sent there or because of its silence.
    #[must_use]
    pub const fn counts_as(self, end: &Outcome) -> bool {
        match (self, end) {
            (Self::Success, Outcome::Completed)
            | (Self::Failure { .. }, Outcome::Final)
            | (Self::Failure { fatal: false }, Outcome::Failed(_))
            | (Self::Release, Outcome::Released(_))
            // A holder that gives up after a cancellation has reached its aim.
            | (Self::Failure { .. } | Self::Release, Outcome::Cancelled) => true,
            (
                Self::Success | Self::Failure { .. } | Self::Release,
                Outcome::Completed
                | Outcome::Failed(_)
                | Outcome::Final
                | Outcome::Cancelled
                | Outcome::Released(_),
            ) => false,
        }
    }
}

/// The end of the work under a lease. Its debug form leaves out the result, which may be private.
#[derive(Clone, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// Success with this result.
    Succeeded(Bytes),
    /// Failure.
    Failed {
        /// The reason.
        message: String,
        /// Whether the task must not be tried again.
        fatal: bool,
        /// When to try again, if not by the backoff.
        retry_after: Option<Duration>,
    },
    /// The task was not done; that costs no attempt.
    Released {
        /// How long to wait before the next attempt.
        after: Duration,
    },
}

impl fmt::Debug for LeaseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded(result) => write!(f, "Succeeded({} bytes)", result.len()),
            Self::Failed { message, fatal, retry_after } => f
                .debug_struct("Failed")
                .field("message", message)
                .field("fatal", fatal)
                .field("retry_after", retry_after)
                .finish(),
            Self::Released { after } => f.debug_struct("Released").field("after", after).finish(),
        }
    }
}

/// Why a report has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// There is no such task.
    #[error("no such task, or it was removed long ago")]
    NotFound,
    /// The task has had a later claim since.
    #[error("the lease is stale: the task is now at epoch {current}")]
    StaleLease {
        /// The current epoch.
        current: u32,
    },
    /// Another lease holds this epoch.
    #[error("this lease does not hold the task")]
    NotOwner,
    /// The lease was silent for too long, or its attempt has ended.
    #[error("the lease has expired, or its attempt has ended")]
    Expired,
    /// The task is over.
    #[error("the task is over: {}", ended_as(*.state, *.outcome))]
    Ended {
        /// COMPLETED or FAILED.
        state: TaskState,
        /// The outcome, if the task failed.
        outcome: Option<TaskOutcome>,
    },
    /// A result or a checkpoint is too large.
    #[error("{bytes} bytes are too many: the limit is {max}")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The largest accepted size in bytes.
        max: usize,
    },
    /// The requested lease time is out of range.
    #[error("the time of a lease must be between 100 ms and 7 days, is {time:?}")]
    LeaseTime {
        /// The requested lease time.
        time: Duration,
    },
    /// The log did not answer in time.
    #[error("the log did not confirm it in time: it may or may not count; send it again")]
    Unavailable,
}

classified!(ReportError);

impl ReportError {
    const fn class(&self) -> Class {
        match self {
            Self::NotFound => (ErrorKind::NotFound, "task_not_found"),
            Self::StaleLease { .. } => (ErrorKind::Conflict, "stale_lease_id"),
            Self::NotOwner => (ErrorKind::Conflict, "not_current_lease_owner"),
            Self::Expired => (ErrorKind::Conflict, "lease_expired"),
            Self::Ended { .. } => (ErrorKind::Conflict, "task_ended"),
            Self::TooLarge { .. } => (ErrorKind::TooLarge, "too_large"),
            Self::LeaseTime { .. } => (ErrorKind::Invalid, "request_unfit"),
            Self::Unavailable => (ErrorKind::Unknown, "outcome_unknown"),
        }
    }
}

const fn ended_as(state: TaskState, outcome: Option<TaskOutcome>) -> &'static str {
    match (state, outcome) {
        (_, Some(TaskOutcome::Final)) => "it failed for good",
        (_, Some(TaskOutcome::Cancelled)) => "it was cancelled",
        (_, Some(TaskOutcome::Expired)) => "it has expired",
        (_, None) => "it has its result",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::entry::NextAttempt;
    use crate::protocol::invariants::LEASE_END;

    /// Earlier, a holder that gave a task back was told so even when its silence had cost an
    /// attempt, and a holder that failed a task for good was told so even when the task was tried
    /// again.
    #[test]
    fn only_the_end_that_counts_is_confirmed() {
        let (failed, given_back) =
            (Outcome::Failed(NextAttempt::default()), Outcome::Released(NextAttempt::default()));
        let (failure, fatal) =
            (ReportedOutcome::Failure { fatal: false }, ReportedOutcome::Failure { fatal: true });
        for (reported, counts) in [
            (ReportedOutcome::Success, [true, false, false, false, false]),
            (failure, [false, true, true, true, false]),
            (fatal, [false, false, true, true, false]),
            (ReportedOutcome::Release, [false, false, false, true, true]),
        ] {
            let ends = [Outcome::Completed, failed, Outcome::Final, Outcome::Cancelled, given_back];
            assert_eq!(
                ends.map(|end| reported.counts_as(&end)),
                counts,
                "{LEASE_END} {reported:?}"
            );
        }
    }
}
