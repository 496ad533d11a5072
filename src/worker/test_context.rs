//! The context for the unit test of a processor, in place of a worker.

use super::blocking::Threads;
use super::budget::Deadline;
use super::predecessors::{Predecessor, PredecessorOutcome};
use super::processor::{AttemptContext, TaskContext};
use super::reports::{AttemptReports, Recording, ReportListener, lock};
use crate::clock::runtime_now;
use bytes::Bytes;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::task::{Progress, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Makes the context of an attempt for the unit test of a processor, and records the processor's
/// reports.
///
/// It uses neither a worker nor a broker. A budget uses tokio's clock, so a test with paused time
/// does not wait for it.
///
/// ```
/// use longhaul::{TaskContext, TaskError, TaskProcessor, TestContext};
/// use std::time::Duration;
///
/// /// Copies pages, a second for each, and goes on where the last attempt was.
/// struct Copier;
///
/// impl TaskProcessor for Copier {
///     type Task = u32;
///     type Output = u32;
///
///     async fn process(&self, pages: u32, context: TaskContext) -> Result<u32, TaskError> {
///         let first = match context.last_checkpoint() {
///             Some(bytes) => std::str::from_utf8(bytes)?.parse()?,
///             None => 0,
///         };
///         for page in first + 1..=pages {
///             tokio::select! {
///                 () = tokio::time::sleep(Duration::from_secs(1)) => {}
///                 () = context.cancelled() => return Err(TaskError::retry("cancelled")),
///             }
///             context.progress(page.into(), pages.into(), "copying");
///             context.checkpoint(page.to_string()).await?;
///         }
///         Ok(pages - first)
///     }
/// }
///
/// #[tokio::main(flavor = "current_thread", start_paused = true)]
/// async fn main() {
///     let test = TestContext::new().attempt(2).last_checkpoint("7");
///     assert_eq!(Copier.process(10, test.context()).await, Ok(3));
///     assert_eq!(test.checkpoints(), ["8", "9", "10"]);
///     assert_eq!(test.progress().last().map(|progress| progress.done), Some(10));
///
///     let test = TestContext::new().budget(Duration::from_millis(2_500));
///     let error = Copier.process(10, test.context()).await.unwrap_err();
///     assert_eq!(error.message(), "cancelled");
///     assert_eq!(test.checkpoints(), ["1", "2"]);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct TestContext {
    topic: String,
    task: TaskId,
    attempt: u32,
    epoch: Option<u32>,
    properties: BTreeMap<String, String>,
    last_checkpoint: Option<Bytes>,
    predecessors: Vec<Predecessor>,
    budget: Option<Duration>,
    cancelled: CancellationToken,
    recording: Arc<Recording>,
}

impl Default for TestContext {
    fn default() -> Self {
        Self {
            topic: "persistent://public/default/tasks".to_owned(),
            task: TaskId { ledger: 1, entry: 0, partition: -1, batch_index: None },
            attempt: 1,
            epoch: None,
            properties: BTreeMap::new(),
            last_checkpoint: None,
            predecessors: Vec::new(),
            budget: None,
            cancelled: CancellationToken::new(),
            recording: Arc::default(),
        }
    }
}

