//! Names of queues and tasks, and their topics.

use longhaul::{Priority, TaskId, TaskRef};
use std::fmt;
use std::str::FromStr;

/// The maximum length of a queue's name.
const BYTES_MAX: usize = 128;

/// Suffixes of topics that belong to a task topic.
const COMPANIONS: [&str; 6] = ["-metadata", "-ledger", "-register", "-DLQ", "-high", "-low"];

/// The name of a queue: a task topic in the gateway's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct QueueName(String);

/// The text is not the name of a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueNameError {
    /// It is malformed.
    #[error(
        "the name of a queue has 1 to {BYTES_MAX} characters of `-`, `_`, digits and letters; this one has {0}"
    )]
    Form(String),
    /// A topic of this name belongs to another queue.
    #[error("a queue's name does not end with `{0}`, as the topics do that belong to a queue")]
    Companion(&'static str),
}

impl QueueName {
    pub(crate) fn parse(text: &str) -> Result<Self, QueueNameError> {
        if text.is_empty() || text.len() > BYTES_MAX {
            return Err(QueueNameError::Form(format!("{} bytes", text.len())));
        }
        let is_bad = |it: &char| !(it.is_ascii_alphanumeric() || matches!(it, '-' | '_'));
        if let Some(bad) = text.chars().find(is_bad) {
            return Err(QueueNameError::Form(format!("`{}`", bad.escape_default())));
        }
        if let Some(ending) = COMPANIONS.into_iter().find(|ending| text.ends_with(ending)) {
            return Err(QueueNameError::Companion(ending));
        }
        let partition = text.rsplit_once("-partition-").map(|(_, index)| index);
        if partition.is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit())) {
            return Err(QueueNameError::Companion("-partition-N"));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a task in its queue: its id, prefixed by its priority level unless that is normal,
/// such as `high~12:0:-1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskName {
    pub(crate) level: Priority,
    pub(crate) id: TaskId,
}

/// The text is not the name of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not the id of a task; ids are such as `12:0:-1`, or `high~12:0:-1` for a task with a priority",
    .0.escape_debug()
)]
pub(crate) struct TaskNameError(String);

impl TaskName {
    /// The name of a library reference in its queue.
    pub(crate) fn of(task: &TaskRef) -> Self {
        let level = if task.topic.ends_with("-high") {
            Priority::High
        } else if task.topic.ends_with("-low") {
            Priority::Low
        } else {
            Priority::Normal
        };
        Self { level, id: task.id }
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Priority::High => write!(f, "high~{}", self.id),
            Priority::Normal => write!(f, "{}", self.id),
            Priority::Low => write!(f, "low~{}", self.id),
        }
    }
}

impl FromStr for TaskName {
    type Err = TaskNameError;

    fn from_str(text: &str) -> Result<Self, TaskNameError> {
        const SHOWN_MAX: usize = 80;
        let refused = || TaskNameError(text.chars().take(SHOWN_MAX).collect());
        let (level, id) = match text.split_once('~') {
            Some(("high", id)) => (Priority::High, id),
            Some(("low", id)) => (Priority::Low, id),
            Some(_) => return Err(refused()),
            None => (Priority::Normal, text),
        };
        Ok(Self { level, id: id.parse().map_err(|_| refused())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_that_no_other_topic_has() {
        for good in ["a", "tasks", "My_queue-2", &"q".repeat(128), "highway", "x-lowlands"] {
            assert_eq!(QueueName::parse(good).map(|it| it.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", &"q".repeat(129), "a/b", "a.b", "a b", "ä", "a\0", "..", "a%2f", "a\n"] {
            assert!(matches!(QueueName::parse(bad), Err(QueueNameError::Form(_))), "{bad:?}");
        }
        for taken in [
            "a-metadata",
            "a-ledger",
            "a-register",
            "a-longhaul-DLQ",
            "a-high",
            "a-low",
            "a-partition-3",
        ] {
            let refused = QueueName::parse(taken);
            assert!(matches!(refused, Err(QueueNameError::Companion(_))), "{taken}");
        }
    }

    #[test]
    fn a_task_is_named_with_its_level() {
        for text in ["12:0:-1", "high~12:0:3", "low~12:0:-1:7"] {
            assert_eq!(text.parse::<TaskName>().unwrap().to_string(), text);
        }
        for bad in ["", "12:0", "normal~12:0:-1", "high~", "~12:0:-1", "high~low~1:2:3", "1:2:3\0"]
        {
            assert!(bad.parse::<TaskName>().is_err(), "{bad:?}");
        }
        let task: TaskRef = "a/b/tasks-low@12:0:-1".parse().unwrap();
        assert_eq!(TaskName::of(&task).to_string(), "low~12:0:-1");
    }
}
