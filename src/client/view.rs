//! The entry that one partition of the metadata topic shows for each task. Pure.
//!
//! The metadata topic is a view: the last entry of a task may come late, from a replaced worker. So
//! two kinds of entries are ignored: an entry of a lower epoch than one seen before, and an entry
//! that reopens an ended task within its epoch. Entries of other implementations have no epoch and
//! are taken as they come.
//!
//! Entries may be delivered again: an entry at or before the last position read changes nothing.
//!
//! Memory: the position of each task's last entry, until the task is evicted there. The content is
//! read again when it is asked for.

use super::watch::WatchEvent;
use crate::transport::Message;
use longhaul_core::task::{Position, TaskId, TaskMetadata};
use std::collections::HashMap;

/// The tasks of one partition of the metadata topic.
#[derive(Debug, Default)]
pub(super) struct ShownTasks {
    tasks: HashMap<TaskId, ShownTask>,
    /// The last position read.
    last: Option<Position>,
}

/// The last entry shown for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownTask {
    /// The position of the entry.
    pub(super) at: Position,
    /// The task has ended.
    pub(super) ended: bool,
    /// The highest epoch seen.
    epoch: Option<u32>,
}

/// What an entry changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ViewChange {
    /// Nothing that a caller waits for.
    Nothing,
    /// The task has ended.
    Ended(TaskId, Box<TaskMetadata>),
    /// The task's entry was removed.
    Evicted(TaskId),
}

impl ShownTasks {
    /// Reads an entry.
    pub(super) fn read(&mut self, message: &Message) -> ViewChange {
        if self.last.is_some_and(|last| message.position <= last) {
            return ViewChange::Nothing;
        }
        self.last = Some(message.position);
        if message.replicated_from.is_some() {
            // The id of a replicated entry means another task in this cluster.
            return ViewChange::Nothing;
        }
        match WatchEvent::read(message) {
            WatchEvent::Updated { id, metadata, epoch } => {
                self.update(id, metadata, epoch, message.position)
            }
            WatchEvent::Evicted { id } => {
                self.tasks.remove(&id);
                ViewChange::Evicted(id)
            }
            WatchEvent::Undecodable { key, position, cause } => {
                tracing::warn!(?key, ?position, cause, "not an entry of the metadata topic");
                ViewChange::Nothing
            }
            // `WatchEvent::read` never returns this.
            WatchEvent::CaughtUp => ViewChange::Nothing,
        }
    }

    fn update(
        &mut self,
        id: TaskId,
        metadata: TaskMetadata,
        epoch: Option<u32>,
        at: Position,
    ) -> ViewChange {
        let ended = metadata.is_terminal();
        let before = self.tasks.get(&id);
        if before.is_some_and(|shown| shown.outranks(ended, epoch)) {
            return ViewChange::Nothing;
        }
        let epoch = before.and_then(|shown| shown.epoch).max(epoch);
        self.tasks.insert(id, ShownTask { at, ended, epoch });
        if ended { ViewChange::Ended(id, Box::new(metadata)) } else { ViewChange::Nothing }
    }

    /// The last entry shown for a task.
    pub(super) fn get(&self, id: TaskId) -> Option<ShownTask> {
        self.tasks.get(&id).copied()
    }

    /// Forgets a task whose entry is gone, unless a newer entry has been read.
    pub(super) fn forget(&mut self, id: TaskId, at: Position) {
        if self.get(id).is_some_and(|shown| shown.at == at) {
            self.tasks.remove(&id);
        }
    }

    /// Whether all entries up to this position were read.
    pub(super) fn has_read(&self, position: Option<Position>) -> bool {
        self.last >= position
    }
}

impl ShownTask {
    /// Whether a later entry is out of date against this one.
    fn outranks(&self, ended: bool, epoch: Option<u32>) -> bool {
        self.epoch.is_some_and(|own| is_late((own, self.ended), (epoch, ended)))
    }
}

