//! The user's interface: a processor and its context.

use super::blocking::Threads;
use super::budget::Deadline;
use super::middleware::{Middleware, With};
use super::predecessors::Predecessor;
use super::reports::{AttemptClosed, AttemptReports};
use super::task_error::TaskError;
use crate::telemetry::spans;
use bytes::Bytes;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::task::text::CHECKPOINT_BYTES_MAX;
use longhaul_core::task::{
    Codec, FromPayload, PayloadError, Progress, TaskId, ToPayload, encode, text,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Processes tasks of one kind.
///
/// ```
/// use longhaul::{TaskContext, TaskError, TaskProcessor};
///
/// #[derive(serde::Deserialize)]
/// struct Invoice {
///     customer: String,
///     cents: u64,
/// }
///
/// struct Printer {
///     printer: String,
/// }
///
/// impl TaskProcessor for Printer {
///     type Task = Invoice;
///     type Output = String;
///
///     async fn process(&self, task: Invoice, context: TaskContext) -> Result<String, TaskError> {
///         if task.cents == 0 {
///             return Err(TaskError::fatal("there is nothing to pay"));
///         }
///         // Any error is tried again.
///         let copies: u32 = context.properties().get("copies").map_or(Ok(1), |text| text.parse())?;
///         Ok(format!("{copies} for {} from {}", task.customer, self.printer))
///     }
/// }
///
/// // A unit test needs no worker and no broker.
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let context = longhaul::TestContext::new().property("copies", "2").context();
/// let printer = Printer { printer: "office".to_owned() };
/// let invoice = Invoice { customer: "Dave".to_owned(), cents: 4711 };
/// assert_eq!(printer.process(invoice, context).await, Ok("2 for Dave from office".to_owned()));
/// # }
/// ```
///
/// An attempt may be a second one, because the first failed or its worker died. For a moment two
/// attempts may overlap, when a worker that was cut off does not know yet that it was replaced.
/// Only one result is ever accepted; a processor that changes something outside must pass
/// [`TaskContext::fencing_token`] along.
///
/// It runs on the tokio runtime that started the worker. Code that blocks its thread would hold up
/// other tasks there, though never the worker's heartbeats: use a
/// [`BlockingProcessor`](crate::BlockingProcessor) for it.
pub trait TaskProcessor: Send + Sync + 'static {
    /// The task, read from the payload: any type that `serde` can deserialize.
    type Task: FromPayload;
    /// The result: any type that `serde` can serialize.
    type Output: ToPayload;

    /// Runs one attempt. An error fails it and another attempt follows, unless the error's kind
    /// excludes that. A panic is an error.
    ///
    /// An implementation writes it as `async fn process(&self, task: .., context: TaskContext) ->
    /// Result<.., TaskError>`.
    fn process(
        &self,
        task: Self::Task,
        context: TaskContext,
    ) -> impl Future<Output = Result<Self::Output, TaskError>> + Send;

    /// Puts middleware around each attempt of this processor.
    fn with<M: Middleware>(self, middleware: M) -> With<M>
    where
        Self: Sized,
    {
        With::new(self, middleware)
    }
}

/// The context of an attempt besides its task. Cheap to clone. [`TestContext`](crate::TestContext)
/// makes one for a unit test.
///
/// ```
/// use longhaul::{TaskContext, TaskError};
/// use std::time::Duration;
///
/// /// Copies pages and goes on where the last attempt was.
/// async fn copy(pages: u64, context: TaskContext) -> Result<u64, TaskError> {
///     let first = match context.last_checkpoint() {
///         Some(bytes) => std::str::from_utf8(bytes)?.parse()?,
///         None => 0,
///     };
///     for page in first..pages {
///         if context.remaining_budget().is_some_and(|left| left < Duration::from_secs(1)) {
///             return Err("no time is left for another page".into());
///         }
///         tokio::select! {
///             () = tokio::time::sleep(Duration::from_millis(1)) => {}
///             () = context.cancelled() => return Err("cancelled".into()),
///         }
///         context.progress(page + 1, pages, "copying");
///         context.checkpoint((page + 1).to_string()).await?;
///     }
///     Ok(pages - first)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let test = longhaul::TestContext::new().last_checkpoint("3");
/// # assert_eq!(copy(5, test.context()).await, Ok(2));
/// # }
/// ```
#[derive(Clone)]
pub struct TaskContext {
    pub(crate) shared: Arc<AttemptContext>,
    /// Set for a task whose payload a codec has encoded.
    coding: Option<Arc<Coding>>,
}

