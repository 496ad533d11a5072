//! Decides which task a worker may claim, and with which claim.
//!
//! | fold says | holder of a delivery | any other worker (*adoption*) |
//! |---|---|---|
//! | NEW | at once | only to close it when it was cancelled, its message read first: an empty fold proves nothing |
//! | RETRY | when due, or at once to close it when it was cancelled | overdue, payload read first |
//! | RUNNING by another | when its owner is stale | owner stale, payload read first |
//!
//! *Due* and *stale* are judged by the claimer's own clock (`silence.rs`); this module only draws
//! the conclusions.

use super::entry::ClaimKind;
use super::fold::{Phase, TaskFold};

/// A worker's knowledge of a task besides its fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Circumstances {
    /// Whether the worker holds a delivery of the task.
    pub holder: bool,
    /// Whether the payload is in memory.
    pub payload: bool,
    /// Whether a claim is due. RETRY: the next attempt is due for a worker in this role, or the
    /// task's limits close it. RUNNING: the owner is stale, and an adopter's delay is over. NEW and
    /// cancelled: that delay is over.
    pub due: bool,
    /// The claim that closes the task now, if any: FINAL or EXPIRED because of its own limits,
    /// judged by the claimer's wall clock; or a claim that closes or parks it because of its
    /// dependencies.
    pub closes: Option<ClaimKind>,
}

/// The decision about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Publish this claim.
    Claim(NextClaim),
    /// Read the payload from the task topic, then decide again.
    ReadPayload,
    /// Do nothing now.
    Wait,
}

/// The claim to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextClaim {
    /// Whether it runs the task or closes it.
    pub kind: ClaimKind,
    /// Its attempt.
    pub attempt: u32,
}

/// The claim for this state: a closing one if the task was cancelled, has no attempt left, or is
/// closed by its own limits.
#[must_use]
pub const fn next_claim(
    fold: &TaskFold,
    max_attempts: u32,
    closes: Option<ClaimKind>,
) -> NextClaim {
    if fold.cancel {
        NextClaim { kind: ClaimKind::Cancelled, attempt: fold.attempt }
    } else if fold.attempt >= max_attempts {
        NextClaim { kind: ClaimKind::Final, attempt: fold.attempt }
    } else if let Some(kind) = closes {
        NextClaim { kind, attempt: fold.attempt }
    } else {
        NextClaim { kind: ClaimKind::Run, attempt: fold.attempt + 1 }
    }
}

