//! Actions of an operator on a task, from outside. A person, or a program that acts for one, is an
//! owner like any other and acts by claims.
//!
//! | action | entries | accepted iff |
//! |---|---|---|
//! | delete, supersede | a closing claim CANCELLED of the next epoch | the epoch that was seen is still the last |
//! | fail | a closing claim FINAL of the next epoch | the same |
//! | release | a claim RUN of the next epoch, and its RELEASED | the same |
//! | reschedule | the same, with the time of the next attempt | the same, and the task waits for its time |
//!
//! An action based on an old state is therefore ignored by every fold, however late it is stored.
//! The previous owner reads a higher epoch and stops. An operator that dies between a RUN and its
//! RELEASED is a silent owner: the task is taken over 2 heartbeat intervals later.

use super::entry::{ClaimKind, NextAttempt};
use super::fold::{Phase, TaskFold};
use super::key::Epoch;

/// An operator's action. See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorAction {
    /// Closes the task in any state.
    Delete,
    /// Closes the task as failed for good.
    ForceFail,
    /// Takes the epoch from its owner, so that another attempt follows.
    ForceRelease,
    /// Closes a task that was never claimed, in favour of another one.
    Supersede,
    /// Sets when the next attempt of a waiting task begins.
    Reschedule(NextAttempt),
}

/// Why an action is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionRefusal {
    /// The task is over.
    Over(Phase),
    /// The task is not in the expected epoch, but in this one.
    Stale(Epoch),
    /// The task is not running, so it cannot be released.
    NotRunning,
    /// The task is running, so it cannot be rescheduled.
    Running,
    /// The task waits for other tasks, not for a time.
    Parked,
}

/// The claim of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActionClaim {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its attempt.
    pub attempt: u32,
    /// Its effect.
    pub kind: ClaimKind,
}

impl OperatorAction {
    /// The claim for this action on a task in the expected epoch `seen`, or in any epoch if none is
    /// given.
    ///
    /// # Errors
    /// The state of the task does not allow the action.
    pub fn claim(self, fold: &TaskFold, seen: Option<Epoch>) -> Result<ActionClaim, ActionRefusal> {
        // A superseded task must not have begun.
        let seen = if self == Self::Supersede { Some(Epoch(0)) } else { seen };
        if fold.phase.is_terminal() {
            return Err(ActionRefusal::Over(fold.phase));
        }
        if seen.is_some_and(|seen| seen != fold.epoch) {
            return Err(ActionRefusal::Stale(fold.epoch));
        }
        if self == Self::ForceRelease && fold.phase != Phase::Running {
            return Err(ActionRefusal::NotRunning);
        }
        if matches!(self, Self::Reschedule(_)) {
            if fold.phase == Phase::Running {
                return Err(ActionRefusal::Running);
            }
            if fold.is_parked() {
                return Err(ActionRefusal::Parked);
            }
        }
        let (kind, attempt) = match self {
            Self::Delete | Self::Supersede => (ClaimKind::Cancelled, fold.attempt),
            Self::ForceFail => (ClaimKind::Final, fold.attempt),
            // Its RELEASED gives this attempt back. The attempt of the owner that loses the epoch
            // counts, as if that owner had died.
            Self::ForceRelease | Self::Reschedule(_) => {
                (ClaimKind::Run, fold.attempt.saturating_add(1))
            }
        };
        Ok(ActionClaim { epoch: fold.epoch.next(), attempt, kind })
    }

    /// When the attempt begins that follows; `None` if none does.
    #[must_use]
    pub const fn next_attempt(self) -> Option<NextAttempt> {
        match self {
            Self::ForceRelease => Some(NextAttempt::new(0, 0)),
            Self::Reschedule(next) => Some(next),
            Self::Delete | Self::ForceFail | Self::Supersede => None,
        }
    }