/// The encoding of a task's checkpoints.
pub(super) struct Coding {
    pub(super) codec: Arc<dyn Codec>,
    /// The decoded checkpoint for the processor.
    pub(super) last_checkpoint: Option<Bytes>,
}

pub(crate) struct AttemptContext {
    /// Full name of the task topic.
    pub(crate) topic: Arc<str>,
    pub(crate) task: TaskId,
    pub(crate) epoch: Epoch,
    pub(crate) attempt: u32,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) last_checkpoint: Option<Bytes>,
    pub(crate) predecessors: Vec<Predecessor>,
    pub(crate) cancelled: CancellationToken,
    pub(crate) deadline: Option<Deadline>,
    /// Reports to the driver, which shows progress at intervals, and publishes a checkpoint again
    /// and again until it is stored.
    pub(crate) reports: Arc<AttemptReports>,
    /// Threads of blocking processors that run it.
    pub(crate) threads: Threads,
}

/// A checkpoint was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It is above 64 KiB.
    #[error("checkpoint too large: {0} bytes, the limit is {CHECKPOINT_BYTES_MAX}")]
    TooLarge(usize),
    /// The codec of the task cannot encode it.
    #[error("checkpoint not encoded: {0}")]
    NotEncoded(PayloadError),
    /// The attempt is over or its worker has stopped, and it is unknown whether the checkpoint is
    /// stored.
    #[error("checkpoint not stored: {0}")]
    NotStored(&'static str),
}

/// Identifies the attempt to the outside world: a store that remembers the highest epoch of a task
/// and refuses lower ones cannot be changed by a worker that was replaced.
///
/// Its text form, for logs, is the task's id and the epoch, such as `21426:0:-1/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken {
    /// The task.
    pub task: TaskId,
    /// Grows with every claim of the task.
    pub epoch: u32,
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.task, self.epoch)
    }
}

impl TaskContext {
    pub(super) const fn new(shared: Arc<AttemptContext>) -> Self {
        Self { shared, coding: None }
    }

    /// Adds the encoding of checkpoints.
    pub(super) fn coded(self, coding: Coding) -> Self {
        Self { coding: Some(Arc::new(coding)), ..self }
    }

    /// The name of the codec of its payload, from the property `TASK_CODEC` of its message.
    #[must_use]
    pub fn codec(&self) -> Option<&str> {
        self.named(text::TASK_CODEC)
    }

    fn named(&self, property: &str) -> Option<&str> {
        let value = self.shared.properties.get(property);
        value.map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The task's id.
    #[must_use]
    pub fn task_id(&self) -> TaskId {
        self.shared.task
    }

    /// The full name of the topic that the task was submitted to: a worker may work on several.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.shared.topic
    }

