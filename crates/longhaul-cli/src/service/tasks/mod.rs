//! Tasks: submitted, looked at, waited for, ended.

mod filter;
mod history;
mod name;
mod new;
mod pulsar;
mod record;
mod why;

use crate::exit::CommandFailure;
use bytes::Bytes;
pub(crate) use filter::TaskListFilter;
use futures::stream::BoxStream;
pub(crate) use history::{TaskHistoryEntry, TaskHistoryRecord, with_silences};
use longhaul::TaskRef;
pub(crate) use name::{named, task as parse_task};
pub(crate) use new::{SubmissionTerms, TaskSubmission};
pub(crate) use record::{
    ListedTask, QueueTaskCounts, TaskDetails, attempts_in_words, status_word_of, statuses,
};
use std::collections::BTreeMap;
pub(crate) use why::TaskReason;

/// Answers questions about tasks, and ends them.
pub(crate) trait TaskService {
    /// Submits a task. With a key that another one holds, the answer is that one.
    async fn submit(&self, task: TaskSubmission) -> anyhow::Result<TaskRef>;
    /// A task as it stands; `None` if there is none, or it ended long ago.
    async fn task(&self, task: &TaskRef) -> anyhow::Result<Option<TaskDetails>>;
    /// A task when it is over, well or not.
    async fn ended(&self, task: &TaskRef) -> anyhow::Result<TaskDetails>;
    /// Tasks of a queue, by partition and in the order of their submission.
    async fn list(&self, queue: &str, query: TaskListRequest) -> anyhow::Result<TaskListPage>;
    /// How many tasks a queue has, now or at a past instant.
    async fn counts(&self, queue: &str, at_ms: Option<u64>) -> anyhow::Result<QueueTaskCounts>;
    /// The changes of all tasks of a queue.
    async fn watch(&self, queue: &str, from: WatchStart) -> anyhow::Result<Changes>;
    /// What happened to a task.
    async fn history(&self, task: &TaskRef) -> anyhow::Result<TaskHistoryRecord>;
    /// Why a task does not run, or who runs it; `None` if nothing is known of it.
    async fn why(&self, task: &TaskRef) -> anyhow::Result<Option<TaskReason>>;
    /// A task's payload and properties; `None` if its message is gone.
    async fn payload(&self, task: &TaskRef) -> anyhow::Result<Option<SubmittedPayload>>;
    /// Ends a task, or takes it from its worker.
    async fn act(&self, task: &TaskRef, act: TaskOperation, reason: &str) -> anyhow::Result<()>;
}

/// Changes as they come.
pub(crate) type Changes = BoxStream<'static, anyhow::Result<TaskChange>>;

/// What a watch tells.
#[derive(Clone, Debug)]
pub(crate) enum TaskChange {
    /// A task has a new entry.
    Updated(Box<TaskDetails>),
    /// What stood there when the watch began has been told.
    CaughtUp,
    /// Something that is no task.
    Unreadable(String),
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// With how each task stands.
    Start,
    /// With the next change.
    Now,
}

/// Which tasks are listed.
#[derive(Clone, Debug)]
pub(crate) struct TaskListRequest {
    pub(crate) filter: TaskListFilter,
    /// Ms since the epoch: as it was then.
    pub(crate) at_ms: Option<u64>,
    /// The name of a task that was listed last: of its id, as this service writes it.
    pub(crate) after: Option<String>,
    pub(crate) limit: usize,
}

/// Some of the tasks.
#[derive(Clone, Debug)]
pub(crate) struct TaskListPage {
    pub(crate) tasks: Vec<ListedTask>,
    /// What the next page comes after.
    pub(crate) next: Option<String>,
}

/// What was submitted.
#[derive(Clone, Debug)]
pub(crate) struct SubmittedPayload {
    pub(crate) bytes: Bytes,
    /// Those of its message; `None` where they are not told.
    pub(crate) properties: Option<BTreeMap<String, String>>,
}

/// What is done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskOperation {
    /// Asks it to end.
    Cancel,
    /// Ends it without waiting for its processor.
    Kill,
    /// Closes it, wherever it stands.
    Delete,
    /// Closes it as failed for good, if it is in this epoch; or in whichever it is now.
    ForceFail(Option<u32>),
    /// Takes it from its worker, under the same condition.
    ForceRelease(Option<u32>),
}

impl TaskOperation {
    /// What has been done, in a word.
    pub(crate) const fn done(self) -> &'static str {
        match self {
            Self::Cancel => "cancel requested",
            Self::Kill => "kill requested",
            Self::Delete => "deleted",
            Self::ForceFail(_) => "failed",
            Self::ForceRelease(_) => "released",
        }
    }
}

/// There is no such task.
pub(crate) fn no_task(task: &TaskRef) -> CommandFailure {
    CommandFailure::not_found(format!("there is no task {}, or it ended long ago", named(task))).help(
        "`longhaul task list` lists those of a queue, and `longhaul task history` what the log still has of one",
    )
}
