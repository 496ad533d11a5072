//! Which types of tasks are asked for, where leases are: pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

/// The type of a task, as a number of 64 bits: tasks are compared by it, and no table of names has to be kept. Two names that somebody has found to have
/// the same number count as one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskType(NonZeroU64);

impl TaskType {
    /// Of this name; `None`: of tasks that have none.
    #[must_use]
    pub fn of(name: Option<&str>) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN))
    }
}

/// How many leases are asked for that no claim is on its way for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Of tasks of any type.
    pub any: usize,
    /// Of tasks of certain types; whoever asks for several is counted with each of them.
    pub types: BTreeMap<TaskType, usize>,
}

impl Wanted {
    /// How many tasks of this type are asked for at most.
    #[must_use]
    pub fn of(&self, task_type: TaskType) -> usize {
        self.any + self.types.get(&task_type).copied().unwrap_or_default()
    }

    /// So many more, or so many less, are asked for of this type; `None`: of any.
    pub fn change(&mut self, task_type: Option<TaskType>, before: usize, now: usize) {
        let changed = |count: usize| (count + now).saturating_sub(before);
        let Some(task_type) = task_type else {
            self.any = changed(self.any);
            return;
        };
        let count = changed(self.types.get(&task_type).copied().unwrap_or_default());
        if count > 0 {
            self.types.insert(task_type, count);
        } else {
            self.types.remove(&task_type);
        }
    }

    /// A task of this type is claimed, until the next count.
    pub fn take(&mut self, task_type: TaskType) {
        let of_type = self.types.contains_key(&task_type).then_some(task_type);
        self.change(of_type, 1, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_the_same_by_their_names_and_no_type_is_one_of_its_own() {
        assert_eq!(TaskType::of(Some("a")), TaskType::of(Some("a")));
        assert_ne!(TaskType::of(Some("a")), TaskType::of(Some("b")));
        assert_ne!(TaskType::of(Some("")), TaskType::of(None));
        assert_eq!(size_of::<Option<TaskType>>(), 8);
    }

    #[test]
    fn what_is_asked_for_is_counted_by_type() {
        let (a, b) = (TaskType::of(Some("a")), TaskType::of(Some("b")));
        let mut wanted = Wanted::default();
        for (task_type, count) in [(Some(a), 2), (Some(b), 1), (None, 1)] {
            wanted.change(task_type, 0, count);
        }
        assert_eq!((wanted.of(a), wanted.of(b), wanted.of(TaskType::of(None))), (3, 2, 1));
        wanted.take(b);
        wanted.take(b);
        assert_eq!((wanted.of(a), wanted.of(b), wanted.types.len()), (2, 0, 1));
        wanted.take(b);
        assert_eq!(wanted.of(b), 0);
    }
}
