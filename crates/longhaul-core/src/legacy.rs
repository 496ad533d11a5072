//! Workers of the Java reference on the same subscription: their entries on the metadata topic, and
//! the consequences for a claim. Pure. Used only in mode `legacy`; without it no worker reads the
//! metadata topic before a claim.
//!
//! They neither write nor read the ledger, and run what they get at once. Only the metadata topic
//! shows their work: as an entry without epoch and owner.
//!
//! | last entry on the metadata topic, without an owner | this worker |
//! |---|---|
//! | PROCESSING, read at most two keep-alive intervals ago | waits |
//! | PROCESSING, older: its worker is gone | claims the next attempt |
//! | FAILED, and attempts are left | claims the next attempt |
//! | COMPLETED | claims, and ends the attempt as shown, without running it |
//! | FAILED without attempts left | the same |
//! | PROCESSING of the last attempt, older | the same |
//! | nothing, or an entry of longhaul | claims as always |
//!
//! - **When**: before a claim, and again between the accepted claim and the start of the processor.
//!   Each time the metadata topic is read up to an end that was requested after the question arose.
//!   An offer to other workers needs no answer: the worker that takes the offer asks.
//! - **After the claim** a PROCESSING that has appeared means that the attempt is given back.
//! - **Tasks known only from the metadata topic** are never claimed: a task without a delivery and
//!   without a ledger entry is left to its worker.

use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::task::{Position, TaskId, TaskState};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which an end of the metadata topic that was not reached is requested again:
/// compaction may have removed the last entry, or the request was lost.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Time after which an unused answer is no longer valid.
const ANSWER_VALID: Duration = Duration::from_secs(60);

/// The last entry of a task on the metadata topic, written by a worker of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LegacyEntry {
    /// PROCESSING, FAILED or COMPLETED: the reference writes no other state. PROCESSING: the task
    /// runs, or its worker has died.
    pub state: TaskState,
    /// Number of attempts so far, including the running one.
    pub attempts: u32,
    /// Position of the entry.
    pub at: Position,
}

/// How a task has ended without this worker: its attempt gets this end and is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LegacyEnd {
    /// Completed, or failed for good: the entry on the metadata topic at this position has the
    /// result or the reason.
    Shown(Position),
    /// The worker of its last attempt is gone.
    NoAttemptLeft,
}

/// The verdict of the metadata topic on a claim or a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LegacyClaimCheck {
    /// Nothing prevents it.
    Free,
    /// A worker seems to run the task; check again at this time.
    RunsUntil(Moment),
    /// The metadata topic has not been read far enough.
    NotRead,
}

/// An attempt with an accepted claim that has not started because the metadata topic is still being
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldStart {
    pub(super) epoch: Epoch,
    pub(super) attempt: u32,
}

/// The state of the mode `legacy`. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Legacy {
    /// How long an entry PROCESSING is valid: twice the keep-alive interval.
    patience: Duration,
    /// Tasks whose last entry on the metadata topic is the reference's, with the time at which it
    /// was read.
    shown: BTreeMap<TaskId, (LegacyEntry, Moment)>,
    read_to: Option<Position>,
    /// When the end of the metadata topic was last requested.
    asked: Option<Moment>,
    /// The end up to which the metadata topic is being read, and when it was requested.
    told: Option<(Moment, Option<Position>)>,
    /// Everything stored on the metadata topic by this time was read.
    seen: Option<Moment>,
    /// Tasks for which the metadata topic must be read further, up to its end as of this time.
    wanted: BTreeMap<TaskId, Moment>,
    pub(super) held: BTreeMap<TaskId, HeldStart>,
}

impl Legacy {
    /// Creates a state in which nothing was read.
    pub(super) fn new(keep_alive: Duration) -> Self {
        Self { patience: keep_alive.saturating_mul(2), ..Self::default() }
    }

