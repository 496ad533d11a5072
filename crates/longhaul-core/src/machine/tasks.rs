//! All tasks that a worker knows: open ones in full, finished ones in compact form.
//!
//! Nearly all known tasks are finished ones that wait to be sealed, up to a million on a busy
//! queue, while at most a few thousand are open. Keeping the two apart makes frequent look-ups
//! fast, because the open map is small, and a finished task takes a quarter of the room. The
//! interface is the same for both.

use super::finished::FinishedTasks;
use super::task::Task;
use crate::task::{EntryId, TaskId};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{Hash, Hasher};
use std::ops::{Bound, RangeInclusive};

/// The tasks of a worker. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    /// Boxed: a map of large values takes up twice their size.
    open: BTreeMap<TaskId, Box<Task>>,
    finished: FinishedTasks,
    /// Tasks that may have come to rest since the last [`Tasks::rest`].
    touched: Vec<TaskId>,
    /// For tests: keep all tasks in full.
    #[cfg(test)]
    pub(super) restless: bool,
}

impl Tasks {
    /// A task.
    pub(super) fn get(&self, id: TaskId) -> Option<Cow<'_, Task>> {
        match self.open.get(&id) {
            Some(task) => Some(Cow::Borrowed(task)),
            None => self.finished.get(id).map(Cow::Owned),
        }
    }

    /// Mutable access to a task. A finished one is kept in full until [`Tasks::rest`].
    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        let task = match self.open.entry(id) {
            Entry::Occupied(task) => task.into_mut(),
            Entry::Vacant(place) => place.insert(Box::new(self.finished.remove(id)?)),
        };
        if task.fold.phase.is_terminal() && self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
        Some(task)
    }

    /// Mutable access to a task, which is created if unknown. A caller that ends the task must call
    /// [`Tasks::ended`].
    pub(super) fn get_or_new(&mut self, id: TaskId) -> &mut Task {
        let Self { open, finished, touched, .. } = self;
        open.entry(id).or_insert_with(|| {
            let task = finished.remove(id).unwrap_or_default();
            if task.fold.phase.is_terminal() {
                touched.push(id);
            }
            Box::new(task)
        })
    }

    /// Notes that the task has ended.
    pub(super) fn ended(&mut self, id: TaskId) {
        self.touched.push(id);
    }

    /// Moves changed tasks that have finished and have no work in progress to the compact form.
    pub(super) fn rest(&mut self) {
        #[cfg(test)]
        if self.restless {
            return;
        }
        for id in self.touched.drain(..) {
            if let Entry::Occupied(task) = self.open.entry(id)
                && FinishedTasks::takes(task.get())
            {
                self.finished.insert(id, *task.remove());
            }
        }
    }

    /// Removes a task.
    pub(super) fn remove(&mut self, id: TaskId) {
        if self.open.remove(&id).is_none() {
            self.finished.remove(id);
        }
    }

    /// Removes these tasks; returns them in order.
    pub(super) fn remove_range(&mut self, ids: &RangeInclusive<TaskId>) -> Vec<(TaskId, Task)> {
        let mut removed = self.finished.remove_range(ids);
        let open: Vec<TaskId> = self.open.range(ids.clone()).map(|(id, _)| *id).collect();
        if !open.is_empty() {
            let open = open.into_iter().filter_map(|id| Some((id, *self.open.remove(&id)?)));
            removed.extend(open);
            removed.sort_unstable_by_key(|(id, _)| *id);
        }
        removed
    }

    /// The known tasks of an entry, in no particular order.
    pub(super) fn members(&self, entry: EntryId) -> impl Iterator<Item = (TaskId, Cow<'_, Task>)> {
        let ids = TaskId::all_of(entry);
        let open = self.open.range(ids.clone()).map(|(id, task)| (*id, Cow::Borrowed(&**task)));
        open.chain(self.finished.range(&ids).map(|(id, task)| (id, Cow::Owned(task))))
    }

    /// The tasks kept in full, from this id on, or from the first: all that have not finished or
    /// have work in progress.
    pub(super) fn open_from(&self, first: Option<TaskId>) -> impl Iterator<Item = (TaskId, &Task)> {
        let first = first.map_or(Bound::Unbounded, Bound::Included);
        self.open.range((first, Bound::Unbounded)).map(|(id, task)| (*id, task.as_ref()))
    }

    /// All tasks, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TaskId, Cow<'_, Task>)> {
        let open = self.open_from(None).map(|(id, task)| (id, Cow::Borrowed(task)));
        open.chain(self.finished.iter().map(|(id, task)| (id, Cow::Owned(task))))
    }

    /// Replaces each task kept in full by the result of `keep`, and forgets all others.
    pub(super) fn keep_only(&mut self, keep: impl Fn(&Task) -> Option<Task>) {
        self.finished = FinishedTasks::default();
        let open = std::mem::take(&mut self.open);
        let kept = |(id, task): (TaskId, Box<Task>)| Some((id, Box::new(keep(&task)?)));
        self.open = open.into_iter().filter_map(kept).collect();
    }

    fn in_order(&self) -> Vec<(TaskId, Cow<'_, Task>)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }
}

