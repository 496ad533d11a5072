//! Names of tasks, as people type them.

use crate::exit::with_causes;
use crate::service::short_topic;
use longhaul::{TaskId, TaskRef, TaskRefError};

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
pub(crate) fn task(text: &str) -> Result<TaskRef, String> {
    text.parse().map_err(|error: TaskRefError| with_causes(&error))
}
