//! Workers of the Java reference on the same subscription: what they show on M, and what follows
//! for a claim. Pure. Only in the mode `legacy`; without it no worker reads M before a claim.
//!
//! They neither write nor read the ledger, and run what they get at once. So M is all that tells of
//! them: an entry without epoch and owner.
//!
//! | M shows last, without an owner | this worker |
//! |---|---|
//! | PROCESSING, read no longer ago than twice the keep-alive interval | waits |
//! | PROCESSING, older: its worker is gone | claims the next attempt |
//! | FAILED, and attempts are left | claims the next attempt |
//! | COMPLETED, FAILED without attempts left, PROCESSING of the last attempt, older | claims, and ends the attempt as M shows, without running it |
//! | nothing, or an entry of longhaul | claims as always |
//!
//! - **When**: before a claim, and again between the accepted claim and the start of the processor.
//!   Each time M is read up to an end that was asked for after the question arose. An offer to other
//!   workers needs no answer: whoever takes it asks.
//! - **After the claim** a PROCESSING that has appeared means that the attempt is given back,
//!   without costing an attempt.
//! - **What M alone tells of** is never claimed: a task that no delivery and no entry of the ledger
//!   names is left to its worker.

use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::task::{Position, TaskId, TaskState};
use std::collections::BTreeMap;
use std::time::Duration;

/// An end of M that is not reached after this long is asked for again: compaction may have removed
/// what stood there, or the question was lost.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// An answer that nobody has asked about for so long says nothing any more.
const ANSWER_VALID: Duration = Duration::from_secs(60);

/// The last entry of a task on M, written by a worker of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LegacyEntry {
    /// Where the task stands.
    pub state: LegacyState,
    /// Attempts so far, the running one included.
    pub attempts: u32,
    /// Where the entry lies.
    pub at: Position,
}

/// The states that the reference writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LegacyState {
    /// It runs, or its worker has died.
    Processing,
    /// An attempt has failed.
    Failed,
    /// It has its result.
    Completed,
}

impl LegacyState {
    /// The state of an entry; `None` for those that are never written.
    #[must_use]
    pub const fn of(state: TaskState) -> Option<Self> {
        match state {
            TaskState::Processing => Some(Self::Processing),
            TaskState::Failed => Some(Self::Failed),
            TaskState::Completed => Some(Self::Completed),
            TaskState::New | TaskState::Unknown => None,
        }
    }
}

/// How a task has ended without this worker: its attempt ends like this and is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LegacyEnd {
    /// Completed, or failed for good: the entry on M at this place has the result or the reason.
    Shown(Position),
    /// The worker of its last attempt is gone.
    NoAttemptLeft,
}

/// What M says to a claim or a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LegacyClaimCheck {
    /// Nothing against it.
    Free,
    /// Somebody runs the task, as far as can be told until then.
    RunsUntil(Moment),
    /// M is not read so far yet.
    NotRead,
}

/// An attempt whose claim was accepted, and that has not started because M is still being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldStart {
    pub(super) epoch: Epoch,
    pub(super) attempt: u32,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Legacy {
    /// How long an entry PROCESSING counts: twice the keep-alive interval.
    patience: Duration,
    /// Tasks whose last entry on M is of the reference, with the time at which it was read.
    shown: BTreeMap<TaskId, (LegacyEntry, Moment)>,
    read_to: Option<Position>,
    /// When it was asked last where M ends.
    asked: Option<Moment>,
    /// The end that is being read up to, and when it was asked for.
    told: Option<(Moment, Option<Position>)>,
    /// All that stood on M at this time was read.
    seen: Option<Moment>,
    /// Tasks for which M must be read on, and up to what stood there at which time.
    wanted: BTreeMap<TaskId, Moment>,
    pub(super) held: BTreeMap<TaskId, HeldStart>,
}

