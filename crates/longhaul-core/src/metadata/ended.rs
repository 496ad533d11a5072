//! Shows on M how attempts have ended: what must be read before, and what follows when the entry is
//! stored, lost or refused.

use crate::protocol::fold::Phase;
use crate::task::TaskId;
use std::collections::BTreeSet;
use std::time::Duration;

/// The entry of a task that waits for its next attempt waits no longer than this for its topic: the
/// end of a drain waits for it.
const RETRY_WAITS_MAX: Duration = Duration::from_secs(5);

/// What an entry on M shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Showing {
    /// An attempt runs.
    Processing,
    /// It has failed or was put off, and another one follows.
    Retry,
    /// How the task ended, before it is acknowledged.
    Outcome,
    /// The same, because M does not show it.
    Repair,
}

/// What is at hand of a task whose attempt has ended.
#[derive(Clone, Copy, Debug)]
pub struct AtHand {
    /// The result, or the reason of the failure.
    pub body: bool,
    /// The payload.
    pub task: bool,
}

/// What comes next on the way of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowingStep {
    /// The body is read from the ledger.
    ReadBody,
    /// The payload is read from the task topic.
    ReadTask,
    /// It is published, and dropped if it has to wait for longer than this.
    Publish {
        /// How long it may wait.
        expires: Option<Duration>,
    },
}

/// What became of an entry that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowingResult {
    /// It is stored.
    Stored,
    /// It may be.
    Unknown,
    /// It is not, and never will be as it is.
    Refused,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowingFollowUp {
    /// Nothing.
    Nothing,
    /// The machine is told that M shows the end, and what was needed for that can go.
    Shown,
    /// What was needed for the entry can go.
    Forget,
    /// The body can go, and the payload until the next attempt is due.
    Wait,
    /// It is shown again.
    Again,
}

/// The entries of ended attempts of one partition.
#[derive(Clone, Debug, Default)]
pub struct EndedAttempts {
    /// Tasks that are left out of their entries: with them an entry or a dead letter was refused,
    /// or they are gone.
    bare: BTreeSet<TaskId>,
    /// Tasks whose end was refused once.
    refused: BTreeSet<TaskId>,
}

impl EndedAttempts {
    /// What comes first for an entry about a task in this phase. An end carries the payload where
    /// that can be had, and a task that is put off each second must not leave an entry for each
    /// second of an outage.
    pub fn next(
        &self,
        id: TaskId,
        kind: Showing,
        phase: Phase,
        has: AtHand,
        heartbeat: Duration,
    ) -> ShowingStep {
        if !has.body {
            ShowingStep::ReadBody
        } else if phase.is_terminal() && !has.task && !self.is_bare(id) {
            ShowingStep::ReadTask
        } else {
            let brief = heartbeat.min(RETRY_WAITS_MAX);
            ShowingStep::Publish { expires: (kind == Showing::Retry).then_some(brief) }
        }
    }

    /// What follows when it is known what became of an entry. `phase` is the task's now, in the
    /// epoch that the entry speaks of; `rests` says that nothing else is to be written about it.
    /// One that is refused is published again without the payload; if that is refused, too, the
    /// task must not hang on what M shows. True beside it if the entry is given up.
    pub fn after(
        &mut self,
        id: TaskId,
        kind: Showing,
        answer: ShowingResult,
        phase: Phase,
        rests: bool,
    ) -> (ShowingFollowUp, bool) {
        let refused = answer == ShowingResult::Refused;
        let was_bare = refused && !self.bare.insert(id);
        let given_up = match kind {
            Showing::Processing | Showing::Retry => was_bare,
            // An end is published twice, whatever was refused before.
            Showing::Outcome | Showing::Repair => refused && !self.refused.insert(id),
        };
        if answer == ShowingResult::Stored || given_up {
            self.refused.remove(&id);
        }
        let stored = answer == ShowingResult::Stored || given_up;
        let after = match (kind, stored) {
            (Showing::Outcome, true) => ShowingFollowUp::Shown,
            (Showing::Retry, true) if phase.is_terminal() => ShowingFollowUp::Forget,
            (Showing::Retry, true) => ShowingFollowUp::Wait,
            // Read for it alone, unless the end is still to be written.
            (Showing::Repair, true) if rests => ShowingFollowUp::Forget,
            (Showing::Outcome | Showing::Repair, false) => ShowingFollowUp::Again,
            (Showing::Retry, false) if phase == Phase::Retry => ShowingFollowUp::Again,
            (Showing::Processing, false) if phase == Phase::Running => ShowingFollowUp::Again,
            (Showing::Repair | Showing::Retry | Showing::Processing, _) => ShowingFollowUp::Nothing,
        };
        (after, given_up && matches!(kind, Showing::Outcome | Showing::Repair))
    }

    /// The task is left out of its entries from now on.
    pub fn leave_out(&mut self, id: TaskId) {
        self.bare.insert(id);
    }

    /// Whether the task is left out of its entries.
    #[must_use]
    pub fn is_bare(&self, id: TaskId) -> bool {
        self.bare.contains(&id)
    }

    /// Nothing more is shown of the task.
    pub fn forget(&mut self, id: TaskId) {
        self.bare.remove(&id);
        self.refused.remove(&id);
    }

    /// The same for all that `over` says. These are few: they are of tasks that have not been shown
    /// to the end.
    pub fn forget_if(&mut self, over: impl Fn(TaskId) -> bool) {
        self.bare.retain(|id| !over(*id));
        self.refused.retain(|id| !over(*id));
    }
}