    /// Handles an entry of the metadata topic: for this task, if it names one, and by a worker of
    /// the reference, if `entry` is there. Any other entry of the task, or a tombstone, replaces
    /// it.
    pub(super) fn read(
        &mut self,
        at: Position,
        id: Option<TaskId>,
        entry: Option<LegacyEntry>,
        now: Moment,
    ) {
        // A follower that begins again repeats entries, with a later time.
        if self.read_to.is_some_and(|read_to| at <= read_to) {
            return;
        }
        self.read_to = Some(at);
        match (id, entry) {
            (Some(id), Some(entry)) => drop(self.shown.insert(id, (entry, now))),
            (Some(id), None) => drop(self.shown.remove(&id)),
            (None, _) => {}
        }
        self.arrive();
    }

    /// Handles the end of the metadata topic, as of the request at this time.
    pub(super) fn told(&mut self, asked: Moment, end: Option<Position>) {
        if self.told.is_none_or(|(_, before)| end < before) {
            self.told = Some((asked, end));
        }
        self.arrive();
    }

    fn arrive(&mut self) {
        if let Some((asked, _)) = self.told.take_if(|(_, end)| *end <= self.read_to) {
            self.seen = self.seen.max(Some(asked));
        }
    }

    /// The tasks that no longer have to wait for the metadata topic to be read.
    pub(super) fn answered(&self) -> Vec<TaskId> {
        let Some(seen) = self.seen else { return Vec::new() };
        let answered = self.wanted.iter().filter(|(_, since)| **since <= seen);
        answered.map(|(id, _)| *id).collect()
    }

    /// Whether to request the end of the metadata topic now.
    pub(super) fn ask(&mut self, now: Moment) -> bool {
        let patient = self.asked > self.seen
            && self.asked.is_some_and(|asked| now.since(asked) < ASK_AGAIN_AFTER);
        if patient || !self.is_asked() {
            return false;
        }
        self.asked = Some(now);
        true
    }

    /// Whether a question is unanswered.
    fn is_asked(&self) -> bool {
        self.wanted.values().any(|since| Some(*since) > self.seen)
    }

    /// The verdict of the metadata topic on a claim of the task, or on the start of an attempt.
    pub(super) fn check(&self, id: TaskId, now: Moment) -> LegacyClaimCheck {
        let is_read = |seen: &Moment| *seen >= self.asked_since(id, now);
        if !self.seen.as_ref().is_some_and(is_read) {
            return LegacyClaimCheck::NotRead;
        }
        match self.shown.get(&id) {
            Some((LegacyEntry { state: TaskState::Processing, .. }, read))
                if now.since(*read) <= self.patience =>
            {
                LegacyClaimCheck::RunsUntil(*read + self.patience + Duration::from_millis(1))
            }
            _ => LegacyClaimCheck::Free,
        }
    }

    /// Since when the task's question is asked; an answer that is too old counts for nothing.
    fn asked_since(&self, id: TaskId, now: Moment) -> Moment {
        let since = self.wanted.get(&id).copied().unwrap_or(now);
        let is_too_old = |seen: Moment| seen >= since && now.since(seen) > ANSWER_VALID;
        if self.seen.is_some_and(is_too_old) { now } else { since }
    }

    /// Asks, or uses up the answer.
    pub(super) fn record(&mut self, id: TaskId, check: LegacyClaimCheck, now: Moment) {
        match check {
            LegacyClaimCheck::NotRead => {
                let since = self.asked_since(id, now);
                self.wanted.insert(id, since);
            }
            LegacyClaimCheck::Free | LegacyClaimCheck::RunsUntil(_) => self.use_up(id),
        }
    }

    /// Uses up the answer: the next claim asks again.
    pub(super) fn use_up(&mut self, id: TaskId) {
        self.wanted.remove(&id);
    }

    /// The verdict, which is asked for or used up.
    pub(super) fn answer(&mut self, id: TaskId, now: Moment) -> LegacyClaimCheck {
        let check = self.check(id, now);
        self.record(id, check, now);
        check
    }

    /// Forgets a task that is over or about which nothing here asks any more.
    pub(super) fn forget(&mut self, id: TaskId) {
        self.wanted.remove(&id);
        self.held.remove(&id);
    }

