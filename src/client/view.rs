//! What a partition of the metadata topic M shows of each task. Pure.
//!
//! M is a view, and its last entry of a task may be a late one of a worker that was replaced. So an entry of a lower epoch than
//! one seen before is ignored, as is one that takes an ended task back within its epoch. Entries without an epoch, of other
//! implementations, are taken as they come.
//!
//! When a follower is lost, the next one reads from the start again: what lies at or before the last position read changes nothing.
//! Such a *fresh* reading also tells which tasks were evicted meanwhile: those that it does not name any more.
//!
//! Memory: what M holds of each task, payload and result included, until the task is evicted there.

use super::watch::WatchEvent;
use crate::task::{Position, TaskId, TaskMetadata};
use crate::transport::Message;
use std::collections::HashMap;
use std::sync::Arc;

/// The tasks of one partition of M.
#[derive(Debug, Default)]
pub(super) struct TaskView {
    tasks: HashMap<TaskId, Shown>,
    /// The last position read, of all readings.
    last: Option<Position>,
    /// Numbers the readings from the start.
    reading: u32,
    /// The reading has not come to `last` yet.
    catching_up: bool,
}

#[derive(Debug)]
struct Shown {
    metadata: Arc<TaskMetadata>,
    epoch: Option<u32>,
    /// The last reading that named the task.
    reading: u32,
}

/// What an entry changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that anybody waits for.
    Nothing,
    /// The task has ended.
    Ended(TaskId, Arc<TaskMetadata>),
    /// The task's entry was taken away.
    Evicted(TaskId),
}

impl TaskView {
    /// A reading from the start begins.
    pub(super) fn restart(&mut self) {
        self.reading = self.reading.wrapping_add(1);
        self.catching_up = self.last.is_some();
    }

    /// Takes an entry in.
    pub(super) fn read(&mut self, message: &Message) -> Change {
        let again = self.last.is_some_and(|last| message.position <= last);
        if self.catching_up && Some(message.position) >= self.last {
            self.catching_up = false;
            let (reading, last_key) = (self.reading, task_of(message));
            self.tasks.retain(|id, shown| shown.reading == reading || Some(*id) == last_key);
        }
        if again {
            let shown = task_of(message).and_then(|id| self.tasks.get_mut(&id));
            if let Some(shown) = shown {
                shown.reading = self.reading;
            }
            return Change::Nothing;
        }
        self.last = Some(message.position);
        if message.replicated_from.is_some() {
            // Its id means another task here.
            return Change::Nothing;
        }
        match WatchEvent::read(message) {
            WatchEvent::Updated { id, metadata, epoch } => self.update(id, metadata, epoch),
            WatchEvent::Evicted { id } => {
                self.tasks.remove(&id);
                Change::Evicted(id)
            }
            WatchEvent::Undecodable { key, position, cause } => {
                tracing::warn!(?key, ?position, cause, "not an entry of the metadata topic");
                Change::Nothing
            }
            // No entry says so.
            WatchEvent::CaughtUp => Change::Nothing,
        }
    }

    fn update(&mut self, id: TaskId, metadata: TaskMetadata, epoch: Option<u32>) -> Change {
        let before = self.tasks.get_mut(&id);
        if let Some(shown) = before.filter(|shown| shown.outranks(&metadata, epoch)) {
            shown.reading = self.reading;
            return Change::Nothing;
        }
        let metadata = Arc::new(metadata);
        let highest = self.tasks.get(&id).and_then(|shown| shown.epoch).max(epoch);
        let reading = self.reading;
        let shown = Shown { metadata: Arc::clone(&metadata), epoch: highest, reading };
        self.tasks.insert(id, shown);
        if metadata.is_terminal() { Change::Ended(id, metadata) } else { Change::Nothing }
    }

    /// What is shown of a task.
    pub(super) fn get(&self, id: TaskId) -> Option<Arc<TaskMetadata>> {
        self.tasks.get(&id).map(|shown| Arc::clone(&shown.metadata))
    }

