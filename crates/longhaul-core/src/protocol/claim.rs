//! Which task a worker may claim, and with which claim.
//!
//! | fold says | holder of a delivery | any other worker (*adoption*) |
//! |---|---|---|
//! | NEW | at once | only to close it when it was cancelled, its message read first: an empty fold proves nothing |
//! | RETRY | when due, or at once to close it when it was cancelled | overdue, payload read first |
//! | RUNNING by another | when its owner is stale | owner stale, payload read first |
//!
//! *Due* and *stale* are judged by the claimer's own clock (`silence.rs`); this module only says
//! what follows.

use super::entry::ClaimKind;
use super::fold::{Phase, TaskFold};

/// What a worker knows of a task besides its fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Circumstances {
    /// It holds a delivery of the task.
    pub holder: bool,
    /// The payload is at hand.
    pub payload: bool,
    /// RETRY: the next attempt is due for a worker in this role, or its limits close the task for
    /// it. RUNNING: the owner is stale, and the delay of an adopter over. NEW, and cancelled: that
    /// delay is over.
    pub due: bool,
    /// How the task's own limits close it by now, if they do: FINAL or EXPIRED, judged by the
    /// claimer's wall clock. Or what it waits for closes it, or parks it.
    pub closes: Option<ClaimKind>,
}

/// What follows from fold and circumstances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Publish this claim.
    Claim(NextClaim),
    /// Read the payload from the task topic, then decide again.
    ReadPayload,
    /// Nothing now.
    Wait,
}

/// The claim to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextClaim {
    /// Runs the task or closes it.
    pub kind: ClaimKind,
    /// Its attempt.
    pub attempt: u32,
}

/// The claim that the folded state calls for: closing when the task was cancelled, has no attempt
/// left, or its own limits close it.
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

/// What a worker that is idle on a task does next.
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
    // Of a task that was not delivered its message alone says that it is there, and how many came
    // with it.
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

    /// A cancelled task that was delivered nowhere waited until somebody asked for tasks.
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

    /// A task that waits for a retry in an hour used to stay for that hour after it was cancelled.
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
