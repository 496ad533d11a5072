//! Reports of a running processor (progress, log lines and checkpoints), and their results.
//!
//! The newest report counts; of log lines, the newest few. The driver is notified once until it has
//! used a report, and it uses one per second: an attempt that reports without rest costs two events
//! per second, and one without reports costs nothing.

use super::budget::Deadline;
use super::driver::LaneId;
use super::driver::WorkerEvent;
use super::mailbox::Mailbox;
use crate::clock::Clock;
use bytes::Bytes;
use futures::future::pending;
use longhaul_core::metadata::entry::ProgressReport;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{LogLines, Progress, TaskId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A processor's checkpoint with its number, from 1; zero: none yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NumberedCheckpoint {
    pub(crate) number: u64,
    pub(crate) bytes: Bytes,
}

/// The receiver of notifications about reports.
pub(super) enum ReportListener {
    /// The driver of a worker, which learns that this attempt has a new report.
    Driver { lane: LaneId, id: TaskId, epoch: Epoch, driver: Mailbox<WorkerEvent> },
    /// The unit test of a processor, which gets each report.
    Test(Arc<Recording>),
}

/// All reports to the contexts of a unit test.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) progress: Mutex<Vec<Progress>>,
    pub(super) checkpoints: Mutex<Vec<Bytes>>,
    pub(super) lines: Mutex<Vec<String>>,
    /// Timers that cancel contexts whose budget is used up, while there are any.
    pub(super) timers: Mutex<JoinSet<()>>,
}

/// Locks data that is held only for single steps.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reports of one attempt, between its processor and the driver.
#[derive(Default)]
pub(crate) struct AttemptReports {
    state: Mutex<ReportState>,
    /// Notifies when a checkpoint is stored, at a kill, and at the end.
    changed: Notify,
    listener: Option<ReportListener>,
    /// For an attempt with a limit on silence: the limit, and the time of its last report.
    watched: Option<(SilenceLimit, Mutex<Moment>)>,
}

/// How long an attempt may make no report.
#[derive(Clone, Copy, Debug)]
pub(super) struct SilenceLimit {
    pub(super) clock: Clock,
    pub(super) limit: Duration,
    /// See [`Deadline::Clock`].
    pub(super) look_every: Duration,
}

#[derive(Default)]
struct ReportState {
    shown: ProgressReport,
    checkpoint: NumberedCheckpoint,
    /// The number of the last checkpoint known to be stored.
    stored: u64,
    news: PendingReports,
    /// Whether the attempt is over for its worker.
    over: bool,
    /// Whether its end does not wait for its processor.
    killed: bool,
}

/// Unused reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingReports {
    /// Whether there are new progress or log lines.
    pub(crate) shown: bool,
    pub(crate) checkpoint: bool,
}

/// The attempt is over for its worker, or the worker has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptClosed;

impl AttemptReports {
    pub(super) fn new(listener: ReportListener) -> Self {
        Self { listener: Some(listener), ..Self::default() }
    }

    /// Adds a limit on silence, which counts from now.
    pub(super) fn watched(self, silence: Option<SilenceLimit>) -> Self {
        let watched = silence.map(|silence| (silence, Mutex::new(silence.clock.now())));
        Self { watched, ..self }
    }

    /// Resolves when the attempt has been silent for longer than its limit; never without a limit.
    pub(super) async fn silent_for_too_long(&self) {
        let Some((SilenceLimit { clock, limit, look_every }, heard)) = &self.watched else {
            return pending().await;
        };
        loop {
            let at = *lock(heard) + *limit;
            let deadline = Deadline::Clock { clock: *clock, at, look_every: *look_every };
            if deadline.remaining().is_zero() {
                return;
            }
            deadline.wait().await;
        }
    }

    pub(super) const fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    fn record_heard(&self) {
        if let Some((silence, heard)) = &self.watched {
            *lock(heard) = silence.clock.now();
        }
    }