/// Waits before a body is read again that was not there: an entry that is gone does not come back.
#[must_use]
pub fn wait_for_body(tries: u32) -> Duration {
    Duration::from_secs(1) * (1 << tries.min(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };
    const H: Duration = Duration::from_secs(10);

    fn next(
        ended: &EndedAttempts,
        kind: Showing,
        phase: Phase,
        body: bool,
        task: bool,
    ) -> ShowingStep {
        ended.next(ID, kind, phase, AtHand { body, task }, H)
    }

    #[test]
    fn what_is_not_at_hand_is_read_first() {
        let ended = EndedAttempts::default();
        let outcome = |body, task| next(&ended, Showing::Outcome, Phase::Completed, body, task);
        assert_eq!(outcome(false, false), ShowingStep::ReadBody);
        assert_eq!(outcome(true, false), ShowingStep::ReadTask);
        assert_eq!(outcome(true, true), ShowingStep::Publish { expires: None });
        let retry = next(&ended, Showing::Retry, Phase::Retry, true, false);
        assert_eq!(retry, ShowingStep::Publish { expires: Some(H / 2) }, "it waits for nothing");
    }

    #[test]
    fn a_refused_end_is_shown_without_the_task_and_given_up_then() {
        let mut ended = EndedAttempts::default();
        let mut refused =
            |kind| ended.after(ID, kind, ShowingResult::Refused, Phase::Completed, false);
        assert_eq!(refused(Showing::Outcome), (ShowingFollowUp::Again, false));
        assert_eq!(refused(Showing::Outcome), (ShowingFollowUp::Shown, true), "the task goes on");
        let bare = next(&ended, Showing::Repair, Phase::Completed, true, false);
        assert_eq!(bare, ShowingStep::Publish { expires: None }, "nor is it read again");
        ended.forget(ID);
        assert!(!ended.is_bare(ID));
    }

    /// An entry that showed the task as running was refused once. Then the first refusal of its end
    /// was taken for the second one, and the task was acknowledged ten seconds before its end was
    /// shown (simulation, seed 616894).
    #[test]
    fn an_end_is_published_twice_whatever_was_refused_before() {
        let mut ended = EndedAttempts::default();
        let mut answer = |kind, phase, answer| ended.after(ID, kind, answer, phase, false).0;
        let (shows, refused) = (Showing::Processing, ShowingResult::Refused);
        assert_eq!(answer(shows, Phase::Running, refused), ShowingFollowUp::Again);
        let end = (Showing::Outcome, Phase::Completed);
        assert_eq!(answer(end.0, end.1, refused), ShowingFollowUp::Again);
        assert_eq!(answer(end.0, end.1, refused), ShowingFollowUp::Shown);
        assert_eq!(answer(end.0, end.1, ShowingResult::Stored), ShowingFollowUp::Shown);
        assert_eq!(answer(end.0, end.1, refused), ShowingFollowUp::Again, "it begins anew");
    }

    #[test]
    fn what_may_be_lost_is_shown_again_as_long_as_it_is_so() {
        let all = [
            (Showing::Outcome, Phase::Completed, ShowingFollowUp::Again),
            (Showing::Repair, Phase::Completed, ShowingFollowUp::Again),
            (Showing::Retry, Phase::Retry, ShowingFollowUp::Again),
            (Showing::Retry, Phase::Completed, ShowingFollowUp::Nothing),
            (Showing::Processing, Phase::Running, ShowingFollowUp::Again),
            (Showing::Processing, Phase::Retry, ShowingFollowUp::Nothing),
        ];
        for (kind, phase, expected) in all {
            let (after, _) =
                EndedAttempts::default().after(ID, kind, ShowingResult::Unknown, phase, false);
            assert_eq!(after, expected, "{kind:?} {phase:?}");
        }
    }

    #[test]
    fn what_is_stored_needs_no_more() {
        let all = [
            (Showing::Outcome, Phase::Completed, false, ShowingFollowUp::Shown),
            (Showing::Repair, Phase::Completed, true, ShowingFollowUp::Forget),
            (Showing::Repair, Phase::Completed, false, ShowingFollowUp::Nothing),
            (Showing::Retry, Phase::Retry, false, ShowingFollowUp::Wait),
            (Showing::Retry, Phase::Final, false, ShowingFollowUp::Forget),
            (Showing::Processing, Phase::Running, false, ShowingFollowUp::Nothing),
        ];
        for (kind, phase, rests, expected) in all {
            let (after, _) =
                EndedAttempts::default().after(ID, kind, ShowingResult::Stored, phase, rests);
            assert_eq!(after, expected, "{kind:?} {phase:?}");
        }
    }

    /// No test noticed when tasks stayed left out of their entries for ever after the ledger had
    /// forgotten them.
    #[test]
    fn what_is_over_is_forgotten_and_nothing_else() {
        let mut ended = EndedAttempts::default();
        let other = TaskId { entry: 3, ..ID };
        ended.leave_out(ID);
        ended.leave_out(other);
        ended.forget_if(|id| id == ID);
        assert_eq!((ended.is_bare(ID), ended.is_bare(other)), (false, true));
    }

    /// No test noticed when a body that was not there was read again and again without a pause.
    #[test]
    fn the_waits_for_a_body_double_up_to_four_minutes() {
        let waits = [0, 1, 2, 8, 9, u32::MAX].map(|tries| wait_for_body(tries).as_secs());
        assert_eq!(waits, [1, 2, 4, 256, 256, 256]);
    }
}