impl TestContext {
    /// The first attempt at task `1:0:-1` of the topic `tasks`: without properties, a checkpoint or
    /// a budget.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the full name of the topic that the task was submitted to.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self
    }

    /// Sets the task's id.
    #[must_use]
    pub fn task_id(mut self, task: TaskId) -> Self {
        self.task = task;
        self
    }

    /// Sets the number of the attempt, from 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Adds a task that this one has waited for, with this result.
    #[must_use]
    pub fn completed(mut self, task: TaskId, result: impl Into<Bytes>) -> Self {
        let outcome = PredecessorOutcome::Completed;
        self.predecessors.push(Predecessor::given(task, outcome, Some(result.into())));
        self
    }

    /// Adds a task that this one has waited for, which is over without a result, or whose result is
    /// gone.
    #[must_use]
    pub fn over(mut self, task: TaskId, outcome: PredecessorOutcome) -> Self {
        self.predecessors.push(Predecessor::given(task, outcome, None));
        self
    }

    /// Sets the epoch of the fencing token. Default: that of a task with one claim per attempt.
    #[must_use]
    pub fn epoch(mut self, epoch: u32) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// Sets a property of the task's message.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Sets the checkpoint of an earlier attempt.
    #[must_use]
    pub fn last_checkpoint(mut self, bytes: impl Into<Bytes>) -> Self {
        self.last_checkpoint = Some(bytes.into());
        self
    }

    /// Sets the budget after which the attempt is cancelled.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = Some(budget);
        self
    }

    /// A context for [`TaskProcessor::process`](crate::TaskProcessor::process). A budget runs from
    /// now.
    ///
    /// # Panics
    /// If there is a budget and no tokio runtime.
    #[must_use]
    pub fn context(&self) -> TaskContext {
        let cancelled = self.cancelled.child_token();
        let ends = self.budget.and_then(|budget| runtime_now().checked_add(budget));
        let deadline = ends.map(Deadline::Runtime);
        if let Some(deadline) = deadline {
            let used_up = cancelled.clone();
            lock(&self.recording.timers).spawn(async move {
                deadline.wait().await;
                used_up.cancel();
            });
        }
        let shared = AttemptContext {
            predecessors: self.predecessors.clone(),
            topic: self.topic.as_str().into(),
            task: self.task,
            epoch: Epoch(self.epoch.unwrap_or(self.attempt)),
            attempt: self.attempt,
            properties: self.properties.clone(),
            last_checkpoint: self.last_checkpoint.clone(),
            cancelled,
            deadline,
            reports: Arc::new(AttemptReports::new(ReportListener::Test(Arc::clone(
                &self.recording,
            )))),
            threads: Threads::default(),
        };
        TaskContext::new(Arc::new(shared))
    }

    /// Cancels the attempt, like a client, or a worker that shuts down.
    pub fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// All progress reports, oldest first. A worker shows only the newest per second.
    #[must_use]
    pub fn progress(&self) -> Vec<Progress> {
        lock(&self.recording.progress).clone()
    }

    /// All log lines, oldest first, in the form in which they would be shown. A worker shows the
    /// newest 32.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        lock(&self.recording.lines).clone()
    }

    /// All checkpoints, oldest first; each of them counts as stored. A worker stores only the
    /// newest per second.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<Bytes> {
        lock(&self.recording.checkpoints).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CheckpointError, FencingToken};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_budget_is_used_up_as_time_passes_and_cancels_then() {
        let context = TestContext::new().budget(3 * SECOND).context();
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!((context.remaining_budget(), context.is_cancelled()), (Some(SECOND), false));
        context.cancelled().await;
        assert_eq!(context.remaining_budget(), Some(Duration::ZERO));
        assert_eq!(TestContext::new().context().remaining_budget(), None);
        // Longer than any clock's range.
        let endless = TestContext::new().budget(Duration::MAX).context();
        assert!(!endless.is_cancelled());
    }

    #[test]
    fn a_context_says_what_it_was_told_and_hears_of_a_cancel() {
        let test = TestContext::new().attempt(3).property("customer", "4711");
        let context = test.context();
        let task = context.task_id();
        assert_eq!(task.to_string(), "1:0:-1");
        assert_eq!(
            (context.attempt(), context.fencing_token()),
            (3, FencingToken { task, epoch: 3 })
        );
        assert_eq!(context.properties().get("customer").map(String::as_str), Some("4711"));
        let other = TaskId { entry: 9, ..task };
        let token = test.clone().epoch(7).task_id(other).context().fencing_token();
        assert_eq!(token, FencingToken { task: other, epoch: 7 });
        assert_eq!(token.to_string(), format!("{other}/7"));
        test.cancel();
        assert!(context.is_cancelled());
    }

    /// A worker uses one report per second; a unit test must see each.
    #[tokio::test]
    async fn every_report_is_recorded_and_a_checkpoint_passes_for_stored() {
        let test = TestContext::new();
        let context = test.context();
        for done in 1..=2 {
            context.progress(done, 2, "pages");
            context.log(format!("page {done} {}", "x".repeat(300)));
            context.checkpoint(done.to_string()).await.unwrap();
        }
        assert_eq!(context.checkpoint_stored().await, Ok(()));
        assert_eq!(test.checkpoints(), ["1", "2"]);
        let pages = |done| Progress { done, total: 2, message: "pages".to_owned() };
        assert_eq!(test.progress(), [pages(1), pages(2)]);
        let lines = [1, 2].map(|page| format!("page {page} {}", "x".repeat(249)));
        assert_eq!(test.log(), lines);
        let large = context.checkpoint(vec![0; 64 * 1024 + 1]).await;
        assert_eq!(large, Err(CheckpointError::TooLarge(64 * 1024 + 1)));
        assert_eq!(test.checkpoints().len(), 2);
    }
}
