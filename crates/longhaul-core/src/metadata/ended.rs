//! Shows the ends of attempts on the metadata topic: decides what must be read first, and what
//! follows when the entry is stored, lost or refused.

use crate::protocol::fold::Phase;
use crate::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum time that the entry of a task with another attempt waits for its topic: the end of a
/// drain waits for it.
const RETRY_WAITS_MAX: Duration = Duration::from_secs(5);

/// The content of a metadata entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Showing {
    /// The attempt runs.
    Processing,
    /// The attempt has failed or was put off, and another one follows.
    Retry,
    /// The end of the task, before it is acknowledged.
    Outcome,
    /// The end of the task again, because the metadata topic does not show it.
    Repair,
}

/// The data of an ended attempt that is in memory.
#[derive(Clone, Copy, Debug)]
pub struct AtHand {
    /// Whether the result, or the reason of the failure, is in memory.
    pub body: bool,
    /// Whether the payload is in memory.
    pub task: bool,
}

/// The next step for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowingStep {
    /// Read the body from the ledger.
    ReadBody,
    /// Read the payload from the task topic.
    ReadTask,
    /// Publish the calls of the queue's webhooks. The entry comes after their receipts.
    Tell,
    /// Wait for the receipts of the calls.
    Wait,
    /// Publish the entry, and drop it if it has to wait for longer than this.
    Publish {
        /// Maximum wait.
        expires: Option<Duration>,
    },
}

/// Result of publishing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowingResult {
    /// The entry is stored.
    Stored,
    /// The entry may be stored.
    Unknown,
    /// The entry was refused; the same entry would be refused again.
    Refused,
}

/// The step after a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowingFollowUp {
    /// Do nothing.
    Nothing,
    /// Tell the machine that the metadata topic shows the end, and drop the data needed for that.
    Shown,
    /// Drop the data needed for the entry.
    Forget,
    /// Drop the body, and the payload until the next attempt is due.
    Wait,
    /// Show it again.
    Again,
}

/// The entries of ended attempts of one partition.
#[derive(Clone, Debug, Default)]
pub struct EndedAttempts {
    /// Tasks whose payload is left out of their entries: an entry or a dead letter with it was
    /// refused, or it is gone.
    bare: BTreeSet<TaskId>,
    /// Tasks whose end was refused once.
    refused: BTreeSet<TaskId>,
    /// Tasks whose calls of webhooks were published, and whether all are stored or refused.
    told: BTreeMap<TaskId, bool>,
}

impl EndedAttempts {
    /// The first step for an entry about a task in this phase. An end carries the payload if it is
    /// available. A task that is put off each second must not leave an entry for each second of an
    /// outage. With `webhooks` the calls of the end are published first: an end on the metadata
    /// topic proves that its calls are stored. If this worker dies in between, the next one shows
    /// the end, and publishes the calls again.
    pub fn next(
        &mut self,
        id: TaskId,
        kind: Showing,
        phase: Phase,
        has: AtHand,
        heartbeat: Duration,
        webhooks: bool,
    ) -> ShowingStep {
        if !has.body {
            ShowingStep::ReadBody
        } else if phase.is_terminal() && !has.task && !self.is_bare(id) {
            ShowingStep::ReadTask
        } else if webhooks && phase.is_terminal() && !self.is_told(id) {
            match self.told.insert(id, false) {
                None => ShowingStep::Tell,
                Some(_) => ShowingStep::Wait,
            }
        } else {
            let brief = heartbeat.min(RETRY_WAITS_MAX);
            ShowingStep::Publish { expires: (kind == Showing::Retry).then_some(brief) }
        }
    }

    /// Whether the calls of an end are stored or given up.
    #[must_use]
    pub fn is_told(&self, id: TaskId) -> bool {
        self.told.get(&id) == Some(&true)
    }

    /// Handles the receipts of the calls of an end: they are stored or given up, or nothing is to
    /// be shown any more.
    pub fn handle_told(&mut self, id: TaskId, told: bool) {
        if told {
            self.told.insert(id, true);
        } else {
            self.told.remove(&id);
        }
    }

    /// The step after the result of an entry. `phase` is the task's current phase, in the epoch of
    /// the entry; `rests` means that nothing else is to be written about it. A refused entry is
    /// published again without the payload; if that is refused, too, the entry is given up, so that
    /// the task does not depend on the metadata topic. The second value is true if the entry is
    /// given up.
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
            // It was read only for this, unless the end is still to be written.
            (Showing::Repair, true) if rests => ShowingFollowUp::Forget,
            (Showing::Outcome | Showing::Repair, false) => ShowingFollowUp::Again,
            (Showing::Retry, false) if phase == Phase::Retry => ShowingFollowUp::Again,
            (Showing::Processing, false) if phase == Phase::Running => ShowingFollowUp::Again,
            (Showing::Repair | Showing::Retry | Showing::Processing, _) => ShowingFollowUp::Nothing,
        };
        (after, given_up && matches!(kind, Showing::Outcome | Showing::Repair))
    }

    /// Leaves the payload out of the task's entries from now on.
    pub fn leave_out(&mut self, id: TaskId) {
        self.bare.insert(id);
    }

    /// Whether the payload is left out of the task's entries.
    #[must_use]
    pub fn is_bare(&self, id: TaskId) -> bool {
        self.bare.contains(&id)
    }

    /// Forgets a task of which nothing more is shown.
    pub fn forget(&mut self, id: TaskId) {
        self.bare.remove(&id);
        self.refused.remove(&id);
        self.told.remove(&id);
    }

    /// Forgets all tasks for which `over` returns true. There are few, because only tasks whose end
    /// is not shown yet are kept here.
    pub fn forget_if(&mut self, over: impl Fn(TaskId) -> bool) {
        self.bare.retain(|id| !over(*id));
        self.refused.retain(|id| !over(*id));
        self.told.retain(|id, _| !over(*id));
    }
}

