//! Tasks: submitted, looked at, waited for, ended.

mod filter;
mod history;
mod name;
mod new;
mod pulsar;
mod record;
mod why;

use crate::exit::Failure;
use bytes::Bytes;
pub(crate) use filter::Filter;
use futures::stream::BoxStream;
pub(crate) use history::{Entry, History, with_silences};
use longhaul::TaskRef;
pub(crate) use name::{named, task as parse_task};
pub(crate) use new::{NewTask, Terms};
pub(crate) use record::{Counts, Listed, Task, attempts_in_words, status_word_of, statuses};
use std::collections::BTreeMap;
pub(crate) use why::Reason;

/// Answers questions about tasks, and ends them.
pub(crate) trait Tasks {
    /// Submits a task. With a key that another one holds, the answer is that one.
    async fn submit(&self, task: NewTask) -> anyhow::Result<TaskRef>;
    /// A task as it stands; `None` if there is none, or it ended long ago.
    async fn task(&self, task: &TaskRef) -> anyhow::Result<Option<Task>>;
    /// A task when it is over, well or not.
    async fn ended(&self, task: &TaskRef) -> anyhow::Result<Task>;
    /// Tasks of a queue, by partition and in the order of their submission.
    async fn list(&self, queue: &str, query: Query) -> anyhow::Result<Page>;
    /// How many tasks a queue has, now or at a past instant.
    async fn counts(&self, queue: &str, at_ms: Option<u64>) -> anyhow::Result<Counts>;
    /// The changes of all tasks of a queue.
    async fn watch(&self, queue: &str, from: From) -> anyhow::Result<Changes>;
    /// What happened to a task.
    async fn history(&self, task: &TaskRef) -> anyhow::Result<History>;
    /// Why a task does not run, or who runs it; `None` if nothing is known of it.
    async fn why(&self, task: &TaskRef) -> anyhow::Result<Option<Reason>>;
    /// A task's payload and properties; `None` if its message is gone.
    async fn payload(&self, task: &TaskRef) -> anyhow::Result<Option<Payload>>;
    /// Ends a task, or takes it from its worker.
    async fn act(&self, task: &TaskRef, act: Act, reason: &str) -> anyhow::Result<()>;
}

/// Changes as they come.
pub(crate) type Changes = BoxStream<'static, anyhow::Result<Change>>;

/// What a watch tells.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A task has a new entry.
    Updated(Box<Task>),
    /// What stood there when the watch began has been told.
    CaughtUp,
    /// Something that is no task.
    Unreadable(String),
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// With how each task stands.
    Start,
    /// With the next change.
    Now,
}

/// Which tasks are listed.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) filter: Filter,
    /// Ms since the epoch: as it was then.
    pub(crate) at_ms: Option<u64>,
    /// The name of a task that was listed last: of its id, as this service writes it.
    pub(crate) after: Option<String>,
    pub(crate) limit: usize,
}

/// Some of the tasks.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) tasks: Vec<Listed>,
    /// What the next page comes after.
    pub(crate) next: Option<String>,
}

/// What was submitted.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) bytes: Bytes,
    /// Those of its message; `None` where they are not told.
    pub(crate) properties: Option<BTreeMap<String, String>>,
}

/// What is done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
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

impl Act {
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
pub(crate) fn no_task(task: &TaskRef) -> Failure {
    Failure::not_found(format!("there is no task {}, or it ended long ago", named(task))).help(
        "`longhaul task list` lists those of a queue, and `longhaul task history` what the log still has of one",
    )
}
