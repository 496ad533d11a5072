//! Counters of a worker.

use super::driver::LaneId;
use longhaul_core::protocol::entry::Outcome;
use longhaul_core::protocol::fold::IgnoredReason;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::silence::Lag;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Counters of one worker since its start.
#[derive(Debug, Default)]
pub(super) struct WorkerCounters {
    counted: Mutex<WorkerStats>,
    durations: Durations,
    /// Partitions whose ledger has been read and that are worked on.
    ready: Mutex<BTreeSet<LaneId>>,
    ended: AtomicBool,
    became_ready: Notify,
    /// By partition.
    lags: Mutex<BTreeMap<LaneId, Lag>>,
}

/// A reading of a worker's counters since its start, from
/// [`WorkerHandle::stats`](crate::WorkerHandle::stats).
///
/// ```no_run
/// use longhaul::WorkerHandle;
/// use std::time::Duration;
///
/// /// One line for a log, or for a page of metrics.
/// fn line(worker: &WorkerHandle) -> String {
///     let stats = worker.stats();
///     let slow = stats.durations.iter().filter(|(up_to, _)| *up_to > Duration::from_secs(60));
///     let slow: u64 = slow.map(|(_, count)| count).sum();
///     format!(
///         "running {}, waiting {}, completed {}, failed {}, retried {}, taken over {}, slow {slow}, lag {:?}",
///         stats.running, stats.waiting, stats.completed, stats.failed, stats.retried, stats.takeovers, stats.lag,
///     )
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Attempts started.
    pub started: u64,
    /// Attempts started that took a task over from a silent worker.
    pub takeovers: u64,
    /// Tasks that this worker has completed, counted when the ledger has accepted the outcome; the
    /// same holds for the outcomes below. Outcomes accepted while the worker was cut off from the
    /// ledger, and read when it starts again, are not counted.
    pub completed: u64,
    /// Tasks that have failed for good here.
    pub failed: u64,
    /// Attempts that have failed here and are followed by another one.
    pub retried: u64,
    /// Tasks that were cancelled while they ran here.
    pub cancelled: u64,
    /// Attempts that were given back and do not count: by a drain, a snooze, or because they could
    /// not begin in time.
    pub released: u64,
    /// Attempts that run now.
    pub running: u64,
    /// Tasks that are held now and do not run: they wait for a slot or their time, or their end is
    /// being written.
    pub waiting: u64,
    /// How far the worker is behind in reading the ledger, on the worst partition: how long its
    /// last heartbeat took to come back or, if that is longer, how long one has been in flight. A
    /// few milliseconds, unless the broker or the worker is overloaded, or they are cut off from
    /// each other. A worker that is far behind claims nothing.
    pub lag: Duration,
    /// Durations of attempts that have ended here: upper bounds, and the number of attempts above
    /// the previous bound and up to this one.
    pub durations: Vec<(Duration, u64)>,
    /// Attempts that were stopped because another worker had taken over.
    pub fenced: u64,
    /// Times that the worker started again because it was cut off from the ledger.
    pub self_fenced: u64,
    /// Processors that blocked their thread and ignored their cancellation.
    pub stuck: u64,
    /// Processors among these that were killed and still run, without a slot: see
    /// [`Cancellation::kill`](crate::Cancellation::kill).
    pub left_behind: u64,
    /// Ledger entries that could not be read.
    pub malformed: u64,
    /// Messages that were skipped because they come from another cluster: tasks, ledger entries,
    /// metadata entries.
    pub replicated: u64,
    /// Entries on the metadata topic that had to be published again after a zombie's.
    pub repaired: u64,
    /// Sessions with the broker that were lost: publishers, followers, consumers. An unload costs
    /// five per partition.
    pub sessions_lost: u64,
    /// Times that the broker stopped sending despite a backlog, and the worker subscribed, or
    /// followed the topic, anew.
    pub stalls: u64,
    /// Times that the broker began to refuse a session for good: see
    /// [`ConnectionState::Refused`](crate::ops::ConnectionState::Refused); or refused claims and
    /// outcomes one by one, in sessions that go on.
    pub refusals: u64,
    /// Times that the ledger of a partition was deleted under the worker, which then read it, or
    /// its replacement, from its start.
    pub ledgers_lost: u64,
    /// Number of times that the compacted view of the ledger lacked entries that another worker
    /// had read: the log was read in its place.
    pub views_lost: u64,
    /// Times that the register was deleted under the worker, which then read its replacement from
    /// its start: bound keys are forgotten.
    pub registers_lost: u64,
    /// Tasks that this worker has set aside because its next step would have broken an invariant of
    /// the protocol: the step was not taken, and other workers go on with the task. Always zero,
    /// unless longhaul has a bug: the log names the invariant.
    pub violations: u64,
    /// Ledger entries without effect, by reason.
    pub ignored: BTreeMap<String, u64>,
}

/// Counts durations. The first bucket ends at 1 ms, each further one at twice the previous bound;
/// the last one, which ends at 25 days, also has all longer durations.
#[derive(Debug, Default)]
struct Durations([AtomicU64; 32]);

