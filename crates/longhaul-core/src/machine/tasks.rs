//! All tasks that a worker knows: those that it may have to do something about in full, finished
//! ones in little space.
//!
//! Nearly all known tasks are finished ones that wait to be sealed, a million of them where much is
//! done, while a few thousand at most are under way. So the two are kept apart: what happens every
//! moment looks into a small map, and a finished task takes up a quarter. To its users a task is
//! the same in either place.

use super::finished::FinishedTasks;
use super::task::Task;
use crate::task::{EntryId, TaskId};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{Hash, Hasher};
use std::ops::{Bound, RangeInclusive};

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    /// Boxed: a map of large values takes up twice their size.
    open: BTreeMap<TaskId, Box<Task>>,
    finished: FinishedTasks,
    /// What may have come to rest since the last [`Tasks::rest`].
    touched: Vec<TaskId>,
    /// For tests: all are kept in full.
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

    /// A task, to change it. A finished one is kept in full until [`Tasks::rest`].
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

    /// A task, to change it; a new one if it was not known. Whoever ends it says so:
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

    /// The task has ended.
    pub(super) fn ended(&mut self, id: TaskId) {
        self.touched.push(id);
    }

    /// Those that were changed, have finished, and about which nothing more is being done take up
    /// little space from now on.
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

    /// The task is not known any more.
    pub(super) fn remove(&mut self, id: TaskId) {
        if self.open.remove(&id).is_none() {
            self.finished.remove(id);
        }
    }

    /// These tasks are not known any more. Returns what they were, in order.
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

    /// Those that are kept in full, which are all that have not finished or that something is done
    /// about, from this id on, or from the first.
    pub(super) fn open_from(&self, first: Option<TaskId>) -> impl Iterator<Item = (TaskId, &Task)> {
        let first = first.map_or(Bound::Unbounded, Bound::Included);
        self.open.range((first, Bound::Unbounded)).map(|(id, task)| (*id, task.as_ref()))
    }

    /// All of them, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TaskId, Cow<'_, Task>)> {
        let open = self.open_from(None).map(|(id, task)| (id, Cow::Borrowed(task)));
        open.chain(self.finished.iter().map(|(id, task)| (id, Cow::Owned(task))))
    }

    /// Keeps of the tasks that are kept in full what this makes of them, and forgets all others.
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

// Where a task is kept says nothing of it: for the model two workers that know the same are the
// same.
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

    /// No test noticed when a finished task about which an entry was read stayed in the large form
    /// from then on.
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

    /// Two finished tasks, and one between them that has not finished.
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

    /// No test noticed when finished tasks could not be removed, nor when they were told before all
    /// others.
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

    /// No test noticed when all sets of tasks were the same: a model that takes two states for one
    /// leaves one of them out.
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
