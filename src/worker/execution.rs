//! Runs one attempt: decodes the payload, contains panics, enforces the budget, and cancels first
//! gracefully and then by force.
//!
//! The body runs on the user's runtime, everything around it on the worker's own: a body that
//! blocks its thread cannot stop heartbeats, keep-alives or the clock of its own budget.

use super::blocking::AbortOnDrop;
use super::budget::Deadline;
use super::erased::ErasedProcessor;
use super::processor::{AttemptContext, TaskContext};
use super::task_error::TaskError;
use crate::config::WorkerConfig;
use crate::gate::ProcessGate;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::retry::AttemptFailure;
use longhaul_core::task::{Failure, FailureCause, TaskId, text};
use std::any::Any;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::{Instrument, Span};

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With a result.
    Completed(Bytes),
    /// Without a result; why, and what follows.
    Failed(AttemptFailure, Failure),
    /// Without a result: another attempt follows when the tasks of this list are over.
    After(Bytes),
    /// A client cancelled the task.
    Cancelled,
    /// It was stopped without an outcome: another worker has taken over.
    Fenced,
    /// The worker shuts down: the attempt is given back.
    Released,
    /// Its body did not begin in time: the attempt is given back.
    NotBegun,
}

/// Reason to end an attempt early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// A client cancelled the task.
    Cancelled,
    /// Another worker has taken over.
    Fenced,
    /// The worker shuts down now: no grace.
    Released,
}

impl Ending {
    /// The ending of a processor. A result that is too large, or a list of tasks that cannot be used,
    /// is a failure for good: another attempt would end alike.
    fn of_result(result: Result<Bytes, TaskError>, topic: &str, result_bytes_max: usize) -> Self {
        let mut error = match result {
            Ok(bytes) if bytes.len() <= result_bytes_max => return Self::Completed(bytes),
            Ok(bytes) => {
                let reason = text::result_too_large(bytes.len(), result_bytes_max);
                return Self::failed_for_good(FailureCause::ResultTooLarge, reason);
            }
            Err(error) => error,
        };
        match error.take_after().map(|tasks| tasks.list(topic)) {
            Some(Ok(list)) => Self::After(list.content().into()),
            Some(Err(reason)) => Self::failed_for_good(FailureCause::Predecessor, reason),
            None => Self::of_error(error),
        }
    }

    pub(super) fn of_error(error: TaskError) -> Self {
        let (next, why) = error.into_failure();
        Self::Failed(next, why)
    }

    fn failed_for_good(cause: FailureCause, reason: String) -> Self {
        Self::Failed(AttemptFailure::Fatal, Failure::new(cause, reason))
    }

    /// Without a reason, the driver has gone.
    const fn of_halt(halt: Option<Halt>) -> Self {
        match halt {
            Some(Halt::Cancelled) => Self::Cancelled,
            Some(Halt::Fenced) => Self::Fenced,
            Some(Halt::Released) | None => Self::Released,
        }
    }

    /// The name of the ending in metrics.
    pub(super) fn in_a_word(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::Failed(AttemptFailure::Snooze(_), _) => "snoozed",
            Self::After(_) => "parked",
            Self::Failed(_, Failure { cause, .. }) => cause.name(),
            Self::Cancelled => "cancelled",
            Self::Fenced => "fenced",
            Self::Released | Self::NotBegun => "released",
        }
    }

    /// The reason of the failure, if it has failed.
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(next, failure) if !matches!(next, AttemptFailure::Snooze(_)) => {
                Some(&failure.reason)
            }
            Self::Failed(..)
            | Self::Completed(_)
            | Self::Cancelled
            | Self::Fenced
            | Self::Released
            | Self::After(_)
            | Self::NotBegun => None,
        }
    }

    /// The attempt's budget is used up; or the task's, which ends the task.
    fn over_budget(ends_task: bool) -> Self {
        let next = if ends_task { AttemptFailure::Fatal } else { AttemptFailure::Retry };
        Self::Failed(next, Failure::new(FailureCause::Budget, text::OVER_BUDGET))
    }

    fn silent() -> Self {
        let why = Failure::new(FailureCause::NoProgress, text::NO_PROGRESS);
        Self::Failed(AttemptFailure::Retry, why)
    }
}

