//! The reference by which callers wait for, look at or cancel a task.

use crate::topics::{DEFAULT_SUBSCRIPTION, TopicNameError, TopicNames};
use longhaul_core::task::{TaskId, TaskIdError};
use std::fmt;
use std::str::FromStr;

/// A reference to a task: the topic that it was submitted to, and its id there.
///
/// Its text form is `topic@id`, such as `persistent://public/default/tasks@21426:0:-1`, and can be
/// parsed back.
///
/// ```
/// use longhaul::TaskRef;
///
/// let task: TaskRef = "tasks@21426:0:-1".parse()?;
/// assert_eq!(task.topic, "persistent://public/default/tasks");
/// assert_eq!(task.id.to_string(), "21426:0:-1");
/// assert_eq!(task.to_string().parse::<TaskRef>()?, task);
/// # Ok::<(), longhaul::TaskRefError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskRef {
    /// Full name of the task topic.
    pub topic: String,
    /// The task's id: the id of its message.
    pub id: TaskId,
}

impl TaskRef {
    /// Refers to a task on this topic, submitted by any producer.
    ///
    /// # Errors
    /// When the topic's name is invalid.
    pub fn new(topic: &str, id: TaskId) -> Result<Self, TopicNameError> {
        let topic = TopicNames::new(topic, DEFAULT_SUBSCRIPTION)?.task;
        Ok(Self { topic, id })
    }
}

impl fmt::Display for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.topic, self.id)
    }
}

/// The text is not a task reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskRefError {
    /// The text has no `@`.
    #[error("not a task: `{0}` (expected QUEUE@ID)")]
    Shape(String),
    /// The part before the `@` is not a valid topic.
    #[error("the task reference has an invalid topic")]
    Topic(#[from] TopicNameError),
    /// The part after the `@` is not a valid task id.
    #[error("the task reference has an invalid task id")]
    Id(#[from] TaskIdError),
}

impl FromStr for TaskRef {
    type Err = TaskRefError;

    fn from_str(text: &str) -> Result<Self, TaskRefError> {
        const SHOWN_MAX: usize = 80;
        // An id contains no `@`; a topic's name may.
        let Some((topic, id)) = text.rsplit_once('@') else {
            return Err(TaskRefError::Shape(text.chars().take(SHOWN_MAX).collect()));
        };
        Ok(Self::new(topic, id.parse()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back() {
        for text in ["persistent://public/default/tasks@1:2:-1", "persistent://a/b/c@d@1:2:0:3"] {
            let task: TaskRef = text.parse().unwrap();
            assert_eq!(task.to_string(), text);
        }
        let short: TaskRef = "tasks@1:2:-1".parse().unwrap();
        assert_eq!(short.topic, "persistent://public/default/tasks");
    }

    #[test]
    fn other_texts_are_refused() {
        assert!(matches!("1:2:-1".parse::<TaskRef>(), Err(TaskRefError::Shape(_))));
        assert!(matches!("t@1:2".parse::<TaskRef>(), Err(TaskRefError::Id(_))));
        assert!(matches!("t-partition-0@1:2:0".parse::<TaskRef>(), Err(TaskRefError::Topic(_))));
    }
}