    /// Whether everything up to this position was read.
    pub(super) fn has_read(&self, position: Option<Position>) -> bool {
        self.last >= position
    }
}

impl Shown {
    /// Whether an entry that comes later says less than this one.
    fn outranks(&self, metadata: &TaskMetadata, epoch: Option<u32>) -> bool {
        let (Some(own), Some(other)) = (self.epoch, epoch) else { return false };
        let taken_back = self.metadata.is_terminal() && !metadata.is_terminal();
        other < own || (other == own && taken_back)
    }
}

fn task_of(message: &Message) -> Option<TaskId> {
    message.key.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::fake::{completed, entry, failed, processing, tombstone};
    use super::*;

    const A: TaskId = TaskId { ledger: 1, entry: 1, partition: -1, batch_index: None };
    const B: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };

    fn ends(change: &Change) -> bool {
        matches!(change, Change::Ended(A, _))
    }

    fn attempts(view: &TaskView, id: TaskId) -> Option<u32> {
        view.get(id).map(|metadata| metadata.attempts)
    }

    #[test]
    fn a_failure_without_outcome_is_not_the_end() {
        let mut view = TaskView::default();
        assert_eq!(view.read(&entry(1, &processing(A, 1), Some(1))), Change::Nothing);
        assert_eq!(view.read(&entry(2, &failed(A, 1, None), Some(1))), Change::Nothing);
        assert!(ends(&view.read(&entry(3, &completed(A, 2), Some(2)))));
    }

    #[test]
    fn a_lower_epoch_is_ignored() {
        let mut view = TaskView::default();
        view.read(&entry(1, &processing(A, 2), Some(2)));
        assert_eq!(view.read(&entry(2, &completed(A, 1), Some(1))), Change::Nothing);
        assert_eq!(attempts(&view, A), Some(2));
        assert!(ends(&view.read(&entry(3, &completed(A, 2), Some(2)))));
        view.read(&entry(4, &processing(A, 1), Some(1)));
        view.read(&entry(5, &processing(A, 2), Some(2)));
        assert!(view.get(A).is_some_and(|metadata| metadata.is_terminal()));
    }

    #[test]
    fn entries_without_epoch_are_taken_and_do_not_lower_it() {
        let mut view = TaskView::default();
        view.read(&entry(1, &processing(A, 2), Some(2)));
        view.read(&entry(2, &processing(A, 3), None));
        assert_eq!(attempts(&view, A), Some(3));
        view.read(&entry(3, &processing(A, 1), Some(1)));
        assert_eq!(attempts(&view, A), Some(3));
    }

    #[test]
    fn what_comes_again_changes_nothing() {
        let mut view = TaskView::default();
        let first = entry(1, &completed(A, 1), Some(1));
        assert!(ends(&view.read(&first)));
        view.read(&tombstone(2, A));
        assert_eq!(view.read(&first), Change::Nothing);
        assert_eq!(view.get(A), None);
    }

    #[test]
    fn a_fresh_reading_forgets_what_it_does_not_name() {
        let mut view = TaskView::default();
        view.read(&entry(1, &completed(A, 1), Some(1)));
        view.read(&entry(2, &completed(B, 1), Some(1)));
        view.read(&entry(3, &processing(B, 1), Some(1)));
        view.restart();
        // Compaction has removed the rest meanwhile.
        view.read(&entry(2, &completed(B, 1), Some(1)));
        assert!(view.get(A).is_some());
        view.read(&entry(9, &processing(TaskId { entry: 7, ..A }, 1), Some(1)));
        assert_eq!((view.get(A), attempts(&view, B)), (None, Some(1)));
    }

    #[test]
    fn undecodable_entries_are_passed_over() {
        let mut view = TaskView::default();
        let mut garbage = entry(1, &completed(A, 1), Some(1));
        garbage.payload = bytes::Bytes::from_static(b"[1]");
        assert_eq!(view.read(&garbage), Change::Nothing);
        assert!(view.has_read(Some(garbage.position)));
        assert!(ends(&view.read(&entry(2, &completed(A, 1), Some(1)))));
    }
}