    /// The attempt number to claim, given the one that the ledger alone calls for and the maximum.
    pub(super) fn attempt(&self, id: TaskId, attempt: u32, max_attempts: u32) -> u32 {
        let Some((entry, _)) = self.shown.get(&id) else { return attempt };
        let next = if entry.state == TaskState::Completed {
            entry.attempts
        } else {
            entry.attempts.saturating_add(1)
        };
        attempt.max(next.min(max_attempts))
    }

    /// The end of the task, which has `max_attempts`, as the metadata topic shows it, if it has
    /// ended.
    pub(super) fn end(&self, id: TaskId, max_attempts: u32) -> Option<LegacyEnd> {
        let (entry, _) = self.shown.get(&id)?;
        let used_up = entry.attempts >= max_attempts;
        match entry.state {
            TaskState::Completed => Some(LegacyEnd::Shown(entry.at)),
            TaskState::Failed if used_up => Some(LegacyEnd::Shown(entry.at)),
            TaskState::Processing if used_up => Some(LegacyEnd::NoAttemptLeft),
            TaskState::New | TaskState::Processing | TaskState::Failed | TaskState::Unknown => None,
        }
    }

    /// When to check again, if nothing happens: a request may be lost.
    pub(super) fn timeout(&self) -> Option<Moment> {
        self.asked.filter(|_| self.is_asked()).map(|asked| asked + ASK_AGAIN_AFTER)
    }

    /// Clears the questions when the ledger is read again from its start; they are asked again.
    pub(super) fn fence(&mut self) -> Vec<(TaskId, HeldStart)> {
        self.wanted.clear();
        std::mem::take(&mut self.held).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };
    const KEEP_ALIVE: Duration = Duration::from_secs(300);

    const fn at(entry: u64) -> Position {
        Position { ledger: 7, entry, batch_index: None }
    }