/// An attempt to run.
pub(crate) struct Attempt {
    /// The processor's context; the checkpoint is still to be read.
    pub(crate) shared: AttemptContext,
    /// The payload, or why it cannot be read.
    pub(crate) payload: Result<Bytes, Arc<str>>,
    /// Reads the last checkpoint, if there is one.
    pub(crate) read: Option<BoxFuture<'static, Option<Bytes>>>,
    /// The span around its body.
    pub(crate) span: Span,
    /// Its body must not begin later than this.
    pub(crate) begin_by: Deadline,
    /// Whether its deadline is the task's: then no further attempt follows.
    pub(crate) ends_task: bool,
    pub(crate) config: Arc<WorkerConfig>,
    pub(crate) halt: oneshot::Receiver<Halt>,
}

/// The result that [`attend`] reports to the driver.
pub(crate) struct AttemptEnd {
    pub(crate) task: TaskId,
    pub(crate) epoch: Epoch,
    pub(crate) ending: Ending,
    /// Set if the body has not ended: it ignores its cancellation and blocks its thread. It keeps
    /// its slot, unless it was killed.
    pub(crate) stuck: Option<StuckBody>,
}

/// Resolves when a body that blocked its thread has ended.
pub(crate) type StuckBody = BoxFuture<'static, ()>;

/// How long to wait for a body after its future was dropped: one that does not block its thread
/// ends at its next await point.
const ABORT_WAIT: Duration = Duration::from_millis(500);

/// The longest grace at the deadline of a drain, which gives up 10 s after that.
const RELEASE_GRACE_MAX: Duration = Duration::from_secs(5);

/// Delay of the next attempt after a body was aborted from outside.
pub(super) const ABORTED_WAIT: Duration = Duration::from_secs(10);

/// Runs an attempt to its end. Its body begins after the last checkpoint was read, if there is one;
/// an attempt that is over by then never begins. An attempt that was held up, by that read or by a
/// suspended process, until others may have taken its task over does not begin either: only the
/// ledger knows whether its claim is still current.
///
/// A worker may have 100,000 of these, so rarely used parts are boxed.
pub(crate) async fn attend(
    processor: Arc<dyn ErasedProcessor>,
    attempt: Attempt,
    bodies: Handle,
    gate: ProcessGate,
) -> AttemptEnd {
    let Attempt { mut shared, payload, read, span, begin_by, ends_task, config, mut halt } =
        attempt;
    let (grace, result_bytes_max) = (config.cancel_grace, config.result_bytes_max);
    let (task, epoch) = (shared.task, shared.epoch);
    let ended = |ending| AttemptEnd { task, epoch, ending, stuck: None };
    let payload = match payload {
        Ok(payload) => payload,
        // It was sent in chunks, encrypted or damaged: no worker can read it.
        Err(cause) => {
            let reason = text::undecodable(&cause);
            return ended(Ending::failed_for_good(FailureCause::Unreadable, reason));
        }
    };
    let mut limit = limits(&shared, ends_task);
    if let Some(read) = read {
        match wait_for(read, &mut halt, &mut limit, begin_by).boxed().await {
            Ok(checkpoint) => shared.last_checkpoint = checkpoint,
            Err(ending) => return ended(ending),
        }
    } else if let Ok(halt) = halt.try_recv() {
        return ended(Ending::of_halt(Some(halt)));
    } else if shared.deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
        return ended(Ending::over_budget(ends_task));
    }
    record_panic_places();
    let shared = Arc::new(shared);
    let context = TaskContext::new(Arc::clone(&shared));
    let (report, mut outcome) = oneshot::channel();
    let topic = Arc::clone(&shared.topic);
    let body = AssertUnwindSafe(processor.run(payload, context)).catch_unwind();
    let handle = bodies.spawn(
        gate.wrap(
            async move {
                // Checked last, because timers may have stopped with the process.
                let ending = if begin_by.remaining().is_zero() {
                    Ending::NotBegun
                } else {
                    let ended = |result| Ending::of_result(result, &topic, result_bytes_max);
                    body.await.map_or_else(|panic| ending_of_panic(&*panic), ended)
                };
                // The receiver is gone if the attempt was given up; the ending is not needed then.
                drop(report.send(ending));
            }
            .instrument(span),
        ),
    );
    // The bodies of a worker that is stopped are stopped as well.
    let _abort = AbortOnDrop(handle.abort_handle());
    let forced = tokio::select! {
        biased;
        ending = &mut outcome => {
            // For example, the runtime of the processors has shut down, which is no failure of the
            // task.
            let ending = ending.unwrap_or_else(|_| Ending::of_error(TaskError::snooze(ABORTED_WAIT)));
            let stuck = shared.threads.ended();
            return AttemptEnd { task, epoch, ending, stuck };
        }
        halt = &mut halt => Ending::of_halt(halt.ok()),
        over = &mut limit => over,
    };
    shared.cancelled.cancel();
    let grace = if forced == Ending::Released { grace.min(RELEASE_GRACE_MAX) } else { grace };
    let stuck = stop(handle, grace, &shared).boxed().await;
    AttemptEnd { task, epoch, ending: forced, stuck }
}

