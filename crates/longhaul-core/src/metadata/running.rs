//! Shows on the metadata topic that attempts run: when they start, at every keep-alive, and when
//! they have progress to report.
//!
//! Invariants:
//! - Nothing walks the running attempts: an agenda gives the next one, and a report of progress
//!   comes as an event.
//! - At most one entry of an attempt is in flight. Reports that come meanwhile are shown once,
//!   after its receipt.
//! - After every look at an attempt its next time lies ahead, or its receipt or its end is awaited.

use crate::agenda::Agenda;
use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum interval between published progress reports of a task.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Each entry carries the payload, so a large one is published less often.
const PROGRESS_BYTES_PER_SECOND: usize = 64 * 1024;

/// Interval between progress reports with a payload of this size.
fn progress_every(payload_bytes: usize) -> Duration {
    let seconds = payload_bytes / PROGRESS_BYTES_PER_SECOND;
    PROGRESS_EVERY.max(Duration::from_secs(u64::try_from(seconds).unwrap_or(1)))
}

/// The running attempts, by task and epoch.
#[derive(Clone, Debug)]
pub struct ShownAttempts {
    keep_alive: Duration,
    attempts: BTreeMap<(TaskId, Epoch), ShownAttempt>,
    renewals: Agenda<(TaskId, Epoch)>,
}

#[derive(Clone, Copy, Debug)]
struct ShownAttempt {
    /// Size of the payload in its entries.
    bytes: usize,
    /// When its entry was last written.
    shown_at: Moment,
    /// Whether that entry is in flight.
    underway: bool,
    /// Whether the next entry became due meanwhile.
    missed: bool,
}

impl ShownAttempts {
    pub(super) fn new(keep_alive: Duration) -> Self {
        Self { keep_alive, attempts: BTreeMap::new(), renewals: Agenda::default() }
    }

    /// Adds an attempt that has started; it is shown at once. Its entries carry a payload of this
    /// size.
    pub fn started(&mut self, of: (TaskId, Epoch), bytes: usize, now: Moment) {
        let attempt = ShownAttempt { bytes, shown_at: now, underway: false, missed: false };
        self.attempts.insert(of, attempt);
        self.renewals.set(of, now);
    }

    /// Removes an attempt that has ended.
    pub fn ended(&mut self, of: (TaskId, Epoch)) {
        self.attempts.remove(&of);
        self.renewals.remove(of);
    }

    /// The next attempt to show. Call [`ShownAttempts::published`] or [`ShownAttempts::put_off`]
    /// next.
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

    /// Notes that its entry is in flight. Returns whether it is a keep-alive, because the entry
    /// before is that old.
    pub fn published(&mut self, of: (TaskId, Epoch), now: Moment) -> bool {
        let Some(attempt) = self.attempts.get_mut(&of) else { return false };
        let is_keep_alive = now.since(attempt.shown_at) >= self.keep_alive;
        (attempt.shown_at, attempt.underway) = (now, true);
        self.renewals.set(of, now + self.keep_alive);
        is_keep_alive
    }

    /// Puts an attempt off: the ledger is being read again and will show whether it still belongs
    /// to this worker.
    pub fn put_off(&mut self, of: (TaskId, Epoch), now: Moment) {
        self.renewals.set(of, now + PROGRESS_EVERY);
    }

    /// Shows an attempt again as soon as the interval allows it: there is a new report, or the last
    /// entry may be lost.
    pub fn show_again(&mut self, of: (TaskId, Epoch)) {
        match self.attempts.get_mut(&of) {
            Some(attempt) if attempt.underway => attempt.missed = true,
            Some(attempt) => {
                self.renewals.set_by(of, attempt.shown_at + progress_every(attempt.bytes));
            }
            None => {}
        }
    }

    /// Handles the result of its entry: stored, or possibly not. The next one may follow.
    pub fn answered(&mut self, of: (TaskId, Epoch), stored: bool) {
        let Some(attempt) = self.attempts.get_mut(&of) else { return };
        attempt.underway = false;
        if std::mem::take(&mut attempt.missed) || !stored {
            self.show_again(of);
        }
    }

    /// When the next attempt is due.
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

    /// An attempt with this payload, shown when it started.
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

    /// Earlier, a lost entry left the task without one until the next keep-alive.
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

    /// Earlier, no test failed when an ended attempt was shown again at its next keep-alive, or
    /// with its last progress.
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