// The form of a task does not matter: for the model two workers with the same knowledge are equal.
impl PartialEq for Tasks {
    fn eq(&self, other: &Self) -> bool {
        self.in_order() == other.in_order()
    }
}

impl Eq for Tasks {}

impl Hash for Tasks {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.in_order().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::fold::Phase;

    const ID: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };

    /// Earlier, no test failed when a finished task stayed in the large form after an entry of it
    /// was read.
    #[test]
    fn a_finished_task_that_was_looked_at_comes_to_rest_again() {
        let mut tasks = Tasks::default();
        tasks.get_or_new(ID).fold.phase = Phase::Completed;
        tasks.ended(ID);
        tasks.rest();
        assert_eq!(tasks.open_from(None).count(), 0);
        let looks: [fn(&mut Tasks); 2] =
            [|tasks| drop(tasks.get_or_new(ID).clone()), |tasks| drop(tasks.get_mut(ID).cloned())];
        for look in looks {
            look(&mut tasks);
            assert_eq!(tasks.open_from(None).count(), 1);
            tasks.rest();
            assert_eq!(tasks.open_from(None).count(), 0);
        }
    }

    fn task(entry: u64) -> TaskId {
        TaskId { entry, ..ID }
    }

    /// Two finished tasks, and an unfinished one between them.
    fn three() -> Tasks {
        let mut tasks = Tasks::default();
        for entry in [1, 3] {
            tasks.get_or_new(task(entry)).fold.phase = Phase::Completed;
            tasks.ended(task(entry));
        }
        tasks.get_or_new(task(2)).fold.phase = Phase::Running;
        tasks.rest();
        tasks
    }

    /// Earlier, no test failed when finished tasks could not be removed, or came before all others.
    #[test]
    fn tasks_are_removed_wherever_they_are_kept_and_told_in_order() {
        let mut tasks = three();
        tasks.remove(task(3));
        tasks.remove(task(2));
        assert_eq!(tasks.iter().map(|(id, _)| id).collect::<Vec<_>>(), [task(1)]);
        let removed = three().remove_range(&(task(0)..=task(9)));
        let ids: Vec<_> = removed.into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, [task(1), task(2), task(3)]);
    }

    /// Earlier, no test failed when all sets of tasks were equal: a model that confuses two states
    /// skips one of them.
    #[test]
    fn tasks_are_the_same_wherever_they_are_kept_and_no_others_are() {
        let hash = |tasks: &Tasks| {
            let mut hasher = std::hash::DefaultHasher::new();
            tasks.hash(&mut hasher);
            hasher.finish()
        };
        let (resting, mut open, mut other) = (three(), three(), three());
        assert!(open.get_mut(task(1)).is_some());
        assert_ne!(resting.open.len(), open.open.len());
        assert!(resting == open && hash(&resting) == hash(&open));
        other.remove(task(3));
        assert!(resting != other && hash(&resting) != hash(&other));
    }
}
