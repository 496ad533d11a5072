//! Tasks: submit, read, wait, end.

mod history;
mod record;

use super::short_topic;
use crate::exit::{CommandFailure, with_causes};
use clap::ValueEnum;
use futures::stream::BoxStream;
pub(crate) use history::history_rows;
use longhaul::{TaskId, TaskRef, TaskRefError};
use longhaul_api::queue::PurgeBody;
pub(crate) use record::{
    TaskDetails, attempts_in_words, count_fields, open_statuses, retain_counts, statuses,
};

/// A stream of changes.
pub(crate) type Changes = BoxStream<'static, anyhow::Result<TaskChange>>;

/// An event of a watch.
#[derive(Clone, Debug)]
pub(crate) enum TaskChange {
    /// A task has a new entry.
    Updated(Box<TaskDetails>),
    /// All existing entries have been shown.
    CaughtUp,
    /// A message that is not a valid entry.
    Unreadable(String),
}

/// Which tasks of a list come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TaskListOrder {
    /// Tasks that were submitted last come first.
    Newest,
    /// Tasks that were submitted first come first, by partition.
    Oldest,
}

/// A query for tasks.
#[derive(Clone, Debug)]
pub(crate) struct TaskListRequest {
    /// Its filters; the rest of it is not looked at.
    pub(crate) filter: PurgeBody,
    pub(crate) order: TaskListOrder,
    /// In ms since the epoch: the state at that time.
    pub(crate) at_ms: Option<u64>,
    /// The last task of the previous page.
    pub(crate) after: Option<String>,
    pub(crate) limit: usize,
    /// Whether to say of each task that does not run why it does not.
    pub(crate) why: bool,
}

/// The name of a task for people.
pub(crate) fn named(task: &TaskRef) -> String {
    format!("{}@{}", short_topic(&task.topic), task.id)
}

/// Names the tasks of a task topic for people.
pub(crate) fn namer(topic: &str) -> impl Fn(TaskId) -> String + Send + use<> {
    let topic = topic.to_owned();
    move |id| TaskRef::new(&topic, id).map_or_else(|_| id.to_string(), |it| named(&it))
}

/// Parses the name of a task.
///
/// # Errors
/// A text with all causes.
pub(crate) fn parse_task(text: &str) -> Result<TaskRef, String> {
    text.parse().map_err(|error: TaskRefError| with_causes(&error))
}

/// The error for a task that does not exist.
pub(crate) fn no_task(task: &TaskRef) -> CommandFailure {
    CommandFailure::not_found(format!("there is no task {}, or it ended long ago", named(task))).help(
        "list the tasks of the queue with `longhaul task list`, or what the log still has about \
         this one with `longhaul task history`",
    )
}
