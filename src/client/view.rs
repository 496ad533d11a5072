//! What a partition of the metadata topic M shows of each task. Pure.
//!
//! M is a view, and its last entry of a task may be a late one of a worker that was replaced. So an
//! entry of a lower epoch than one seen before is ignored, as is one that takes an ended task back
//! within its epoch. Entries without an epoch, of other implementations, are taken as they come.
//!
//! Entries may come again: what lies at or before the last position read changes nothing.
//!
//! Memory: where the last entry of each task lies, until the task is evicted there. What it says is
//! read again when somebody asks.

use super::watch::WatchEvent;
use crate::transport::Message;
use longhaul_core::task::{Position, TaskId, TaskMetadata, TaskState};
use std::collections::HashMap;

/// The tasks of one partition of M.
#[derive(Debug, Default)]
pub(super) struct ShownTasks {
    tasks: HashMap<TaskId, ShownTask>,
    /// The last position read.
    last: Option<Position>,
    /// See [`is_java_end`].
    java_attempts: Option<u32>,
}

/// What is shown of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownTask {
    /// Where the entry lies.
    pub(super) at: Position,
    /// The task has ended.
    pub(super) ended: bool,
    /// The highest epoch seen.
    epoch: Option<u32>,
}

/// What an entry changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ViewChange {
    /// Nothing that anybody waits for.
    Nothing,
    /// The task has ended.
    Ended(TaskId, Box<TaskMetadata>),
    /// The task's entry was taken away.
    Evicted(TaskId),
}

impl ShownTasks {
    /// See [`is_java_end`].
    pub(super) fn with_java_attempts(attempts: Option<u32>) -> Self {
        Self { java_attempts: attempts, ..Self::default() }
    }

    /// Takes an entry in.
    pub(super) fn read(&mut self, message: &Message) -> ViewChange {
        if self.last.is_some_and(|last| message.position <= last) {
            return ViewChange::Nothing;
        }
        self.last = Some(message.position);
        if message.replicated_from.is_some() {
            // Its id means another task here.
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
            // No entry says so.
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
        let failed = metadata.state == TaskState::Failed;
        let ended = metadata.is_terminal()
            || (failed && is_java_end(self.java_attempts, epoch, metadata.attempts));
        let before = self.tasks.get(&id);
        if before.is_some_and(|shown| shown.outranks(ended, epoch)) {
            return ViewChange::Nothing;
        }
        let epoch = before.and_then(|shown| shown.epoch).max(epoch);
        self.tasks.insert(id, ShownTask { at, ended, epoch });
        if ended { ViewChange::Ended(id, Box::new(metadata)) } else { ViewChange::Nothing }
    }

    /// What is shown of a task.
    pub(super) fn get(&self, id: TaskId) -> Option<ShownTask> {
        self.tasks.get(&id).copied()
    }

    /// Forgets a task whose entry is not there any more, unless another one has come.
    pub(super) fn forget(&mut self, id: TaskId, at: Position) {
        if self.get(id).is_some_and(|shown| shown.at == at) {
            self.tasks.remove(&id);
        }
    }

    /// Whether everything up to this position was read.
    pub(super) fn has_read(&self, position: Option<Position>) -> bool {
        self.last >= position
    }
}

impl ShownTask {
    /// Whether an entry that comes later says less than this one.
    fn outranks(&self, ended: bool, epoch: Option<u32>) -> bool {
        self.epoch.is_some_and(|own| is_late((own, self.ended), (epoch, ended)))
    }
}

/// Whether an entry of this epoch, if it says one, comes too late behind one of that epoch; each
/// with whether it shows the task's end.
pub(super) fn is_late(shown: (u32, bool), entry: (Option<u32>, bool)) -> bool {
    let ((own, shows_end), (Some(other), ended)) = (shown, entry) else { return false };
    other < own || (other == own && shows_end && !ended)
}

/// Whether a failure at this attempt is the end of its task, which an entry of the Java reference
/// does not say: its workers have so many, if that is known.
pub(super) fn is_java_end(java_attempts: Option<u32>, epoch: Option<u32>, attempt: u32) -> bool {
    epoch.is_none() && java_attempts.is_some_and(|attempts| attempt >= attempts)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{completed, entry, failed, processing, tombstone};
    use super::*;

    const A: TaskId = TaskId { ledger: 1, entry: 1, partition: -1, batch_index: None };

    fn ends(change: &ViewChange) -> bool {
        matches!(change, ViewChange::Ended(A, _))
    }

    /// The entry that is shown of the task, by its number.
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
    fn the_last_failure_of_a_java_worker_is_the_end_where_their_attempts_are_known() {
        let java = |view: &mut ShownTasks, at, attempts| {
            ends(&view.read(&entry(at, &failed(A, attempts, None), None)))
        };
        let mut view = ShownTasks::default();
        assert!(!java(&mut view, 1, 3));
        let mut view = ShownTasks::with_java_attempts(Some(3));
        assert!(!java(&mut view, 1, 2));
        assert!(java(&mut view, 2, 3));
        assert!(view.get(A).is_some_and(|shown| shown.ended));
        let mut view = ShownTasks::with_java_attempts(Some(3));
        let ours = entry(1, &failed(A, 3, None), Some(3));
        assert_eq!(view.read(&ours), ViewChange::Nothing, "it says itself when it is the last");
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
