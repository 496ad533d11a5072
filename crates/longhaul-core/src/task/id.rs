//! Identifies tasks and the messages that carry them.

use longhaul_types::{EntryId, Position};
use std::cmp::Ordering;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Identifies a task: the message id of the task's message on the task topic.
///
/// Its text form is the Java client's: `ledger:entry:partition`, with `:index` added for a message
/// in a batch. The partition is -1 on a topic without partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    /// Ledger of the task's message.
    pub ledger: u64,
    /// Entry of the task's message.
    pub entry: u64,
    /// Partition of the task topic, or -1.
    pub partition: i32,
    /// Index inside the batch; `None` for a message outside a batch.
    pub batch_index: Option<u32>,
}

impl TaskId {
    /// The id of the message at `position` of a partition.
    #[must_use]
    pub const fn new(position: Position, partition: i32) -> Self {
        let Position { ledger, entry, batch_index } = position;
        Self { ledger, entry, partition, batch_index }
    }

    /// The ids of all tasks of an entry, for any partition and batch index.
    #[must_use]
    pub const fn all_of(entry: EntryId) -> RangeInclusive<Self> {
        let EntryId { ledger, entry } = entry;
        let first = Self { ledger, entry, partition: i32::MIN, batch_index: None };
        let last = Self { ledger, entry, partition: i32::MAX, batch_index: Some(u32::MAX) };
        first..=last
    }

    /// Position of the task's message in its partition.
    #[must_use]
    pub const fn position(self) -> Position {
        Position { ledger: self.ledger, entry: self.entry, batch_index: self.batch_index }
    }

    /// The entry that holds the task's message.
    #[must_use]
    pub const fn entry_id(self) -> EntryId {
        EntryId { ledger: self.ledger, entry: self.entry }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.ledger, self.entry, self.partition)?;
        match self.batch_index {
            Some(index) => write!(f, ":{index}"),
            None => Ok(()),
        }
    }
}

/// Orders by ledger, entry, partition and index. Large maps have ids as their keys, so this uses
/// two comparisons instead of four.
impl Ord for TaskId {
    fn cmp(&self, other: &Self) -> Ordering {
        let entry = |id: &Self| u128::from(id.ledger) << 64 | u128::from(id.entry);
        let rest = |id: &Self| (id.partition, id.batch_index);
        entry(self).cmp(&entry(other)).then_with(|| rest(self).cmp(&rest(other)))
    }
}

impl PartialOrd for TaskId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The text is not a task id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a task id: `{0}` (expected ledger:entry:partition or ledger:entry:partition:index)")]
pub struct TaskIdError(String);

impl FromStr for TaskId {
    type Err = TaskIdError;

    fn from_str(text: &str) -> Result<Self, TaskIdError> {
        parse_task_id(text).ok_or_else(|| TaskIdError(text.chars().take(80).collect()))
    }
}

fn parse_task_id(text: &str) -> Option<TaskId> {
    let mut parts = text.split(':');
    let ledger = parts.next()?.parse().ok()?;
    let entry = parts.next()?.parse().ok()?;
    let partition = parts.next()?.parse().ok().filter(|partition| *partition >= -1)?;
    let batch_index = parts.next().map(str::parse).transpose().ok()?;
    parts.next().is_none().then_some(TaskId { ledger, entry, partition, batch_index })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_that_of_the_java_client() {
        let id = TaskId { ledger: 21426, entry: 0, partition: -1, batch_index: None };
        assert_eq!(id.to_string(), "21426:0:-1");
        let id = TaskId { partition: 2, batch_index: Some(0), ..id };
        assert_eq!(id.to_string(), "21426:0:2:0");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "1", "1:2", "1:2:-2", "1:2:3:4:5", "1:2:3:", "a:2:3", "-1:2:3", " 1:2:3"] {
            assert_eq!(text.parse::<TaskId>(), Err(TaskIdError(text.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn text_reads_back(ledger: u64, entry: u64, partition in -1..i32::MAX, batch_index: Option<u32>) {
            let id = TaskId { ledger, entry, partition, batch_index };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }
}