/// The next step of an idle worker for a task.
#[must_use]
pub fn decide(fold: &TaskFold, circumstances: Circumstances, max_attempts: u32) -> Decision {
    let Circumstances { holder, payload, due, closes } = circumstances;
    match fold.phase {
        Phase::New if holder => {}
        Phase::New if fold.cancel && due => {}
        Phase::Retry if fold.cancel && holder => {}
        Phase::Retry | Phase::Running if due => {}
        Phase::New | Phase::Retry | Phase::Running => return Decision::Wait,
        Phase::Completed | Phase::Final | Phase::Cancelled | Phase::Expired | Phase::Sealed => {
            return Decision::Wait;
        }
    }
    let claim = next_claim(fold, max_attempts, closes);
    // Only the message proves that an undelivered task exists, and gives the size of its batch.
    let unseen = fold.phase == Phase::New && !holder;
    if (claim.kind == ClaimKind::Run || unseen) && !payload {
        Decision::ReadPayload
    } else {
        Decision::Claim(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDER: Circumstances =
        Circumstances { holder: true, payload: true, due: false, closes: None };
    const OTHER: Circumstances =
        Circumstances { holder: false, payload: false, due: true, closes: None };

    const fn run(attempt: u32) -> Decision {
        Decision::Claim(NextClaim { kind: ClaimKind::Run, attempt })
    }

    const fn close(kind: ClaimKind, attempt: u32) -> Decision {
        Decision::Claim(NextClaim { kind, attempt })
    }

    #[track_caller]
    fn check(fold: TaskFold, circumstances: Circumstances, expected: Decision) {
        assert_eq!(decide(&fold, circumstances, 3), expected, "{fold:?} {circumstances:?}");
    }

    #[test]
    fn only_a_holder_claims_a_new_task() {
        let new = TaskFold::default();
        check(new, HOLDER, run(1));
        check(new, OTHER, Decision::Wait);
        let cancelled = TaskFold { cancel: true, ..new };
        check(cancelled, HOLDER, close(ClaimKind::Cancelled, 0));
    }

    /// Earlier, a cancelled task that was delivered nowhere waited for the next request for tasks.
    #[test]
    fn others_close_a_new_task_that_was_cancelled_when_its_message_was_read() {
        let cancelled = TaskFold { cancel: true, ..TaskFold::default() };
        check(cancelled, Circumstances { due: false, ..OTHER }, Decision::Wait);
        check(cancelled, OTHER, Decision::ReadPayload);
        let read = Circumstances { payload: true, ..OTHER };
        check(cancelled, read, close(ClaimKind::Cancelled, 0));
        check(TaskFold::default(), read, Decision::Wait);
    }

    #[test]
    fn others_adopt_what_is_due_with_the_payload() {
        for phase in [Phase::Running, Phase::Retry] {
            let fold = TaskFold { phase, attempt: 1, ..TaskFold::default() };
            check(fold, HOLDER, Decision::Wait);
            check(fold, Circumstances { due: true, ..HOLDER }, run(2));
            check(fold, OTHER, Decision::ReadPayload);
            check(fold, Circumstances { payload: true, ..OTHER }, run(2));
            check(fold, Circumstances { due: false, ..OTHER }, Decision::Wait);
            let last = TaskFold { attempt: 3, ..fold };
            check(last, OTHER, close(ClaimKind::Final, 3));
        }
    }

    /// Earlier, a task waiting for a retry in an hour stayed for that hour after it was cancelled.
    #[test]
    fn the_holder_closes_a_cancelled_retry_at_once() {
        let fold =
            TaskFold { phase: Phase::Retry, attempt: 1, cancel: true, ..TaskFold::default() };
        check(fold, HOLDER, close(ClaimKind::Cancelled, 1));
        check(fold, Circumstances { due: false, ..OTHER }, Decision::Wait);
        check(TaskFold { phase: Phase::Running, ..fold }, HOLDER, Decision::Wait);
    }

    #[test]
    fn limits_close_what_could_be_claimed_and_need_no_payload() {
        let closes = Some(ClaimKind::Expired);
        let new = TaskFold::default();
        check(new, Circumstances { closes, ..HOLDER }, close(ClaimKind::Expired, 0));
        check(new, Circumstances { closes, ..OTHER }, Decision::Wait);
        for phase in [Phase::Running, Phase::Retry] {
            let fold = TaskFold { phase, attempt: 1, ..new };
            check(fold, Circumstances { closes, ..OTHER }, close(ClaimKind::Expired, 1));
            check(fold, Circumstances { closes, ..HOLDER }, Decision::Wait);
            let last = TaskFold { attempt: 3, ..fold };
            check(last, Circumstances { closes, ..OTHER }, close(ClaimKind::Final, 3));
            let cancelled = TaskFold { cancel: true, ..fold };
            check(cancelled, Circumstances { closes, ..OTHER }, close(ClaimKind::Cancelled, 1));
        }
    }

    #[test]
    fn nothing_is_claimed_after_the_end() {
        let over =
            [Phase::Completed, Phase::Final, Phase::Cancelled, Phase::Expired, Phase::Sealed];
        for phase in over {
            let fold = TaskFold { phase, ..TaskFold::default() };
            check(fold, Circumstances { due: true, ..HOLDER }, Decision::Wait);
        }
    }
}