    /// The word for it in entries.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::ForceFail => "force-fail",
            Self::ForceRelease => "force-release",
            Self::Supersede => "supersede",
            Self::Reschedule(_) => "reschedule",
        }
    }

    /// The beginning of the reason shown for the end of the task.
    #[must_use]
    pub const fn participle(self) -> &'static str {
        match self {
            Self::Delete => "Deleted",
            Self::ForceFail => "Failed",
            Self::ForceRelease => "Released",
            Self::Supersede => "Superseded",
            Self::Reschedule(_) => "Rescheduled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Claim, Done, Entry, NextAttempt, Outcome};
    use super::super::fold::Verdict;
    use super::super::key::{OnceKey, OwnerId};
    use super::*;
    use crate::task::TaskId;

    const TASK: TaskId = TaskId { ledger: 1, entry: 0, partition: -1, batch_index: None };
    const ALL: [OperatorAction; 4] = [
        OperatorAction::Delete,
        OperatorAction::ForceFail,
        OperatorAction::ForceRelease,
        OperatorAction::Supersede,
    ];

    fn entry(claim: ActionClaim, owner: u128) -> Entry {
        let ActionClaim { epoch, attempt, kind } = claim;
        let key = OnceKey { task: TASK, epoch, owner: OwnerId(owner), serial: 1 };
        Entry::Claim(Claim::plain(key, attempt, kind))
    }

    fn running(epoch: u32, attempt: u32) -> TaskFold {
        let owner = OwnerId(7);
        TaskFold {
            epoch: Epoch(epoch),
            attempt,
            owner,
            phase: Phase::Running,
            ..TaskFold::default()
        }
    }

    #[test]
    fn an_action_ends_the_epoch_that_was_seen() {
        for action in ALL {
            let mut fold = if action == OperatorAction::Supersede {
                TaskFold::default()
            } else {
                running(3, 2)
            };
            let claim = action.claim(&fold, Some(fold.epoch)).unwrap();
            assert_eq!(fold.apply(&entry(claim, 9)), Verdict::Accepted, "{action:?}");
            assert_eq!(
                fold.phase.is_terminal(),
                action != OperatorAction::ForceRelease,
                "{action:?}"
            );
        }
    }

    /// Another worker has taken the task over while the operator looked at a dashboard.
    #[test]
    fn a_stale_action_is_refused_and_ignored_if_it_is_tried_all_the_same() {
        for action in ALL {
            let seen = if action == OperatorAction::Supersede {
                TaskFold::default()
            } else {
                running(3, 2)
            };
            let claim = action.claim(&seen, Some(seen.epoch)).unwrap();
            let mut now = TaskFold { epoch: seen.epoch.next(), attempt: 3, ..running(0, 0) };
            assert_eq!(action.claim(&now, Some(seen.epoch)), Err(ActionRefusal::Stale(now.epoch)));
            let before = now;
            assert!(matches!(now.apply(&entry(claim, 9)), Verdict::Ignored(_)), "{action:?}");
            assert_eq!(now, before);
        }
    }

    /// A worker that has just begun it must not lose it to somebody who looked at a list.
    #[test]
    fn what_runs_or_waits_for_others_is_not_rescheduled() {
        let later = OperatorAction::Reschedule(NextAttempt::new(9_000, 5_000));
        assert_eq!(later.claim(&running(3, 2), None), Err(ActionRefusal::Running));
        let waiting = TaskFold { phase: Phase::Retry, ..running(3, 2) };
        let parked = TaskFold { next_attempt: NextAttempt::PARKED, ..waiting };
        assert_eq!(later.claim(&parked, None), Err(ActionRefusal::Parked));
        for mut fold in [TaskFold::default(), waiting] {
            let before = fold;
            let claim = later.claim(&fold, None).unwrap();
            assert_eq!(fold.apply(&entry(claim, 9)), Verdict::Accepted);
            let key = OnceKey { task: TASK, epoch: claim.epoch, owner: OwnerId(9), serial: 2 };
            let outcome = Outcome::Released(later.next_attempt().unwrap());
            let released = Entry::Done(Done { key, attempt: claim.attempt, outcome, writer: None });
            assert_eq!(fold.apply(&released), Verdict::Accepted);
            assert_eq!((fold.phase, fold.attempt), (Phase::Retry, before.attempt), "it costs none");
            assert_eq!(fold.next_attempt.at_ms, 9_000);
        }
    }

    #[test]
    fn what_is_over_stays_as_it_is() {
        for phase in
            [Phase::Completed, Phase::Final, Phase::Cancelled, Phase::Expired, Phase::Sealed]
        {
            let fold = TaskFold { phase, ..TaskFold::default() };
            for action in ALL {
                assert_eq!(
                    action.claim(&fold, None),
                    Err(ActionRefusal::Over(phase)),
                    "{action:?}"
                );
            }
        }
    }

    /// The attempt of the owner that loses the epoch counts, as if it had died; the operator's does
    /// not.
    #[test]
    fn a_release_gives_back_the_operators_attempt_alone() {
        let mut fold = running(3, 2);
        let claim = OperatorAction::ForceRelease.claim(&fold, Some(Epoch(3))).unwrap();
        assert_eq!(fold.apply(&entry(claim, 9)), Verdict::Accepted);
        let key = OnceKey { task: TASK, epoch: Epoch(4), owner: OwnerId(9), serial: 2 };
        let outcome = Outcome::Released(NextAttempt::new(0, 0));
        let released = Entry::Done(Done { key, attempt: claim.attempt, outcome, writer: None });
        assert_eq!(fold.apply(&released), Verdict::Accepted);
        assert_eq!((fold.phase, fold.attempt), (Phase::Retry, 2));
        let refused = OperatorAction::ForceRelease.claim(&fold, Some(Epoch(4)));
        assert_eq!(refused, Err(ActionRefusal::NotRunning));
    }

    #[test]
    fn only_a_task_that_nobody_has_claimed_is_superseded() {
        let action = OperatorAction::Supersede;
        assert!(action.claim(&TaskFold::default(), None).is_ok());
        assert_eq!(action.claim(&running(1, 1), None), Err(ActionRefusal::Stale(Epoch(1))));
    }
}
