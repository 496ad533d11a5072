//! Texts about tasks that are needed until the end of the task is shown. Pure.

use longhaul_core::task::TaskId;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The most tasks that have a text.
pub(super) const NOTES_MAX: usize = 10_000;

/// A text for each of some tasks. Beyond the maximum the oldest text is dropped.
#[derive(Debug, Default)]
pub(super) struct TaskNotes {
    /// The place in the order of insertion, and the text.
    texts: BTreeMap<TaskId, (u64, Arc<str>)>,
    order: BTreeMap<u64, TaskId>,
    next: u64,
}

impl TaskNotes {
    pub(super) fn insert(&mut self, task: TaskId, text: Arc<str>) {
        self.remove(task);
        self.texts.insert(task, (self.next, text));
        self.order.insert(self.next, task);
        self.next += 1;
        if self.texts.len() > NOTES_MAX
            && let Some((_, first)) = self.order.pop_first()
        {
            self.texts.remove(&first);
        }
    }

    pub(super) fn get(&self, task: TaskId) -> Option<&Arc<str>> {
        self.texts.get(&task).map(|(_, text)| text)
    }

    pub(super) fn remove(&mut self, task: TaskId) {
        if let Some((place, _)) = self.texts.remove(&task) {
            self.order.remove(&place);
        }
    }

    pub(super) fn remove_all(&mut self, tasks: RangeInclusive<TaskId>) {
        let gone: Vec<TaskId> = self.texts.range(tasks).map(|(task, _)| *task).collect();
        for task in gone {
            self.remove(task);
        }
    }
}

#[cfg(test)]
impl TaskNotes {
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.texts.len(), self.order.len());
        self.texts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that does not read the metadata topic keeps texts up to the maximum. The lease of
    /// an old task may end last.
    #[test]
    fn those_are_dropped_first_that_came_first() {
        let task = |entry| TaskId { ledger: 1, entry, partition: -1, batch_index: None };
        let mut notes = TaskNotes::default();
        let first = NOTES_MAX as u64 + 5;
        for entry in (0..=first).rev() {
            notes.insert(task(entry), "ann".into());
            assert!(notes.get(task(entry)).is_some());
        }
        assert_eq!(notes.len(), NOTES_MAX);
        assert!(notes.get(task(first)).is_none());
    }
}