    fn seconds(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn entry(state: TaskState, attempts: u32) -> LegacyEntry {
        LegacyEntry { state, attempts, at: at(1) }
    }

    /// The metadata topic, read to its end at ten seconds, with this entry as its last.
    fn with(entry: Option<LegacyEntry>) -> Legacy {
        let mut legacy = Legacy::new(KEEP_ALIVE);
        legacy.read(at(1), Some(ID), entry, seconds(9));
        legacy
    }

    /// The answer when everything was read up to now.
    fn answer(legacy: &mut Legacy, now: Moment) -> LegacyClaimCheck {
        assert_eq!(legacy.answer(ID, now), LegacyClaimCheck::NotRead);
        assert!(legacy.ask(now) && !legacy.ask(now), "one question at a time");
        legacy.told(now, Some(at(1)));
        assert_eq!(legacy.answered(), [ID]);
        legacy.answer(ID, now)
    }

    #[test]
    fn what_runs_elsewhere_is_left_alone_for_two_keep_alives() {
        let running = entry(TaskState::Processing, 1);
        assert_eq!(
            answer(&mut with(Some(running)), seconds(10)),
            LegacyClaimCheck::RunsUntil(seconds(609) + Duration::from_millis(1))
        );
        assert_eq!(
            answer(&mut with(Some(running)), seconds(609)),
            LegacyClaimCheck::RunsUntil(seconds(609) + Duration::from_millis(1)),
            "the reference counts an entry of exactly that age as alive"
        );
        let mut legacy = with(Some(running));
        let gone = seconds(609) + Duration::from_millis(1);
        assert_eq!(answer(&mut legacy, gone), LegacyClaimCheck::Free);
        assert_eq!((legacy.attempt(ID, 1, 3), legacy.end(ID, 3)), (2, None));
    }

    #[test]
    fn what_failed_or_ended_elsewhere_goes_on_from_there() {
        let cases = [
            (entry(TaskState::Failed, 1), 2, None),
            (entry(TaskState::Failed, 3), 3, Some(LegacyEnd::Shown(at(1)))),
            (entry(TaskState::Completed, 2), 2, Some(LegacyEnd::Shown(at(1)))),
            (entry(TaskState::Completed, 7), 3, Some(LegacyEnd::Shown(at(1)))),
        ];
        for (entry, attempt, end) in cases {
            let mut legacy = with(Some(entry));
            assert_eq!(answer(&mut legacy, seconds(10)), LegacyClaimCheck::Free, "{entry:?}");
            assert_eq!((legacy.attempt(ID, 1, 3), legacy.end(ID, 3)), (attempt, end), "{entry:?}");
        }
        let mut legacy = with(Some(entry(TaskState::Processing, 3)));
        assert_eq!(answer(&mut legacy, seconds(1_000)), LegacyClaimCheck::Free);
        assert_eq!(
            (legacy.attempt(ID, 1, 3), legacy.end(ID, 3)),
            (3, Some(LegacyEnd::NoAttemptLeft))
        );
        // A task may have its own maximum of attempts, which Java workers do not know.
        let legacy = with(Some(entry(TaskState::Failed, 1)));
        assert_eq!(
            (legacy.attempt(ID, 1, 1), legacy.end(ID, 1)),
            (1, Some(LegacyEnd::Shown(at(1))))
        );
        // The ledger has more attempts.
        assert_eq!(with(Some(entry(TaskState::Failed, 1))).attempt(ID, 3, 3), 3);
    }

    #[test]
    fn an_entry_of_longhaul_or_a_tombstone_takes_the_place_of_theirs() {
        let mut legacy = with(Some(entry(TaskState::Processing, 2)));
        legacy.read(at(2), Some(ID), None, seconds(10));
        assert_eq!(legacy.answer(ID, seconds(10)), LegacyClaimCheck::NotRead);
        legacy.told(seconds(10), Some(at(2)));
        assert_eq!(legacy.answer(ID, seconds(10)), LegacyClaimCheck::Free);
        assert_eq!((legacy.attempt(ID, 1, 3), legacy.end(ID, 3)), (1, None));
        // A follower that begins again from the start repeats the older one.
        legacy.read(at(1), Some(ID), Some(entry(TaskState::Processing, 2)), seconds(11));
        assert_eq!(legacy.attempt(ID, 1, 3), 1);
    }

    #[test]
    fn every_answer_rests_on_an_end_that_was_asked_for_later() {
        let mut legacy = with(None);
        legacy.told(seconds(9), Some(at(1)));
        assert_eq!(legacy.answer(ID, seconds(10)), LegacyClaimCheck::NotRead, "that was before");
        assert!(legacy.ask(seconds(10)));
        legacy.told(seconds(10), Some(at(3)));
        assert!(legacy.answered().is_empty(), "it is not read to there");
        legacy.read(at(3), None, None, seconds(11));
        assert_eq!(legacy.answered(), [ID]);
        assert_eq!(legacy.answer(ID, seconds(11)), LegacyClaimCheck::Free);
        // Before the start the end is requested once more.
        assert_eq!(legacy.answer(ID, seconds(12)), LegacyClaimCheck::NotRead);
        assert!(legacy.ask(seconds(12)));
    }

    /// Compaction may remove the last entry, and a request is lost with its session.
    #[test]
    fn a_question_without_an_answer_is_asked_again() {
        let mut legacy = with(None);
        legacy.answer(ID, seconds(10));
        assert!(legacy.ask(seconds(10)));
        legacy.told(seconds(10), Some(at(9)));
        assert_eq!(legacy.timeout(), Some(seconds(15)));
        assert!(!legacy.ask(seconds(14)) && legacy.ask(seconds(15)));
        legacy.told(seconds(15), Some(at(1)));
        assert_eq!(legacy.answer(ID, seconds(16)), LegacyClaimCheck::Free);
        assert_eq!(legacy.timeout(), None);
        assert!(!legacy.ask(seconds(60)), "nobody wants to know");
        // An unused answer of an hour ago is requested again.
        legacy.answer(ID, seconds(60));
        assert!(legacy.ask(seconds(60)));
        legacy.told(seconds(60), Some(at(1)));
        assert_eq!(legacy.answer(ID, seconds(3_660)), LegacyClaimCheck::NotRead);
    }
}