    /// The number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.shared.attempt
    }

    /// See [`FencingToken`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken { task: self.shared.task, epoch: self.shared.epoch.0 }
    }

    /// The properties of the task's message.
    #[must_use]
    pub fn properties(&self) -> &BTreeMap<String, String> {
        &self.shared.properties
    }

    /// The submitter's type of the task, from the property `TASK_TYPE` of its message: see
    /// [`Router`](crate::Router).
    #[must_use]
    pub fn task_type(&self) -> Option<&str> {
        self.named(text::TASK_TYPE)
    }

    /// The tasks that this one has waited for, in the order of their names: those of the last
    /// [`TaskError::after`], or else those that its submitter has named
    /// ([`Submission::after`](crate::Submission::after)). Their results are read on request.
    ///
    /// ```
    /// use longhaul::{TaskContext, TaskError};
    ///
    /// async fn sum(context: &TaskContext) -> Result<u64, TaskError> {
    ///     let mut sum = 0;
    ///     for part in context.predecessors() {
    ///         let Some(number) = part.result::<u64>().await? else {
    ///             return Err(TaskError::fatal(format!("{} has no result: {:?}", part.name(), part.outcome())));
    ///         };
    ///         sum += number;
    ///     }
    ///     Ok(sum)
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let test = longhaul::TestContext::new().completed("1:2:-1".parse().unwrap(), "4");
    /// # assert_eq!(sum(&test.completed("1:3:-1".parse().unwrap(), "5").context()).await, Ok(9));
    /// # }
    /// ```
    #[must_use]
    pub fn predecessors(&self) -> &[Predecessor] {
        &self.shared.predecessors
    }

    /// Resolves when the attempt should end: its budget is used up, the task was cancelled, another
    /// worker has taken over, or the worker shuts down. A result after that is not used. The
    /// processor's future is dropped when the cancel grace is over.
    pub async fn cancelled(&self) {
        self.shared.cancelled.cancelled().await;
    }

    /// Whether [`cancelled`](Self::cancelled) has resolved.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.is_cancelled()
    }

    /// The rest of the attempt's budget; `None` if it has none.
    #[must_use]
    pub fn remaining_budget(&self) -> Option<Duration> {
        self.shared.deadline.map(|deadline| deadline.remaining())
    }

    /// Reports the progress of the task to watchers. Cheap: at most one report per second is
    /// published, the newest.
    pub fn progress(&self, done: u64, total: u64, message: impl Into<String>) {
        let progress = Progress { done, total, message: message.into() };
        self.shared.reports.give_progress(progress);
    }

    /// Writes a log line for watchers of the task: entries on the metadata topic carry the newest
    /// 32 of the attempt ([`TaskMetadata::log`](crate::TaskMetadata::log)), including the entry
    /// that ends it. A line is cut at 256 bytes. Cheap: as with progress, at most one entry per
    /// second is published for new lines.
    pub fn log(&self, line: impl Into<String>) {
        self.shared.reports.give_line(line.into());
    }

    /// Stores bytes for the next attempt, which reads them with
    /// [`last_checkpoint`](Self::last_checkpoint), whatever happens to this one. The newest counts:
    /// an earlier one that is not stored yet is dropped.
    ///
    /// It does not wait for the ledger. The worker publishes at most one checkpoint per second, and
    /// again until it is stored. While the ledger is away a processor just continues, and its last
    /// checkpoint is stored when the ledger is back. If the worker dies before, the next attempt
    /// finds an earlier one. To wait until it is stored, call
    /// [`checkpoint_stored`](Self::checkpoint_stored).
    ///
    /// # Errors
    /// If the bytes are above 64 KiB.
    #[expect(
        clippy::unused_async,
        reason = "so that it may wait one day, and callers need not change"
    )]
    pub async fn checkpoint(&self, bytes: impl Into<Bytes>) -> Result<(), CheckpointError> {
        self.checkpoint_blocking(bytes)
    }

    /// Like [`checkpoint`](Self::checkpoint), for code that is not asynchronous.
    ///
    /// # Errors
    /// If the bytes are above 64 KiB.
    pub fn checkpoint_blocking(&self, bytes: impl Into<Bytes>) -> Result<(), CheckpointError> {
        let mut bytes = bytes.into();
        if let Some(coding) = &self.coding {
            bytes = encode(&*coding.codec, &bytes).map_err(CheckpointError::NotEncoded)?;
        }
        if bytes.len() > CHECKPOINT_BYTES_MAX {
            return Err(CheckpointError::TooLarge(bytes.len()));
        }
        spans::checkpoint(bytes.len());
        self.shared.reports.give_checkpoint(bytes);
        Ok(())
    }

    /// Resolves when the newest [`checkpoint`](Self::checkpoint), or a newer one, is stored; at
    /// once if there was none. While the ledger is away it waits.
    ///
    /// # Errors
    /// If the worker has stopped, or the attempt is over for it.
    pub async fn checkpoint_stored(&self) -> Result<(), CheckpointError> {
        let gone = |AttemptClosed| {
            CheckpointError::NotStored("the attempt is over, or its worker has stopped")
        };
        self.shared.reports.stored().await.map_err(gone)
    }

    /// The last checkpoint of an earlier attempt.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<&Bytes> {
        match &self.coding {
            Some(coding) => coding.last_checkpoint.as_ref(),
            None => self.shared.last_checkpoint.as_ref(),
        }
    }
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("task", &self.shared.task)
            .field("epoch", &self.shared.epoch)
            .field("attempt", &self.shared.attempt)
            .finish_non_exhaustive()
    }
}
