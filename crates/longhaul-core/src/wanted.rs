//! The types of tasks requested by clients of leases. Pure.

pub use crate::protocol::offer::TaskType;
use std::collections::BTreeMap;

/// Number of requested leases without a claim in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WantedLeases {
    /// Requests for tasks of any type.
    pub any: usize,
    /// Requests by type; a request for several types counts for each of them.
    pub types: BTreeMap<TaskType, usize>,
}

impl WantedLeases {
    /// Maximum number of requested tasks of this type.
    #[must_use]
    pub fn of(&self, task_type: TaskType) -> usize {
        self.any + self.types.get(&task_type).copied().unwrap_or_default()
    }

    /// Changes the number of requests for this type (`None`: any) from `before` to `now`.
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

    /// Counts a claimed task of this type, until the next count.
    pub fn take(&mut self, task_type: TaskType) {
        let of_type = self.types.contains_key(&task_type).then_some(task_type);
        self.change(of_type, 1, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_counted_by_type() {
        let (a, b) = (TaskType::of(Some("a")), TaskType::of(Some("b")));
        let mut wanted = WantedLeases::default();
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