impl Durations {
    fn note(&self, duration: Duration) {
        let millis = duration.as_nanos().div_ceil(1_000_000).max(1);
        let bucket = millis.next_power_of_two().trailing_zeros() as usize;
        if let Some(counter) = self.0.get(bucket.min(self.0.len() - 1)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The buckets that are not empty.
    fn read(&self) -> Vec<(Duration, u64)> {
        let bound = |power: u32| Duration::from_millis(1 << power);
        let counts = self.0.iter().map(|counter| counter.load(Ordering::Relaxed));
        (0..).map(bound).zip(counts).filter(|(_, count)| *count > 0).collect()
    }
}

impl WorkerCounters {
    /// The counters, to change them: all but the durations, the lag, and those of the connections,
    /// which are kept elsewhere.
    pub(super) fn counted(&self) -> MutexGuard<'_, WorkerStats> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Counts an outcome of this worker that the ledger has accepted.
    pub(super) fn accepted(&self, outcome: &Outcome) {
        let mut counted = self.counted();
        let counter = match outcome {
            Outcome::Completed => &mut counted.completed,
            Outcome::Final => &mut counted.failed,
            Outcome::Failed(_) => &mut counted.retried,
            Outcome::Cancelled => &mut counted.cancelled,
            Outcome::Released(_) => &mut counted.released,
        };
        *counter += 1;
    }
    /// Counts the duration of an ended attempt.
    pub(super) fn took(&self, time: Duration) {
        self.durations.note(time);
    }
    /// Sets the number of running attempts, and of tasks held without running. Returns whether the
    /// first number has changed.
    pub(super) fn hold(&self, running: usize, waiting: usize) -> bool {
        let number = |count| u64::try_from(count).unwrap_or(u64::MAX);
        let mut counted = self.counted();
        counted.waiting = number(waiting);
        std::mem::replace(&mut counted.running, number(running)) != number(running)
    }
    /// Sets the number of killed processors that still run.
    pub(super) fn left_behind(&self, bodies: usize) {
        self.counted().left_behind = u64::try_from(bodies).unwrap_or(u64::MAX);
    }
    /// Counts a ledger entry without effect.
    pub(super) fn ignored(&self, reason: IgnoredReason) {
        let reason = format!("{reason:?}");
        *self.counted().ignored.entry(reason).or_default() += 1;
    }
    pub(super) fn ready(&self, lane: LaneId) {
        self.partitions().insert(lane);
        self.became_ready.notify_waiters();
    }
    /// Notes how far this worker is behind in reading a partition's ledger.
    pub(super) fn record_lag(&self, lane: LaneId, lag: Lag) {
        self.lags().insert(lane, lag);
    }
    /// The longest of all lags.
    pub(super) fn lag(&self, now: Moment) -> Duration {
        self.lags().values().map(|lag| lag.at(now)).max().unwrap_or_default()
    }
    fn lags(&self) -> MutexGuard<'_, BTreeMap<LaneId, Lag>> {
        self.lags.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Notes that the ledger of the partition is being read from its start again.
    pub(super) fn not_ready(&self, lane: LaneId) {
        self.partitions().remove(&lane);
    }
    fn partitions(&self) -> MutexGuard<'_, BTreeSet<LaneId>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn are_ready(&self, partitions: u64) -> bool {
        u64::try_from(self.partitions().len()).is_ok_and(|ready| ready >= partitions)
    }
    /// Notes the end of the worker; nothing has to wait for it any longer.
    pub(super) fn ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.became_ready.notify_waiters();
    }

    /// Whether this many partitions have been read and are worked on, by a worker that has not
    /// ended.
    pub(super) fn is_ready(&self, partitions: u64) -> bool {
        !self.ended.load(Ordering::Relaxed) && self.are_ready(partitions)
    }

    /// Resolves when this many partitions have been read and are worked on, or the worker has
    /// ended.
    pub(super) async fn wait_ready(&self, partitions: u64) {
        loop {
            let notified = self.became_ready.notified();
            let ended = self.ended.load(Ordering::Relaxed);
            if ended || self.are_ready(partitions) {
                return;
            }
            notified.await;
        }
    }

    /// Reads all counters.
    #[must_use]
    pub(super) fn read(&self) -> WorkerStats {
        WorkerStats { durations: self.durations.read(), ..self.counted().clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_their_upper_bounds() {
        let durations = Durations::default();
        for millis in [0, 1, 2, 3, 4, 1_000, 1_025, u64::MAX] {
            durations.note(Duration::from_millis(millis));
        }
        durations.note(Duration::from_micros(1_001));
        let bound = Duration::from_millis;
        let expected = [(1, 2), (2, 2), (4, 2), (1_024, 1), (2_048, 1), (1 << 31, 1)];
        assert_eq!(durations.read(), expected.map(|(millis, count)| (bound(millis), count)));
    }

    /// Earlier, a partition that had fenced itself and was ready again counted twice, so that the
    /// worker counted as ready while another partition was not.
    #[test]
    fn a_partition_is_ready_once() {
        let stats = WorkerCounters::default();
        stats.ready(LaneId::new(0, 0));
        stats.not_ready(LaneId::new(0, 0));
        assert!(!stats.is_ready(1));
        stats.ready(LaneId::new(0, 0));
        stats.ready(LaneId::new(0, 0));
        assert!(stats.is_ready(1) && !stats.is_ready(2));
        stats.ready(LaneId::new(0, 1));
        assert!(stats.is_ready(2));
        stats.ended();
        assert!(!stats.is_ready(2));
    }
}