/// Resolves when an attempt has reached one of its limits, with the ending.
fn limits(shared: &AttemptContext, ends_task: bool) -> BoxFuture<'static, Ending> {
    let deadline = shared.deadline.map(Deadline::wait);
    let over = deadline.map(|over| over.map(move |()| Ending::over_budget(ends_task)));
    let reports = shared.reports.is_watched().then(|| Arc::clone(&shared.reports));
    match (over, reports) {
        (None, None) => pending().boxed(),
        (Some(over), None) => over.boxed(),
        (over, Some(reports)) => async move {
            let over = over.map_or_else(|| pending().left_future(), FutureExt::right_future);
            tokio::select! {
                biased;
                ending = over => ending,
                () = reports.silent_for_too_long() => Ending::silent(),
            }
        }
        .boxed(),
    }
}

/// Waits for the data that a body needs before it begins, or returns the ending of the attempt.
async fn wait_for<T>(
    read: impl Future<Output = T>,
    halt: &mut oneshot::Receiver<Halt>,
    limit: &mut BoxFuture<'static, Ending>,
    begin_by: Deadline,
) -> Result<T, Ending> {
    tokio::select! {
        biased;
        halt = halt => Err(Ending::of_halt(halt.ok())),
        over = limit => Err(over),
        () = begin_by.wait() => Err(Ending::NotBegun),
        read = read => Ok(read),
    }
}

/// Lets a cancelled body end within its grace, unless it is killed, then ends it by force. Returns
/// a body that could not be ended.
async fn stop(
    mut handle: JoinHandle<()>,
    grace: Duration,
    shared: &AttemptContext,
) -> Option<StuckBody> {
    tokio::select! {
        biased;
        _ = tokio::time::timeout(grace, &mut handle) => {}
        () = shared.reports.killed() => {}
    }
    handle.abort();
    let threads = shared.threads.ended();
    if handle.is_finished() && threads.is_none() {
        return None;
    }
    let gone = async move {
        if !handle.is_finished() {
            drop(handle.await);
        }
        if let Some(threads) = threads {
            threads.await;
        }
    };
    let mut stuck = gone.boxed();
    let ended = tokio::time::timeout(ABORT_WAIT, &mut stuck).await;
    ended.is_err().then_some(stuck)
}

thread_local! {
    static PANIC_PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records the place of a panic, which the panic itself does not contain. The previous hook still
/// runs.
fn record_panic_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
            PANIC_PLACE.with_borrow_mut(|slot| *slot = place);
            before(info);
        }));
    });
}

pub(crate) fn ending_of_panic(panic: &(dyn Any + Send)) -> Ending {
    Ending::of_error(TaskError::panicked(reason_of_panic(panic)))
}

