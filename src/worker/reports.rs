//! What a processor reports while it runs, progress and checkpoints, and what it learns of them.
//!
//! The newest report counts. The driver is told that there is one, once until it has used it, and it uses one a second: an attempt that reports
//! without rest is two events a second, and one that reports nothing costs nothing.

use super::driver::Event;
use super::mailbox::Mailbox;
use crate::protocol::key::Epoch;
use crate::task::{Progress, TaskId};
use bytes::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What a processor has given to be kept, and its number, from 1; zero: nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) number: u64,
    pub(crate) bytes: Bytes,
}

/// Whose reports they are, and whom to tell.
pub(crate) struct Reporter {
    pub(super) lane: i32,
    pub(super) id: TaskId,
    pub(super) epoch: Epoch,
    pub(super) driver: Mailbox<Event>,
}

/// The reports of one attempt, between its processor and the driver.
#[derive(Default)]
pub(crate) struct Reports {
    state: Mutex<State>,
    /// Rings when something is stored, and at the end.
    changed: Notify,
    reporter: Option<Reporter>,
}

#[derive(Default)]
struct State {
    progress: Option<Progress>,
    checkpoint: Given,
    /// The number of the last checkpoint that is known to be stored.
    stored: u64,
    news: News,
    /// The attempt is over for its worker.
    over: bool,
}

/// What has been reported and was not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) progress: bool,
    pub(crate) checkpoint: bool,
}

/// The attempt is over for its worker, or the worker has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over;

impl Reports {
    pub(crate) fn new(reporter: Reporter) -> Self {
        Self { reporter: Some(reporter), ..Self::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, report: impl FnOnce(&mut State)) {
        let mut state = self.state();
        let before = state.news;
        report(&mut state);
        let is_news = state.news != before && !state.over;
        drop(state);
        if let Some(Reporter { lane, id, epoch, driver }) = &self.reporter
            && is_news
        {
            driver.put(Event::Reported { lane: *lane, id: *id, epoch: *epoch });
        }
    }

    pub(crate) fn give_progress(&self, progress: Progress) {
        self.report(|state| {
            state.progress = Some(progress);
            state.news.progress = true;
        });
    }

    pub(crate) fn give_checkpoint(&self, bytes: Bytes) {
        self.report(|state| {
            state.checkpoint = Given { number: state.checkpoint.number + 1, bytes };
            state.news.checkpoint = true;
        });
    }

    /// Resolves when the newest checkpoint is stored, or a newer one.
    pub(crate) async fn stored(&self) -> Result<(), Over> {
        let number = self.state().checkpoint.number;
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.stored >= number {
                    return Ok(());
                }
                if state.over {
                    return Err(Over);
                }
            }
            changed.await;
        }
    }

    /// What is new. It stays so until it is taken: the driver is not told of what comes meanwhile.
    pub(crate) fn news(&self) -> News {
        self.state().news
    }

    /// The newest progress. It is no news any more.
    pub(crate) fn take_progress(&self) -> Option<Progress> {
        let mut state = self.state();
        state.news.progress = false;
        state.progress.clone()
    }

    /// The newest checkpoint, unless it is stored. It is no news any more.
    pub(crate) fn take_unstored(&self) -> Option<Given> {
        let mut state = self.state();
        state.news.checkpoint = false;
        (state.checkpoint.number > state.stored).then(|| state.checkpoint.clone())
    }

    /// The checkpoint of this number is stored.
    pub(crate) fn note_stored(&self, number: u64) {
        let mut state = self.state();
        state.stored = state.stored.max(number);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Nobody listens any more.
    pub(crate) fn end(&self) {
        self.state().over = true;
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn reports() -> (Reports, Mailbox<Event>) {
        let driver = Mailbox::new();
        let id = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };
        let reporter = Reporter { lane: -1, id, epoch: Epoch(1), driver: driver.clone() };
        (Reports::new(reporter), driver)
    }

    /// A processor that reported in a loop kept the worker busy with nothing else: each look of the driver made the next report news.
    #[test]
    fn the_driver_is_told_once_until_it_has_used_a_report() {
        let (reports, driver) = reports();
        for done in 0..3 {
            reports.give_progress(Progress { done, ..Progress::default() });
            assert_eq!(reports.news(), News { progress: true, checkpoint: false });
        }
        assert!(matches!(driver.pop(), Some(Event::Reported { lane: -1, epoch: Epoch(1), .. })));
        assert!(driver.pop().is_none());
        reports.give_checkpoint(Bytes::from_static(b"half"));
        reports.give_checkpoint(Bytes::from_static(b"more"));
        assert!(driver.pop().is_some() && driver.pop().is_none(), "one for each kind");
        assert_eq!(reports.take_progress().map(|progress| progress.done), Some(2));
        assert!(reports.take_unstored().is_some());
        assert_eq!(reports.news(), News::default());
        reports.give_progress(Progress::default());
        assert!(driver.pop().is_some());
        reports.end();
        reports.give_checkpoint(Bytes::new());
        assert!(driver.pop().is_none(), "nobody listens");
    }

    #[test]
    fn a_checkpoint_is_unstored_until_it_or_a_later_one_is_stored() {
        let (reports, _driver) = reports();
        assert_eq!(reports.take_unstored(), None);
        assert_eq!(reports.stored().now_or_never(), Some(Ok(())), "nothing was given");
        reports.give_checkpoint(Bytes::from_static(b"1"));
        reports.give_checkpoint(Bytes::from_static(b"2"));
        let newest = Given { number: 2, bytes: Bytes::from_static(b"2") };
        reports.note_stored(1);
        assert_eq!(reports.take_unstored(), Some(newest));
        assert_eq!(reports.stored().now_or_never(), None);
        reports.note_stored(2);
        assert_eq!(reports.stored().now_or_never(), Some(Ok(())));
        // An answer that comes late changes nothing.
        reports.note_stored(1);
        assert_eq!(reports.take_unstored(), None);
        reports.give_checkpoint(Bytes::from_static(b"3"));
        reports.end();
        assert_eq!(reports.stored().now_or_never(), Some(Err(Over)));
    }
}
