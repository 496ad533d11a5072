//! The invariants that one worker can check at each of its steps with a few comparisons. They use
//! only the ledger's state of the task and the worker's own earlier actions on it: a check must not
//! share the state of the code that it checks.
//!
//! Production checks them before every step; model, simulation and checkers check the same ones for
//! all workers together.

use super::{ACK, ADOPTION, CANCEL, DEAD_LETTER, OUTCOME, SEAL, START, VIEW, may_claim};
use crate::protocol::claim::NextClaim;
use crate::protocol::dead_letters::DeadLetterKinds;
use crate::protocol::entry::{Claim, Done, Outcome};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::key::{Epoch, OwnerId};
use crate::task::{TaskMetadata, TaskOutcome, TaskState};

/// A step that an invariant forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Breach {
    /// The invariant's number.
    pub id: &'static str,
    /// The step.
    pub what: &'static str,
}

/// Whether a step is allowed.
pub type Judgement = Result<(), Breach>;

const fn breach(id: &'static str, what: &'static str) -> Judgement {
    Err(Breach { id, what })
}

/// A worker's own actions on a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnRecord {
    /// The epoch in which it has started a processor, while the ledger shows that epoch as running;
    /// zero: none.
    started: Epoch,
    /// Whether the dead letter has its receipt.
    pub dead_letter: bool,
    /// Whether the metadata entry that shows the end has its receipt.
    pub shown: bool,
    /// Whether the ack has its receipt, and no delivery came after it.
    pub acked: bool,
}

impl OwnRecord {
    /// Notes that a processor of this epoch starts.
    pub const fn start(&mut self, epoch: Epoch) {
        self.started = epoch;
    }

    /// The epoch that runs here, as far as the ledger shows.
    #[must_use]
    pub fn started(&self) -> Option<Epoch> {
        (self.started != Epoch(0)).then_some(self.started)
    }

    /// Updates the record from the ledger, which was read to its end.
    pub fn update(&mut self, fold: &TaskFold) {
        if fold.phase != Phase::Running || fold.epoch != self.started {
            self.started = Epoch(0);
        }
    }
}

/// C-04, the part that a fold can show: the start is inside the own accepted claim, and within the
/// attempts of the task.
///
/// # Errors
/// It is not.
pub fn inside_own_claim(
    fold: &TaskFold,
    (epoch, owner): (Epoch, OwnerId),
    attempt: u32,
    max: u32,
) -> Judgement {
    let is_within = (1..=max).contains(&attempt);
    if fold.is_run_by(epoch, owner) && fold.attempt == attempt && is_within {
        Ok(())
    } else {
        breach(START, "a processor starts outside its worker's own accepted claim")
    }
}

/// C-11: a cancelled task is not started.
///
/// # Errors
/// The task is cancelled.
pub const fn not_cancelled(fold: &TaskFold) -> Judgement {
    if fold.cancel { breach(CANCEL, "a cancelled task starts") } else { Ok(()) }
}

/// C-04 and C-11: a start.
///
/// # Errors
/// It is outside the own accepted claim, in an epoch that was started before, or of a cancelled
/// task.
pub fn start(
    fold: &TaskFold,
    own_record: &OwnRecord,
    claim: (Epoch, OwnerId),
    attempt: u32,
    max: u32,
) -> Judgement {
    inside_own_claim(fold, claim, attempt, max)?;
    if own_record.started == claim.0 {
        return breach(START, "an epoch starts twice");
    }
    not_cancelled(fold)
}

/// C-16: a claim; `held` and `payload` tell whether a delivery and the payload are here.
///
/// # Errors
/// It is not of the next epoch, or of a task that this worker must not claim.
pub fn claim(fold: &TaskFold, claim: &Claim, held: bool, payload: bool) -> Judgement {
    let next = NextClaim { kind: claim.kind, attempt: claim.attempt };
    // Only the message gives the size of the batch, and the whole batch is acknowledged when that
    // many tasks are over.
    let unseen = fold.phase == Phase::New && !held;
    if unseen && claim.key.task.batch_index.is_some() && claim.batch_size.is_none() {
        return breach(
            ADOPTION,
            "a task is claimed without a delivery, and its batch is not known",
        );
    }
    if claim.key.epoch == fold.epoch.next() && may_claim(fold, held, payload, next) {
        return Ok(());
    }
    breach(
        ADOPTION,
        "a task is claimed out of turn, or without a delivery, a known state or its payload",
    )
}

/// C-16: a claim of another owner closes a task that does not run, in favour of a later one.
///
/// # Errors
/// It is not of the next epoch, the task runs or is over, or its batch is not known.
pub fn closing(fold: &TaskFold, claim: &Claim) -> Judgement {
    let is_next = claim.key.epoch == fold.epoch.next() && claim.attempt == fold.attempt;
    let in_batch = fold.phase == Phase::New && claim.key.task.batch_index.is_some();
    let is_known = !in_batch || claim.batch_size.is_some();
    if is_next && is_known && matches!(fold.phase, Phase::New | Phase::Retry) {
        return Ok(());
    }
    breach(ADOPTION, "a task is closed out of turn, while it runs, or in an unknown batch")
}