/// Must be called on the thread that has panicked.
pub(super) fn reason_of_panic(panic: &(dyn Any + Send)) -> String {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let place = PANIC_PLACE.with_borrow_mut(Option::take);
    text::panicked(message, place.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::TaskRef;
    use crate::worker::blocking::Threads;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio_util::sync::CancellationToken;

    const SECOND: Duration = Duration::from_secs(1);
    const TASK: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };

    /// An alert about lost workers did not know those over HTTP: their attempts counted as errors.
    /// An error whose text began with `panicked: ` counted as a panic.
    #[test]
    fn an_attempt_is_counted_by_its_cause_and_not_by_its_text() {
        let counted = |error| Ending::of_error(error).in_a_word();
        let silent = text::lease_expired("ann", SECOND);
        assert_eq!(counted(TaskError::lost(None, silent.clone())), "lost");
        for reason in ["no printer", "panicked: x", &silent] {
            assert_eq!(counted(TaskError::retry(reason)), "error");
        }
    }

    /// A result that was too large counted as a success in metrics and traces, and a list of tasks
    /// that cannot be used as a wait.
    #[test]
    fn an_attempt_whose_result_cannot_be_used_is_counted_as_failed() {
        let counted = |result| Ending::of_result(result, "tasks", 2).in_a_word();
        let of = |topic: &str| TaskRef { topic: topic.to_owned(), id: TASK };
        let after = |topic| Err(TaskError::after(&[of(topic)]));
        let results =
            [Ok(Bytes::from("ab")), Ok(Bytes::from("abc")), after("tasks"), after("others")];
        let words = ["completed", "result_too_large", "parked", "predecessor"];
        assert_eq!(results.map(counted), words);
    }

    /// Records whether its body has begun.
    #[derive(Default)]
    struct Done(AtomicBool);

    impl ErasedProcessor for Done {
        fn run(
            self: Arc<Self>,
            _payload: Bytes,
            _context: TaskContext,
        ) -> BoxFuture<'static, Result<Bytes, TaskError>> {
            self.0.store(true, Ordering::Relaxed);
            async { Ok(Bytes::new()) }.boxed()
        }
    }

    /// Runs an attempt that may begin within a second; its body is held up behind this gate, and
    /// reading its context takes this long.
    async fn ending(gate: ProcessGate, reads_for: Duration) -> Ending {
        ending_of(Arc::default(), None, gate, reads_for).await
    }

    /// The same for this processor, with this budget.
    async fn ending_of(
        processor: Arc<Done>,
        budget: Option<Duration>,
        gate: ProcessGate,
        reads_for: Duration,
    ) -> Ending {
        let clock = longhaul_memory::simulated_clock(0);
        let look_every = 10 * SECOND;
        let deadline =
            budget.map(|budget| Deadline::Clock { clock, at: clock.now() + budget, look_every });
        let begin_by = Deadline::Clock { clock, at: clock.now() + SECOND, look_every: 10 * SECOND };
        let (_halt, halt) = oneshot::channel();
        let shared = AttemptContext {
            topic: "tasks".into(),
            task: TASK,
            epoch: Epoch(1),
            attempt: 1,
            properties: BTreeMap::new(),
            last_checkpoint: None,
            predecessors: Vec::new(),
            cancelled: CancellationToken::new(),
            deadline,
            reports: Arc::default(),
            threads: Threads::default(),
        };
        let read = async move {
            tokio::time::sleep(reads_for).await;
            None
        };
        let read = (reads_for > Duration::ZERO).then(|| read.boxed());
        let (payload, span, ends_task) = (Ok(Bytes::new()), Span::none(), false);
        let config = Arc::default();
        let attempt = Attempt { shared, payload, read, span, begin_by, ends_task, config, halt };
        attend(processor, attempt, Handle::current(), gate).await.ending
    }

    /// Earlier, a worker that had been suspended for longer than a budget began the body and
    /// cancelled it at once.
    #[tokio::test(start_paused = true)]
    async fn a_body_whose_budget_is_used_up_does_not_begin() {
        for (budget, begins) in [(Duration::ZERO, false), (SECOND, true)] {
            let processor = Arc::new(Done::default());
            let run = ending_of(
                Arc::clone(&processor),
                Some(budget),
                ProcessGate::open(),
                Duration::ZERO,
            );
            assert_eq!(run.await == Ending::over_budget(false), !begins, "{budget:?}");
            assert_eq!(processor.0.load(Ordering::Relaxed), begins, "{budget:?}");
        }
    }

    /// Earlier, a process was suspended just before a body began. Two minutes later it began, for a
    /// task that others had ended and sealed.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_held_up_does_not_begin_later() {
        for (held_up, begins) in [(SECOND / 2, true), (2 * SECOND, false)] {
            let expected = if begins { Ending::Completed(Bytes::new()) } else { Ending::NotBegun };
            assert_eq!(ending(ProcessGate::open(), held_up).await, expected, "by its read");
            let process = longhaul_memory::Freezer::new();
            process.freeze();
            let thaw = async {
                tokio::time::sleep(held_up).await;
                process.thaw();
            };
            let (ended, ()) = tokio::join!(ending(process.gate(), Duration::ZERO), thaw);
            assert_eq!(ended, expected, "by a suspension");
        }
    }
}