    fn state(&self) -> MutexGuard<'_, ReportState> {
        lock(&self.state)
    }

    fn report(&self, report: impl FnOnce(&mut ReportState)) {
        self.record_heard();
        let mut state = self.state();
        let before = state.news;
        report(&mut state);
        let is_news = state.news != before && !state.over;
        drop(state);
        if let Some(ReportListener::Driver { lane, id, epoch, driver }) = &self.listener
            && is_news
        {
            driver.put(WorkerEvent::Reported { lane: *lane, id: *id, epoch: *epoch });
        }
    }

    pub(crate) fn give_progress(&self, progress: Progress) {
        if let Some(ReportListener::Test(recording)) = &self.listener {
            lock(&recording.progress).push(progress);
            return;
        }
        self.report(|state| {
            state.shown.progress = Some(progress);
            state.news.shown = true;
        });
    }

    pub(crate) fn give_line(&self, line: String) {
        if let Some(ReportListener::Test(recording)) = &self.listener {
            lock(&recording.lines).push(LogLines::cut(line));
            return;
        }
        self.report(|state| {
            state.shown.log.push(line);
            state.news.shown = true;
        });
    }

    /// In a unit test it is stored at once.
    pub(crate) fn give_checkpoint(&self, bytes: Bytes) {
        if let Some(ReportListener::Test(recording)) = &self.listener {
            lock(&recording.checkpoints).push(bytes);
            return;
        }
        self.report(|state| {
            state.checkpoint = NumberedCheckpoint { number: state.checkpoint.number + 1, bytes };
            state.news.checkpoint = true;
        });
    }

    /// Resolves when the newest checkpoint, or a newer one, is stored.
    pub(crate) async fn stored(&self) -> Result<(), AttemptClosed> {
        let number = self.state().checkpoint.number;
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.stored >= number {
                    return Ok(());
                }
                if state.over {
                    return Err(AttemptClosed);
                }
            }
            changed.await;
        }
    }

    /// The unused reports. They stay so until they are taken: the driver gets no further
    /// notification meanwhile.
    pub(crate) fn news(&self) -> PendingReports {
        self.state().news
    }

    /// Takes the newest progress and log lines.
    pub(crate) fn take_shown(&self) -> ProgressReport {
        let mut state = self.state();
        state.news.shown = false;
        state.shown.clone()
    }

    /// The log lines.
    pub(crate) fn log(&self) -> LogLines {
        self.state().shown.log.clone()
    }

    /// Makes the end of the attempt not wait for its processor from now on.
    pub(crate) fn kill(&self) {
        self.state().killed = true;
        self.changed.notify_waiters();
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.state().killed
    }

    /// Resolves at a [`kill`](Self::kill).
    pub(crate) async fn killed(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_killed() {
                return;
            }
            changed.await;
        }
    }

    /// Takes the newest checkpoint, unless it is stored.
    pub(crate) fn take_unstored(&self) -> Option<NumberedCheckpoint> {
        let mut state = self.state();
        state.news.checkpoint = false;
        (state.checkpoint.number > state.stored).then(|| state.checkpoint.clone())
    }

    /// Notes that the checkpoint with this number is stored.
    pub(crate) fn record_stored(&self, number: u64) {
        let mut state = self.state();
        state.stored = state.stored.max(number);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Notes that the attempt is over for its worker.
    pub(crate) fn end(&self) {
        self.state().over = true;
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn reports() -> (AttemptReports, Mailbox<WorkerEvent>) {
        let driver = Mailbox::new();
        let id = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };
        let listener = ReportListener::Driver {
            lane: LaneId::default(),
            id,
            epoch: Epoch(1),
            driver: driver.clone(),
        };
        (AttemptReports::new(listener), driver)
    }

    /// Earlier, a processor that reported in a loop kept the worker busy with nothing else: each
    /// look of the driver made the next report a new one.
    #[test]
    fn the_driver_is_told_once_until_it_has_used_a_report() {
        let (reports, driver) = reports();
        for done in 0..3 {
            reports.give_progress(Progress { done, ..Progress::default() });
            assert_eq!(reports.news(), PendingReports { shown: true, checkpoint: false });
        }
        assert!(matches!(driver.pop(), Some(WorkerEvent::Reported { epoch: Epoch(1), .. })));
        assert!(driver.pop().is_none());
        reports.give_checkpoint(Bytes::from_static(b"half"));
        reports.give_checkpoint(Bytes::from_static(b"more"));
        assert!(driver.pop().is_some() && driver.pop().is_none(), "one for each kind");
        assert_eq!(reports.take_shown().progress.map(|progress| progress.done), Some(2));
        assert!(reports.take_unstored().is_some());
        assert_eq!(reports.news(), PendingReports::default());
        reports.give_progress(Progress::default());
        assert!(driver.pop().is_some());
        reports.end();
        reports.give_checkpoint(Bytes::new());
        assert!(driver.pop().is_none(), "nobody listens");
    }

    #[test]
    fn a_kill_is_heard_before_and_after_somebody_listens() {
        let (reports, _driver) = reports();
        let mut killed = Box::pin(reports.killed());
        assert_eq!((&mut killed).now_or_never(), None);
        reports.record_stored(1);
        assert_eq!((&mut killed).now_or_never(), None);
        reports.kill();
        assert_eq!(killed.now_or_never(), Some(()));
        assert_eq!((reports.killed().now_or_never(), reports.is_killed()), (Some(()), true));
    }

    #[test]
    fn a_checkpoint_is_unstored_until_it_or_a_later_one_is_stored() {
        let (reports, _driver) = reports();
        assert_eq!(reports.take_unstored(), None);
        assert_eq!(reports.stored().now_or_never(), Some(Ok(())), "nothing was given");
        reports.give_checkpoint(Bytes::from_static(b"1"));
        reports.give_checkpoint(Bytes::from_static(b"2"));
        let newest = NumberedCheckpoint { number: 2, bytes: Bytes::from_static(b"2") };
        reports.record_stored(1);
        assert_eq!(reports.take_unstored(), Some(newest));
        assert_eq!(reports.stored().now_or_never(), None);
        reports.record_stored(2);
        assert_eq!(reports.stored().now_or_never(), Some(Ok(())));
        // A late answer has no effect.
        reports.record_stored(1);
        assert_eq!(reports.take_unstored(), None);
        reports.give_checkpoint(Bytes::from_static(b"3"));
        reports.end();
        assert_eq!(reports.stored().now_or_never(), Some(Err(AttemptClosed)));
    }
}