impl Legacy {
    /// Nothing was read.
    pub(super) const fn new(keep_alive: Duration) -> Self {
        Self {
            patience: keep_alive.saturating_mul(2),
            shown: BTreeMap::new(),
            read_to: None,
            asked: None,
            told: None,
            seen: None,
            wanted: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// An entry of M was read: of this task, if it names one, and by a worker of the reference, if
    /// there is an entry. Anything else about the task, a tombstone too, takes its place.
    pub(super) fn read(
        &mut self,
        at: Position,
        id: Option<TaskId>,
        entry: Option<LegacyEntry>,
        now: Moment,
    ) {
        // A follower that begins again shows what was read, with another time.
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

    /// M ends here, as was asked at this time.
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

    /// The tasks that have waited for M to be read on and need not any more.
    pub(super) fn answered(&self) -> Vec<TaskId> {
        let Some(seen) = self.seen else { return Vec::new() };
        let answered = self.wanted.iter().filter(|(_, since)| **since <= seen);
        answered.map(|(id, _)| *id).collect()
    }

    /// Whether to ask now where M ends.
    pub(super) fn ask(&mut self, now: Moment) -> bool {
        let patient = self.asked > self.seen
            && self.asked.is_some_and(|asked| now.since(asked) < ASK_AGAIN_AFTER);
        if patient || !self.is_asked() {
            return false;
        }
        self.asked = Some(now);
        true
    }

    /// Whether a question has no answer yet.
    fn is_asked(&self) -> bool {
        self.wanted.values().any(|since| Some(*since) > self.seen)
    }

    /// What M says to a claim of the task, or to the start of an attempt.
    pub(super) fn answer(&mut self, id: TaskId, now: Moment) -> LegacyClaimCheck {
        let since = self.wanted.entry(id).or_insert(now);
        if self.seen.is_some_and(|seen| seen >= *since && now.since(seen) > ANSWER_VALID) {
            *since = now;
        }
        let since = *since;
        if self.seen.is_none_or(|seen| seen < since) {
            return LegacyClaimCheck::NotRead;
        }
        self.wanted.remove(&id);
        match self.shown.get(&id) {
            Some((LegacyEntry { state: LegacyState::Processing, .. }, read))
                if now.since(*read) <= self.patience =>
            {
                LegacyClaimCheck::RunsUntil(*read + self.patience + Duration::from_millis(1))
            }
            _ => LegacyClaimCheck::Free,
        }
    }

    /// The task is over, or nobody here asks about it any more.
    pub(super) fn forget(&mut self, id: TaskId) {
        self.wanted.remove(&id);
        self.held.remove(&id);
    }

    /// The attempt to claim, where the ledger alone calls for this one, of a task that has so many.
    pub(super) fn attempt(&self, id: TaskId, attempt: u32, max_attempts: u32) -> u32 {
        let Some((entry, _)) = self.shown.get(&id) else { return attempt };
        let next = match entry.state {
            LegacyState::Completed => entry.attempts,
            LegacyState::Processing | LegacyState::Failed => entry.attempts.saturating_add(1),
        };
        attempt.max(next.min(max_attempts))
    }

    /// How the task, which has so many attempts, has ended as M shows it, if it has.
    pub(super) fn end(&self, id: TaskId, max_attempts: u32) -> Option<LegacyEnd> {
        let (entry, _) = self.shown.get(&id)?;
        let used_up = entry.attempts >= max_attempts;
        match entry.state {
            LegacyState::Completed => Some(LegacyEnd::Shown(entry.at)),
            LegacyState::Failed if used_up => Some(LegacyEnd::Shown(entry.at)),
            LegacyState::Processing if used_up => Some(LegacyEnd::NoAttemptLeft),
            LegacyState::Processing | LegacyState::Failed => None,
        }
    }

    /// When to look at it again, if nothing happens: a question may be lost.
    pub(super) fn timeout(&self) -> Option<Moment> {
        self.asked.filter(|_| self.is_asked()).map(|asked| asked + ASK_AGAIN_AFTER)
    }

    /// The ledger is read again from its start: what waited for an answer asks again.
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

    fn entry(state: LegacyState, attempts: u32) -> LegacyEntry {
        LegacyEntry { state, attempts, at: at(1) }
    }

    /// M was read to its end at ten seconds, with this entry as its last.
    fn with(entry: Option<LegacyEntry>) -> Legacy {
        let mut legacy = Legacy::new(KEEP_ALIVE);
        legacy.read(at(1), Some(ID), entry, seconds(9));
        legacy
    }

    /// The answer when all was read up to now.
    fn answer(legacy: &mut Legacy, now: Moment) -> LegacyClaimCheck {
        assert_eq!(legacy.answer(ID, now), LegacyClaimCheck::NotRead);
        assert!(legacy.ask(now) && !legacy.ask(now), "one question at a time");
        legacy.told(now, Some(at(1)));
        assert_eq!(legacy.answered(), [ID]);
        legacy.answer(ID, now)
    }

    #[test]
    fn what_runs_elsewhere_is_left_alone_for_two_keep_alives() {
        let running = entry(LegacyState::Processing, 1);
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
            (entry(LegacyState::Failed, 1), 2, None),
            (entry(LegacyState::Failed, 3), 3, Some(LegacyEnd::Shown(at(1)))),
            (entry(LegacyState::Completed, 2), 2, Some(LegacyEnd::Shown(at(1)))),
            (entry(LegacyState::Completed, 7), 3, Some(LegacyEnd::Shown(at(1)))),
        ];
        for (entry, attempt, end) in cases {
            let mut legacy = with(Some(entry));
            assert_eq!(answer(&mut legacy, seconds(10)), LegacyClaimCheck::Free, "{entry:?}");
            assert_eq!((legacy.attempt(ID, 1, 3), legacy.end(ID, 3)), (attempt, end), "{entry:?}");
        }
        let mut legacy = with(Some(entry(LegacyState::Processing, 3)));
        assert_eq!(answer(&mut legacy, seconds(1_000)), LegacyClaimCheck::Free);
        assert_eq!(
            (legacy.attempt(ID, 1, 3), legacy.end(ID, 3)),
            (3, Some(LegacyEnd::NoAttemptLeft))
        );
        // A task may have a number of its own, which Java workers do not know.
        let legacy = with(Some(entry(LegacyState::Failed, 1)));
        assert_eq!(
            (legacy.attempt(ID, 1, 1), legacy.end(ID, 1)),
            (1, Some(LegacyEnd::Shown(at(1))))
        );
        // The ledger knows of more attempts.
        assert_eq!(with(Some(entry(LegacyState::Failed, 1))).attempt(ID, 3, 3), 3);
    }

    #[test]
    fn an_entry_of_longhaul_or_a_tombstone_takes_the_place_of_theirs() {
        let mut legacy = with(Some(entry(LegacyState::Processing, 2)));
        legacy.read(at(2), Some(ID), None, seconds(10));
        assert_eq!(legacy.answer(ID, seconds(10)), LegacyClaimCheck::NotRead);
        legacy.told(seconds(10), Some(at(2)));
        assert_eq!(legacy.answer(ID, seconds(10)), LegacyClaimCheck::Free);
        assert_eq!((legacy.attempt(ID, 1, 3), legacy.end(ID, 3)), (1, None));
        // A follower that begins again from the start brings the older one once more.
        legacy.read(at(1), Some(ID), Some(entry(LegacyState::Processing, 2)), seconds(11));
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
        // Before the start it is asked once more.
        assert_eq!(legacy.answer(ID, seconds(12)), LegacyClaimCheck::NotRead);
        assert!(legacy.ask(seconds(12)));
    }

    /// Compaction may remove what stood at the end, and a question is lost with a session.
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
        // What was answered for nothing an hour ago is asked again.
        legacy.answer(ID, seconds(60));
        assert!(legacy.ask(seconds(60)));
        legacy.told(seconds(60), Some(at(1)));
        assert_eq!(legacy.answer(ID, seconds(3_660)), LegacyClaimCheck::NotRead);
    }
}
