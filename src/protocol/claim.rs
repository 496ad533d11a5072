//! Which task a worker may claim, and with which claim.
//!
//! | fold says | holder of a delivery | any other worker (*adoption*) |
//! |---|---|---|
//! | NEW | if the delivery is fresh, else it hands it back | never: an empty fold proves nothing |
//! | RETRY | when due | state live, overdue, payload read first |
//! | RUNNING by another | when its owner is stale | state live, owner stale, payload read first |
//!
//! *Due* and *stale* are judged by the claimer's own clock (`silence.rs`); this module only says what follows.

use super::entry::ClaimKind;
use super::fold::{Phase, TaskFold};

/// What a worker knows of a task besides its fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one independent fact of the table above"
)]
pub struct Circumstances {
    /// It holds a delivery of the task.
    pub holder: bool,
    /// That delivery came at most R/4 ago: the broker never redelivers an acknowledged message, but an old copy may be of one.
    pub delivery_fresh: bool,
    /// The payload is at hand.
    pub payload: bool,
    /// The entry that made the folded state was read after the bootstrap.
    pub live: bool,
    /// RETRY: the next attempt is due for a worker in this role. RUNNING: the owner is stale, and the delay of an adopter over.
    pub due: bool,
}

/// What follows from fold and circumstances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Publish this claim.
    Claim(NextClaim),
    /// Read the payload from the task topic, then decide again.
    ReadPayload,
    /// Give the delivery back to the broker: it is too old to be trusted.
    HandBack,
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

/// The claim that the folded state calls for: closing when the task was cancelled or has no attempt left.
#[must_use]
pub const fn next_claim(fold: &TaskFold, attempts_max: u32) -> NextClaim {
    if fold.cancel {
        NextClaim { kind: ClaimKind::Cancelled, attempt: fold.attempt }
    } else if fold.attempt >= attempts_max {
        NextClaim { kind: ClaimKind::Final, attempt: fold.attempt }
    } else {
        NextClaim { kind: ClaimKind::Run, attempt: fold.attempt + 1 }
    }
}

/// What a worker that is idle on a task does next.
#[must_use]
pub fn decide(fold: &TaskFold, circumstances: Circumstances, attempts_max: u32) -> Decision {
    let Circumstances { holder, delivery_fresh, payload, live, due } = circumstances;
    match fold.phase {
        Phase::New if holder && !delivery_fresh => return Decision::HandBack,
        Phase::New if holder => {}
        Phase::Retry | Phase::Running if due && (holder || live) => {}
        Phase::New | Phase::Retry | Phase::Running => return Decision::Wait,
        Phase::Completed | Phase::Final | Phase::Cancelled | Phase::Expired => {
            return Decision::Wait;
        }
    }
    let claim = next_claim(fold, attempts_max);
    if claim.kind == ClaimKind::Run && !payload {
        Decision::ReadPayload
    } else {
        Decision::Claim(claim)
    }
}