/// C-22: an outcome.
///
/// # Errors
/// The ledger does not show its epoch as its owner's and running, or it reports the end of a
/// processor that this worker has not started.
pub fn outcome(fold: &TaskFold, own_record: &OwnRecord, done: &Done) -> Judgement {
    let Done { key, outcome, .. } = done;
    if !fold.is_run_by(key.epoch, key.owner) {
        return breach(OUTCOME, "an outcome is published of an epoch that is not the worker's own");
    }
    let told = match outcome {
        // An attempt may also be given back without a start: its claim came back late.
        Outcome::Released(_) => true,
        Outcome::Cancelled => fold.cancel || own_record.started == key.epoch,
        Outcome::Completed | Outcome::Final | Outcome::Failed(_) => own_record.started == key.epoch,
    };
    if told {
        Ok(())
    } else {
        breach(OUTCOME, "an outcome is published of an epoch that was never started")
    }
}

/// C-10: the metadata topic shows a task in this phase.
///
/// # Errors
/// The ledger shows another phase.
pub fn showing(fold: &TaskFold, shown: Phase) -> Judgement {
    if fold.phase == shown {
        Ok(())
    } else {
        breach(VIEW, "the view shows what the ledger does not")
    }
}

/// C-10 and C-21: the metadata topic shows the end of a task, after its dead letter if it gets one:
/// `dead_letter` tells that it is stored, or that there is none.
///
/// # Errors
/// The ledger shows another phase, or the dead letter is not stored.
pub fn showing_end(fold: &TaskFold, shown: Phase, dead_letter: bool) -> Judgement {
    showing(fold, shown)?;
    if matches!(shown, Phase::Final | Phase::Expired) && !dead_letter {
        return breach(DEAD_LETTER, "an end is shown before its dead letter is stored");
    }
    if shown.is_terminal() && shown != Phase::Sealed {
        Ok(())
    } else {
        breach(VIEW, "the view shows an end that the ledger does not have")
    }
}

/// C-21: a dead letter.
///
/// # Errors
/// The task's outcome gets no dead letter.
pub const fn dead_letter(fold: &TaskFold, letters: DeadLetterKinds) -> Judgement {
    if letters.wants(fold.phase) {
        Ok(())
    } else {
        breach(DEAD_LETTER, "a task whose end gets no dead letter has one")
    }
}

/// C-06, C-10 and C-21: the ack of a task that has ended in this phase. `shown` tells whether the
/// metadata topic shows that end; `dead_letter` whether the dead letter is stored, or there is
/// none.
///
/// # Errors
/// The task has not ended, or something is not written yet.
pub fn ack(end: Phase, shown: bool, dead_letter: bool) -> Judgement {
    match end {
        Phase::Sealed => Ok(()),
        Phase::New | Phase::Running | Phase::Retry => {
            breach(ACK, "a task is acknowledged before its terminal")
        }
        _ if !shown => breach(VIEW, "a task is acknowledged before the view shows its end"),
        Phase::Final | Phase::Expired if !dead_letter => {
            breach(DEAD_LETTER, "a task is acknowledged without its dead letter")
        }
        Phase::Completed | Phase::Final | Phase::Cancelled | Phase::Expired => Ok(()),
    }
}

/// C-18: a seal of this worker names a task whose dead letter, metadata entry and ack the worker
/// itself must have completed: the ledger does not record that another one did.
///
/// # Errors
/// The task is not over, or something is not written yet.
pub fn sealing_closed(fold: &TaskFold, own_record: &OwnRecord) -> Judgement {
    if own_record.acked && ack(fold.phase, own_record.shown, own_record.dead_letter).is_ok() {
        Ok(())
    } else {
        breach(SEAL, UNCLOSED)
    }
}

/// C-18, the part that a fold can show: a seal names a task in this phase.
///
/// # Errors
/// The task is not over.
pub const fn sealing(phase: Phase) -> Judgement {
    if phase.is_terminal() { Ok(()) } else { breach(SEAL, "a seal names a task that is not over") }
}

/// Finding: a seal names more than its worker has closed.
pub const UNCLOSED: &str = "a seal names a task that its worker has not closed";

/// The phase that a metadata entry shows.
#[must_use]
pub const fn phase_shown(entry: &TaskMetadata) -> Phase {
    phase_of(entry.state, entry.outcome)
}

/// The phase of an entry with this state and outcome.
#[must_use]
pub const fn phase_of(state: TaskState, outcome: Option<TaskOutcome>) -> Phase {
    match (state, outcome) {
        (TaskState::Unknown, _) => Phase::New,
        (TaskState::Processing, _) => Phase::Running,
        (TaskState::Completed, _) => Phase::Completed,
        // A task that waits for others.
        (TaskState::New, _) | (TaskState::Failed, None) => Phase::Retry,
        (TaskState::Failed, Some(TaskOutcome::Final)) => Phase::Final,
        (TaskState::Failed, Some(TaskOutcome::Cancelled)) => Phase::Cancelled,
        (TaskState::Failed, Some(TaskOutcome::Expired)) => Phase::Expired,
    }
}