/// Whether an entry is late: of a lower epoch than the one shown, or of the same epoch and not the
/// task's end when the end is already shown. Each pair is an epoch and whether the entry shows the
/// end. An entry without an epoch is never late.
pub(super) fn is_late(shown: (u32, bool), entry: (Option<u32>, bool)) -> bool {
    let ((own, shows_end), (Some(other), ended)) = (shown, entry) else { return false };
    other < own || (other == own && shows_end && !ended)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{completed, entry, failed, processing, tombstone};
    use super::*;

    const A: TaskId = TaskId { ledger: 1, entry: 1, partition: -1, batch_index: None };

    fn ends(change: &ViewChange) -> bool {
        matches!(change, ViewChange::Ended(A, _))
    }

    /// The entry number of the task's last entry.
    fn shown(view: &ShownTasks) -> Option<u64> {
        view.get(A).map(|shown| shown.at.entry)
    }

    #[test]
    fn a_failure_without_outcome_is_not_the_end() {
        let mut view = ShownTasks::default();
        assert_eq!(view.read(&entry(1, &processing(A, 1), Some(1))), ViewChange::Nothing);
        assert_eq!(view.read(&entry(2, &failed(A, 1, None), Some(1))), ViewChange::Nothing);
        assert!(ends(&view.read(&entry(3, &completed(A, 2), Some(2)))));
    }

    #[test]
    fn a_lower_epoch_is_ignored() {
        let mut view = ShownTasks::default();
        view.read(&entry(1, &processing(A, 2), Some(2)));
        assert_eq!(view.read(&entry(2, &completed(A, 1), Some(1))), ViewChange::Nothing);
        assert_eq!(shown(&view), Some(1));
        assert!(ends(&view.read(&entry(3, &completed(A, 2), Some(2)))));
        view.read(&entry(4, &processing(A, 1), Some(1)));
        view.read(&entry(5, &processing(A, 2), Some(2)));
        assert!(view.get(A).is_some_and(|shown| shown.ended));
        view.read(&entry(6, &completed(A, 2), Some(2)));
        assert_eq!(shown(&view), Some(6), "what was repaired lies elsewhere");
    }

    #[test]
    fn entries_without_epoch_are_taken_and_do_not_lower_it() {
        let mut view = ShownTasks::default();
        view.read(&entry(1, &processing(A, 2), Some(2)));
        view.read(&entry(2, &processing(A, 3), None));
        assert_eq!(shown(&view), Some(2));
        view.read(&entry(3, &processing(A, 1), Some(1)));
        assert_eq!(shown(&view), Some(2));
    }

    #[test]
    fn what_comes_again_changes_nothing() {
        let mut view = ShownTasks::default();
        let first = entry(1, &completed(A, 1), Some(1));
        assert!(ends(&view.read(&first)));
        view.read(&tombstone(2, A));
        assert_eq!(view.read(&first), ViewChange::Nothing);
        assert_eq!(view.get(A), None);
    }

    #[test]
    fn only_the_entry_that_has_gone_is_forgotten() {
        let mut view = ShownTasks::default();
        let first = entry(1, &processing(A, 1), Some(1));
        view.read(&first);
        view.read(&entry(2, &completed(A, 1), Some(1)));
        view.forget(A, first.position);
        assert_eq!(shown(&view), Some(2));
        view.forget(A, entry(2, &completed(A, 1), None).position);
        assert_eq!(view.get(A), None);
    }

    #[test]
    fn undecodable_entries_are_passed_over() {
        let mut view = ShownTasks::default();
        let mut garbage = entry(1, &completed(A, 1), Some(1));
        garbage.payload = bytes::Bytes::from_static(b"[1]");
        assert_eq!(view.read(&garbage), ViewChange::Nothing);
        assert!(view.has_read(Some(garbage.position)));
        assert!(ends(&view.read(&entry(2, &completed(A, 1), Some(1)))));
    }
}
