//! Names of queues, their levels and their tasks.

#![warn(missing_docs)]

use longhaul_core::task::{Priority, TaskId};
use std::fmt;
use std::str::FromStr;

/// The maximum length of a queue's name.
const BYTES_MAX: usize = 128;

/// Suffixes of topics that belong to a task topic.
const COMPANIONS: [&str; 6] = ["-metadata", "-ledger", "-register", "-DLQ", "-high", "-low"];

/// The name of a queue: a task topic in the gateway's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(String);

/// The text is not the name of a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueNameError {
    /// It is malformed.
    #[error(
        "a queue name has 1 to {BYTES_MAX} characters of `-`, `_`, `.`, digits and letters, and \
         does not begin with `.`; this one has {0}"
    )]
    Form(String),
    /// A topic of this name belongs to another queue.
    #[error("a queue name cannot end with `{0}`: that ending marks another topic of a queue")]
    Companion(&'static str),
}

impl QueueName {
    /// Reads a name.
    ///
    /// # Errors
    /// When it is malformed, or that of a topic which belongs to a queue.
    pub fn parse(text: &str) -> Result<Self, QueueNameError> {
        if text.is_empty() || text.len() > BYTES_MAX {
            return Err(QueueNameError::Form(format!("{} bytes", text.len())));
        }
        // A segment of a path that is one dot or two means another path.
        if text.starts_with('.') {
            return Err(QueueNameError::Form("a `.` at its beginning".to_owned()));
        }
        let is_bad = |it: &char| !(it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.'));
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

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A priority level of a queue: its tasks of one priority, which have a task topic of their own.
/// Actions on tasks apply to one level, so they take a level, not the name of a queue.
///
/// ```
/// use longhaul_api::QueueLevel;
///
/// let level: QueueLevel = "mails-high".parse()?;
/// assert_eq!(level.queue().as_str(), "mails");
/// assert_eq!(level.task("12:0:-1".parse()?).to_string(), "high~12:0:-1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueLevel {
    queue: QueueName,
    level: Priority,
}

impl QueueLevel {
    /// A level of a queue.
    #[must_use]
    pub const fn new(queue: QueueName, level: Priority) -> Self {
        Self { queue, level }
    }

    /// All levels of a queue, the highest first.
    #[must_use]
    pub fn all(queue: &QueueName) -> [Self; 3] {
        Priority::ALL.map(|level| Self::new(queue.clone(), level))
    }

    /// The queue.
    #[must_use]
    pub const fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The priority of its tasks.
    #[must_use]
    pub const fn level(&self) -> Priority {
        self.level
    }

    /// The name of its task with this id.
    #[must_use]
    pub const fn task(&self, id: TaskId) -> TaskName {
        TaskName { level: self.level, id }
    }
}

/// The name of its task topic: `mails`, `mails-high` or `mails-low`.
impl fmt::Display for QueueLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.queue, self.level.suffix())
    }
}

impl FromStr for QueueLevel {
    type Err = QueueNameError;

    fn from_str(topic: &str) -> Result<Self, QueueNameError> {
        let (queue, level) = Priority::of_topic(topic);
        Ok(Self { queue: QueueName::parse(queue)?, level })
    }
}

/// The name of a task in its queue: its id, prefixed by its priority level unless that is normal,
/// such as `high~12:0:-1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskName {
    /// The level of its queue.
    pub level: Priority,
    /// Its id.
    pub id: TaskId,
}

/// The text is not the name of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a task id; expected one such as `12:0:-1`, or `high~12:0:-1` for a task with a \
     priority",
    .0.escape_debug()
)]
pub struct TaskNameError(String);

impl TaskName {
    /// The name of the task with this task topic and id.
    #[must_use]
    pub fn of(topic: &str, id: TaskId) -> Self {
        Self { level: Priority::of_topic(topic).1, id }
    }

    /// The level of a queue that it belongs to.
    #[must_use]
    pub fn in_queue(&self, queue: &QueueName) -> QueueLevel {
        QueueLevel::new(queue.clone(), self.level)
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Priority::Normal => write!(f, "{}", self.id),
            Priority::High | Priority::Low => write!(f, "{}~{}", self.level, self.id),
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
        for good in
            ["a", "tasks", "My_queue-2", &"q".repeat(128), "highway", "x-lowlands", "orders.made"]
        {
            assert_eq!(QueueName::parse(good).map(|it| it.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", &"q".repeat(129), "a/b", ".b", "a b", "ä", "a\0", "..", "a%2f", "a\n"] {
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
        let name = TaskName::of("a/b/tasks-low", "12:0:-1".parse().unwrap());
        assert_eq!(name.to_string(), "low~12:0:-1");
    }

    #[test]
    fn a_task_topic_names_a_queue_and_its_level() {
        for (topic, queue, level) in [
            ("mails", "mails", Priority::Normal),
            ("mails-high", "mails", Priority::High),
            ("mails-low", "mails", Priority::Low),
        ] {
            let read: QueueLevel = topic.parse().unwrap();
            assert_eq!((read.queue().as_str(), read.level()), (queue, level));
            assert_eq!(read.to_string(), topic);
        }
        for bad in ["", "-high", "mails-high-low", "a/mails", "mails-ledger"] {
            assert!(bad.parse::<QueueLevel>().is_err(), "{bad:?}");
        }
    }
}
