//! The allowed steps of a worker, and for each rule the nearest forbidden one.

use super::*;
use crate::protocol::entry::{Claim, Done, NextAttempt, Outcome};
use crate::protocol::key::{Epoch, OnceKey, OwnerId};

const TASK: TaskId = TaskId { ledger: 1, entry: 2, partition: 0, batch_index: None };
const A: OwnerId = OwnerId(1);
const B: OwnerId = OwnerId(2);

fn key(epoch: u32, owner: OwnerId) -> OnceKey {
    OnceKey { task: TASK, epoch: Epoch(epoch), owner, serial: u64::from(epoch) }
}

fn fold(phase: Phase, epoch: u32, owner: OwnerId, attempt: u32) -> TaskFold {
    TaskFold { phase, epoch: Epoch(epoch), owner, attempt, ..TaskFold::default() }
}

fn running(epoch: u32, attempt: u32) -> TaskFold {
    fold(Phase::Running, epoch, A, attempt)
}

fn over(phase: Phase) -> TaskFold {
    fold(phase, 1, A, 1)
}

/// The table of `claim.rs`, checked by the judge.
#[test]
fn a_claim_needs_a_delivery_or_a_known_state_and_to_run_the_payload() {
    let run = NextClaim { kind: ClaimKind::Run, attempt: 1 };
    let close = NextClaim { kind: ClaimKind::Final, attempt: 1 };
    let may = |phase, held, payload, claim| may_claim(&over(phase), held, payload, claim);
    assert!(may(Phase::New, true, true, run) && !may(Phase::New, false, true, run));
    for phase in [Phase::Running, Phase::Retry] {
        assert!(may(phase, false, true, run) && !may(phase, false, false, run));
        assert!(may(phase, false, false, close));
    }
    assert!(!may(Phase::Completed, true, true, run) && !may(Phase::Sealed, true, true, close));
}

#[test]
fn a_task_is_closed_in_favour_of_another_while_it_does_not_run() {
    let claim = |epoch| Claim::plain(key(epoch, B), 1, ClaimKind::Cancelled);
    let retry = fold(Phase::Retry, 2, A, 1);
    assert!(closing(&retry, &claim(3)).is_ok());
    assert!(closing(&retry, &claim(2)).is_err());
    assert!(closing(&running(2, 1), &claim(3)).is_err());
    assert!(closing(&over(Phase::Completed), &claim(2)).is_err());
    let of_batch = |batch_size| {
        let first = claim(1);
        let task = TaskId { batch_index: Some(0), ..TASK };
        Claim { key: OnceKey { task, ..first.key }, attempt: 0, batch_size, ..first }
    };
    assert!(closing(&TaskFold::default(), &of_batch(Some(2))).is_ok());
    assert!(closing(&TaskFold::default(), &of_batch(None)).is_err());
}

#[test]
fn a_start_is_the_attempt_and_epoch_of_the_fold_within_the_limit() {
    let may = |fold: TaskFold, epoch: u32, owner, attempt| {
        inside_own_claim(&fold, (Epoch(epoch), owner), attempt, 2).is_ok()
    };
    assert!(may(running(3, 2), 3, A, 2) && may(running(3, 1), 3, A, 1));
    for wrong in [
        may(running(3, 2), 2, A, 2),
        may(running(3, 2), 3, B, 2),
        may(running(3, 2), 3, A, 1),
        may(running(3, 3), 3, A, 3),
        may(running(3, 0), 3, A, 0),
        may(fold(Phase::Retry, 3, A, 2), 3, A, 2),
    ] {
        assert!(!wrong);
    }
}

/// A task that is set aside is stopped only in the epoch that runs here.
#[test]
fn a_start_is_forgotten_when_the_ledger_shows_something_else() {
    for (shown, expected) in [
        (running(1, 1), Some(Epoch(1))),
        (running(2, 2), None),
        (fold(Phase::Retry, 1, A, 1), None),
        (over(Phase::Completed), None),
    ] {
        let mut own_record = OwnRecord::default();
        own_record.start(Epoch(1));
        own_record.update(&shown);
        assert_eq!(own_record.started(), expected, "{shown:?}");
    }
}

/// Giving an epoch back needs no start, but the epoch must be the worker's and must run.
#[test]
fn an_outcome_is_of_an_epoch_that_runs() {
    let (mut own_record, released) =
        (OwnRecord::default(), Outcome::Released(NextAttempt::default()));
    let judged = |fold: TaskFold, own_record: &OwnRecord, outcome| {
        let done = Done { key: key(1, A), attempt: 1, outcome, writer: None };
        super::outcome(&fold, own_record, &done).map_err(|breach| breach.id)
    };
    assert_eq!(judged(running(1, 1), &own_record, released), Ok(()));
    assert_eq!(judged(running(1, 1), &own_record, Outcome::Completed), Err(OUTCOME));
    own_record.start(Epoch(1));
    assert_eq!(judged(running(1, 1), &own_record, Outcome::Completed), Ok(()));
    for wrong in [fold(Phase::Running, 1, B, 1), running(2, 2), fold(Phase::Retry, 1, A, 1)] {
        assert_eq!(judged(wrong, &own_record, released), Err(OUTCOME), "{wrong:?}");
        assert_eq!(judged(wrong, &own_record, Outcome::Completed), Err(OUTCOME), "{wrong:?}");
    }
}