/// Pause before a missing body is read again, growing with the tries: an entry that is gone does
/// not come back.
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
        ended: &mut EndedAttempts,
        kind: Showing,
        phase: Phase,
        body: bool,
        task: bool,
    ) -> ShowingStep {
        ended.next(ID, kind, phase, AtHand { body, task }, H, false)
    }

    #[test]
    fn what_is_not_at_hand_is_read_first() {
        let mut ended = EndedAttempts::default();
        let mut outcome =
            |body, task| next(&mut ended, Showing::Outcome, Phase::Completed, body, task);
        assert_eq!(outcome(false, false), ShowingStep::ReadBody);
        assert_eq!(outcome(true, false), ShowingStep::ReadTask);
        assert_eq!(outcome(true, true), ShowingStep::Publish { expires: None });
        let retry = next(&mut ended, Showing::Retry, Phase::Retry, true, false);
        assert_eq!(retry, ShowingStep::Publish { expires: Some(H / 2) }, "it waits for nothing");
    }

    #[test]
    fn a_refused_end_is_shown_without_the_task_and_given_up_then() {
        let mut ended = EndedAttempts::default();
        let mut refused =
            |kind| ended.after(ID, kind, ShowingResult::Refused, Phase::Completed, false);
        assert_eq!(refused(Showing::Outcome), (ShowingFollowUp::Again, false));
        assert_eq!(refused(Showing::Outcome), (ShowingFollowUp::Shown, true), "the task goes on");
        let bare = next(&mut ended, Showing::Repair, Phase::Completed, true, false);
        assert_eq!(bare, ShowingStep::Publish { expires: None }, "nor is it read again");
        ended.forget(ID);
        assert!(!ended.is_bare(ID));
    }

    #[test]
    fn an_end_is_told_before_it_is_shown_and_once() {
        let mut ended = EndedAttempts::default();
        let has = |task| AtHand { body: true, task };
        let step = |ended: &mut EndedAttempts, kind, phase, task| {
            ended.next(ID, kind, phase, has(task), H, true)
        };
        let publish = ShowingStep::Publish { expires: None };
        let kind = Showing::Outcome;
        assert_eq!(step(&mut ended, kind, Phase::Completed, false), ShowingStep::ReadTask);
        assert_eq!(step(&mut ended, kind, Phase::Completed, true), ShowingStep::Tell);
        assert_eq!(step(&mut ended, Showing::Repair, Phase::Completed, true), ShowingStep::Wait);
        ended.handle_told(ID, false);
        assert_eq!(step(&mut ended, kind, Phase::Completed, true), ShowingStep::Tell, "again");
        ended.handle_told(ID, true);
        assert_eq!(step(&mut ended, kind, Phase::Completed, true), publish);
        assert_eq!(step(&mut ended, Showing::Repair, Phase::Completed, true), publish);
        ended.forget(ID);
        assert_eq!(step(&mut ended, Showing::Repair, Phase::Final, true), ShowingStep::Tell);
        ended.forget_if(|id| id == ID);
        let retry = step(&mut ended, Showing::Retry, Phase::Retry, true);
        assert_eq!(retry, ShowingStep::Publish { expires: Some(H / 2) }, "it is no end");
    }

    /// Earlier, if an entry that showed the task as running had been refused once, the first
    /// refusal of its end was treated as the second one, and the task was acknowledged 10 s before
    /// its end was shown (simulation, seed 616894).
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

    /// Earlier, no test failed when tasks stayed left out of their entries for ever after the
    /// ledger had forgotten them.
    #[test]
    fn what_is_over_is_forgotten_and_nothing_else() {
        let mut ended = EndedAttempts::default();
        let other = TaskId { entry: 3, ..ID };
        ended.leave_out(ID);
        ended.leave_out(other);
        ended.forget_if(|id| id == ID);
        assert_eq!((ended.is_bare(ID), ended.is_bare(other)), (false, true));
    }

    /// Earlier, no test failed when a missing body was read again and again without a pause.
    #[test]
    fn the_waits_for_a_body_double_up_to_four_minutes() {
        let waits = [0, 1, 2, 8, 9, u32::MAX].map(|tries| wait_for_body(tries).as_secs());
        assert_eq!(waits, [1, 2, 4, 256, 256, 256]);
    }
}
