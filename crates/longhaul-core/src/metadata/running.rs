//! Shows on M that attempts run: when they start, at every keep-alive, and when they have progress
//! to report.
//!
//! Invariants:
//! - Nothing walks the running attempts: an agenda says which one is next, and a report of progress
//!   comes as an event.
//! - Of an attempt at most one entry is on its way. What comes meanwhile is shown once, after its
//!   receipt.
//! - After every look at an attempt its next time lies ahead, or its receipt or its end is waited
//!   for.

use crate::agenda::Agenda;
use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::collections::BTreeMap;
use std::time::Duration;

/// At most one report of progress per task is published in this time.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Each entry carries the payload: a large one is published less often.
const PROGRESS_BYTES_PER_SECOND: usize = 64 * 1024;

/// How often progress is shown, where the entry carries a payload of this size.
fn progress_every(payload_bytes: usize) -> Duration {
    let seconds = payload_bytes / PROGRESS_BYTES_PER_SECOND;
    PROGRESS_EVERY.max(Duration::from_secs(u64::try_from(seconds).unwrap_or(1)))
}

/// The attempts that run, by task and epoch.
#[derive(Clone, Debug)]
pub struct ShownAttempts {
    keep_alive: Duration,
    attempts: BTreeMap<(TaskId, Epoch), ShownAttempt>,
    renewals: Agenda<(TaskId, Epoch)>,
}

#[derive(Clone, Copy, Debug)]
struct ShownAttempt {
    /// Of the payload that its entries carry.
    bytes: usize,
    /// When its entry was written last.
    shown_at: Moment,
    /// That entry is on its way.
    underway: bool,
    /// Meanwhile it was time for the next one.
    missed: bool,
}

impl ShownAttempts {
    pub(super) fn new(keep_alive: Duration) -> Self {
        Self { keep_alive, attempts: BTreeMap::new(), renewals: Agenda::default() }
    }

    /// An attempt has started: it is shown at once. Its entries carry a payload of so many bytes.
    pub fn started(&mut self, of: (TaskId, Epoch), bytes: usize, now: Moment) {
        let attempt = ShownAttempt { bytes, shown_at: now, underway: false, missed: false };
        self.attempts.insert(of, attempt);
        self.renewals.set(of, now);
    }

    /// An attempt has ended.
    pub fn ended(&mut self, of: (TaskId, Epoch)) {
        self.attempts.remove(&of);
        self.renewals.remove(of);
    }

    /// An attempt that is to be shown now. Say [`ShownAttempts::published`] or
    /// [`ShownAttempts::put_off`].
    pub fn poll(&mut self, now: Moment) -> Option<(TaskId, Epoch)> {
        while let Some(of) = self.renewals.pop_due(now) {
            match self.attempts.get_mut(&of) {
                Some(attempt) if attempt.underway => attempt.missed = true,
                Some(_) => return Some(of),
                None => {}
            }
        }
        None
    }

    /// Its entry is on its way. Returns whether it is a keep-alive: the entry before is so old.
    pub fn published(&mut self, of: (TaskId, Epoch), now: Moment) -> bool {
        let Some(attempt) = self.attempts.get_mut(&of) else { return false };
        let is_keep_alive = now.since(attempt.shown_at) >= self.keep_alive;
        (attempt.shown_at, attempt.underway) = (now, true);
        self.renewals.set(of, now + self.keep_alive);
        is_keep_alive
    }

    /// Nobody knows yet whether the attempt is this worker's: the ledger is being read again.
    pub fn put_off(&mut self, of: (TaskId, Epoch), now: Moment) {
        self.renewals.set(of, now + PROGRESS_EVERY);
    }

    /// It has something new to show, or what was shown may be lost: it is shown again as soon as it
    /// may be.
    pub fn show_again(&mut self, of: (TaskId, Epoch)) {
        match self.attempts.get_mut(&of) {
            Some(attempt) if attempt.underway => attempt.missed = true,
            Some(attempt) => {
                self.renewals.set_by(of, attempt.shown_at + progress_every(attempt.bytes));
            }
            None => {}
        }
    }

    /// Its entry is on M (`stored`), or may not be there. The next one may follow.
    pub fn answered(&mut self, of: (TaskId, Epoch), stored: bool) {
        let Some(attempt) = self.attempts.get_mut(&of) else { return };
        attempt.underway = false;
        if std::mem::take(&mut attempt.missed) || !stored {
            self.show_again(of);
        }
    }

    /// When to look for the next one.
    pub fn next(&self) -> Option<Moment> {
        self.renewals.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };
    const OF: (TaskId, Epoch) = (ID, Epoch(1));

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    /// An attempt of this payload, shown when it started.
    fn shown(bytes: usize) -> ShownAttempts {
        let mut running = ShownAttempts::new(Duration::from_secs(300));
        running.started(OF, bytes, at(0));
        assert_eq!(running.poll(at(0)), Some(OF));
        assert!(!running.published(OF, at(0)));
        running
    }

    #[test]
    fn an_attempt_is_shown_when_it_starts_and_at_every_keep_alive_until_it_ends() {
        let mut running = shown(9);
        running.answered(OF, true);
        assert_eq!((running.poll(at(299)), running.next()), (None, Some(at(300))));
        assert_eq!(running.poll(at(300)), Some(OF));
        assert!(running.published(OF, at(300)));
        running.ended(OF);
        assert_eq!((running.poll(at(1_000)), running.next()), (None, None));
    }

    #[test]
    fn progress_is_shown_once_a_second_and_a_large_payload_less_often() {
        for (bytes, due) in [(9, 1), (10 * 64 * 1024, 10)] {
            let mut running = shown(bytes);
            running.answered(OF, true);
            running.show_again(OF);
            running.show_again(OF);
            assert_eq!(running.next(), Some(at(due)), "{bytes}");
        }
    }

    #[test]
    fn what_comes_while_an_entry_is_on_its_way_is_shown_once_after_its_receipt() {
        let mut running = shown(9);
        running.show_again(OF);
        assert_eq!(running.poll(at(10)), None);
        running.answered(OF, true);
        assert_eq!(running.poll(at(10)), Some(OF));
        assert!(!running.published(OF, at(10)), "progress is no keep-alive");
        running.answered(OF, true);
        assert_eq!(running.poll(at(100)), None);
    }

    /// An entry that was lost left the task without one until the next keep-alive.
    #[test]
    fn an_entry_that_may_be_lost_is_followed_by_another_one() {
        let mut running = shown(9);
        running.answered(OF, false);
        assert_eq!(running.next(), Some(at(1)));
    }

    #[test]
    fn what_nobody_knows_yet_is_looked_at_again() {
        let mut running = ShownAttempts::new(Duration::from_secs(300));
        running.started(OF, 9, at(0));
        assert_eq!(running.poll(at(0)), Some(OF));
        running.put_off(OF, at(0));
        assert_eq!(running.poll(at(1)), Some(OF));
    }

    /// No test noticed when an attempt that had ended was shown again at its next keep-alive, or
    /// with the progress that it had reported last.
    #[test]
    fn what_has_ended_is_not_shown_again() {
        let mut running = shown(9);
        running.answered(OF, true);
        running.ended(OF);
        assert_eq!((running.poll(at(1_000)), running.next()), (None, None));
        running.show_again(OF);
        assert_eq!(running.next(), None);
    }
}
