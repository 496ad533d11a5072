//! Marks of tasks that were moved here from another queue.

use super::entry::Stamp;
use super::queue_task::QueueTask;
use crate::protocol::entry::EntryError;
use crate::protocol::key::Epoch;
use crate::task::{Properties, PropertyWriter};

/// A task of another queue, and the task here that has replaced it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moved {
    /// The task there.
    pub key: MovedKey,
    /// The task here; `None` while it is being copied: it may have a message here that is not bound
    /// to its key.
    pub mark: Option<MovedMark>,
}

/// The task that has replaced one of another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MovedMark {
    /// The task here.
    pub to: QueueTask,
    /// Whether the task there was over when it was moved.
    pub over: bool,
    /// Whether its dead letter is here, too.
    pub letter: bool,
    /// The last of its epochs there that had ended when it was copied; zero if there was none, or
    /// the task was over. While the task there is in this epoch, it has not changed.
    pub epoch: Epoch,
    /// Whether it is closed there, so that only the task here will run.
    pub closed: bool,
}

/// A task of another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MovedKey {
    /// The queue: the stamp of the first entry of its register.
    pub source: Stamp,
    /// The task there.
    pub task: QueueTask,
}

impl MovedMark {
    /// Whether another submitter's task replaces this unfinished one.
    #[must_use]
    pub const fn is_merged(self) -> bool {
        self.letter && !self.over
    }

    /// Whether the task may have changed there since it was copied.
    #[must_use]
    pub const fn is_open(self) -> bool {
        !self.over && !self.closed
    }
}

impl Moved {
    pub(super) fn put(&self, out: &mut PropertyWriter) {
        let Some(MovedMark { to, over, letter, epoch, closed }) = self.mark else { return };
        out.put("t", to);
        if epoch != Epoch(0) {
            out.put("e", epoch);
        }
        for (name, said) in [("x", over), ("l", letter), ("c", closed)] {
            if said {
                out.put_word(name, "1");
            }
        }
    }

    pub(super) fn read(key: MovedKey, properties: &Properties) -> Result<Self, EntryError> {
        let to = properties.get("t").map(|text| text.parse()).transpose();
        let to = to.map_err(|_| EntryError::Property("t"))?;
        let epoch = match properties.get("e") {
            None => Epoch(0),
            Some(text) => Epoch(text.parse().map_err(|_| EntryError::Property("e"))?),
        };
        let said = |name| properties.get(name).is_some();
        let (over, letter, closed) = (said("x"), said("l"), said("c"));
        Ok(Self { key, mark: to.map(|to| MovedMark { to, over, letter, epoch, closed }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::key::OwnerId;
    use crate::protocol::register::RegisterEntry;
    use crate::task::Priority;
    use crate::task::TaskId;

    #[test]
    fn a_mark_reads_back_whatever_it_says() {
        let task = |entry, level| {
            let id = TaskId { ledger: 7, entry, partition: 3, batch_index: None };
            QueueTask { level, id }
        };
        let source = Stamp { writer: OwnerId(9), serial: 5 };
        let key = MovedKey { source, task: task(1, Priority::Normal) };
        for said in 0..8 {
            for epoch in [0, 1, u32::MAX] {
                let [over, letter, closed] = [1, 2, 4].map(|bit| said & bit != 0);
                let (to, epoch) = (task(2, Priority::High), Epoch(epoch));
                let mark = MovedMark { to, over, letter, epoch, closed };
                for mark in [Some(mark), None] {
                    let entry = RegisterEntry::Moved(Moved { key, mark });
                    let text = entry.key().to_string();
                    let back =
                        RegisterEntry::read(Some(&text), &entry.properties(), &entry.body(), false);
                    assert_eq!(back, Ok(entry));
                }
            }
        }
    }

    #[test]
    fn a_mark_with_an_epoch_that_is_no_number_is_none() {
        let task = QueueTask {
            level: Priority::Normal,
            id: TaskId { ledger: 7, entry: 1, partition: 3, batch_index: None },
        };
        let key = MovedKey { source: Stamp { writer: OwnerId(9), serial: 5 }, task };
        let (over, letter, closed) = (false, false, false);
        let mark = Some(MovedMark { to: task, over, letter, epoch: Epoch(4), closed });
        let mut properties = RegisterEntry::Moved(Moved { key, mark }).properties();
        properties.insert("e", "four");
        assert_eq!(Moved::read(key, &properties), Err(EntryError::Property("e")));
    }
}
