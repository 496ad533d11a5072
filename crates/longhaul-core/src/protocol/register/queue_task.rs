//! Identifies a task on all topics of a queue; a task id alone does not tell the topic of its
//! message.

use crate::task::Priority;
use crate::task::TaskId;
use std::fmt;
use std::str::FromStr;

/// A task of a queue. As text: `21426:0:-1` on the queue's own topic, `high:21426:0:-1` and
/// `low:21426:0:-1` on those of its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueTask {
    /// The level of the queue's topic with its message.
    pub level: Priority,
    /// The id of that message.
    pub id: TaskId,
}

/// Level and partition, or -1: of two tasks of one lane the higher id is the later message.
pub type QueuePartition = (Priority, i32);

/// The text is not a task of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTaskError;

impl QueueTask {
    /// A task of the queue's own topic.
    #[must_use]
    pub const fn normal(id: TaskId) -> Self {
        Self { level: Priority::Normal, id }
    }

    /// The lane of its message.
    #[must_use]
    pub const fn lane(self) -> QueuePartition {
        (self.level, self.id.partition)
    }

    /// Whether an overwriter replaces this task: it is a later one of the same lane.
    #[must_use]
    pub fn makes_room_for(self, overwriter: Self) -> bool {
        self.lane() == overwriter.lane() && self.id < overwriter.id
    }
}

impl fmt::Display for QueueTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Priority::Normal => write!(f, "{}", self.id),
            level @ (Priority::High | Priority::Low) => write!(f, "{level}:{}", self.id),
        }
    }
}

impl FromStr for QueueTask {
    type Err = QueueTaskError;

    fn from_str(text: &str) -> Result<Self, QueueTaskError> {
        let of_level = |level: Priority| {
            let id = text.strip_prefix(level.word())?.strip_prefix(':')?;
            Some(Self { level, id: id.parse().ok()? })
        };
        let named = [Priority::High, Priority::Low].into_iter().find_map(of_level);
        named.or_else(|| text.parse().ok().map(Self::normal)).ok_or(QueueTaskError)
    }
}
