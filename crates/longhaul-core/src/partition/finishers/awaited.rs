//! The tasks that wait for their finishers. No operation costs more per task than a search.

use crate::agenda::Agenda;
use crate::protocol::key::OwnerId;
use crate::protocol::moment::Moment;
use crate::task::{Position, TaskId};
use std::collections::BTreeMap;

/// Tasks that wait for their finishers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct AwaitedFinishers {
    /// By finisher and the position of the end.
    ends: BTreeMap<OwnerId, BTreeMap<Position, TaskId>>,
    /// The inverse map.
    tasks: BTreeMap<TaskId, (OwnerId, Position)>,
    /// Since when each task waits.
    since: Agenda<TaskId>,
}

impl AwaitedFinishers {
    /// Makes the task wait for its finisher, whose entry at this position ended it.
    pub(super) fn add(&mut self, id: TaskId, finisher: OwnerId, at: Position, now: Moment) {
        self.remove(id);
        self.ends.entry(finisher).or_default().insert(at, id);
        self.tasks.insert(id, (finisher, at));
        self.since.set(id, now);
    }

    /// Removes a task that no longer waits.
    pub(super) fn remove(&mut self, id: TaskId) {
        let Some((finisher, at)) = self.tasks.remove(&id) else { return };
        self.since.remove(id);
        if let Some(ends) = self.ends.get_mut(&finisher) {
            ends.remove(&at);
            if ends.is_empty() {
                self.ends.remove(&finisher);
            }
        }
    }

    pub(super) fn contains(&self, id: TaskId) -> bool {
        self.tasks.contains_key(&id)
    }

    /// The awaited finishers.
    pub(super) fn finishers(&self) -> impl Iterator<Item = OwnerId> {
        self.ends.keys().copied()
    }

    /// Takes the tasks that this finisher ended at or before this position.
    pub(super) fn take_up_to(&mut self, finisher: OwnerId, last: Position) -> Vec<TaskId> {
        let ends = self.ends.get(&finisher);
        self.take(
            ends.into_iter().flat_map(|ends| ends.range(..=last)).map(|(_, id)| *id).collect(),
        )
    }

    /// Takes all tasks that this finisher ended.
    pub(super) fn take_of(&mut self, finisher: OwnerId) -> Vec<TaskId> {
        let ends = self.ends.get(&finisher);
        self.take(ends.into_iter().flat_map(BTreeMap::values).copied().collect())
    }

    /// Takes the tasks that have waited since this time or longer.
    pub(super) fn take_since(&mut self, limit: Moment) -> Vec<TaskId> {
        let late: Vec<TaskId> = std::iter::from_fn(|| self.since.pop_due(limit)).collect();
        self.take(late)
    }

    fn take(&mut self, tasks: Vec<TaskId>) -> Vec<TaskId> {
        for id in &tasks {
            self.remove(*id);
        }
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ONE: OwnerId = OwnerId(1);
    const OTHER: OwnerId = OwnerId(2);

    fn task(entry: u64) -> TaskId {
        TaskId { ledger: 7, entry, partition: -1, batch_index: None }
    }

    fn at(entry: u64) -> Position {
        Position { ledger: 1, entry, batch_index: None }
    }

    fn second(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    /// Four tasks, of two finishers in turn; each began to wait a second after the one before.
    fn four() -> AwaitedFinishers {
        let mut awaited = AwaitedFinishers::default();
        for (entry, finisher) in (1..=4).zip([ONE, OTHER, ONE, OTHER]) {
            awaited.add(task(entry), finisher, at(10 * entry), second(entry));
        }
        awaited
    }

    /// An item left in one of the lists and not in the others would be looked for at every
    /// heartbeat.
    fn left(awaited: &AwaitedFinishers) -> Vec<TaskId> {
        let left: Vec<TaskId> = awaited.tasks.keys().copied().collect();
        let mut ends: Vec<TaskId> =
            awaited.ends.values().flat_map(BTreeMap::values).copied().collect();
        ends.sort_unstable();
        assert_eq!((&ends, awaited.since.len()), (&left, left.len()));
        assert!(awaited.ends.values().all(|ends| !ends.is_empty()));
        assert!(left.iter().all(|id| awaited.contains(*id)));
        left
    }

    #[test]
    fn who_is_told_is_taken_out_and_nobody_else() {
        let mut awaited = four();
        assert_eq!(awaited.take_up_to(ONE, at(9)), []);
        assert_eq!(awaited.take_up_to(ONE, at(29)), [task(1)]);
        assert_eq!(left(&awaited), [2, 3, 4].map(task));
        assert_eq!(awaited.take_of(OTHER), [2, 4].map(task));
        assert_eq!(awaited.finishers().collect::<Vec<_>>(), [ONE]);
        assert_eq!(awaited.take_of(OTHER), []);
        awaited.remove(task(3));
        awaited.remove(task(3));
        assert_eq!(left(&awaited), []);
        assert!(!awaited.contains(task(3)));
    }

    #[test]
    fn who_has_waited_long_enough_is_taken_out_in_time_order() {
        let mut awaited = four();
        assert_eq!(awaited.take_since(second(0)), []);
        assert_eq!(awaited.take_since(second(2)), [1, 2].map(task));
        assert_eq!(left(&awaited), [3, 4].map(task));
        // Another end, in a ledger that has replaced the first one.
        awaited.add(task(3), OTHER, at(5), second(9));
        assert_eq!(awaited.take_since(second(8)), [task(4)]);
        assert_eq!(left(&awaited), [task(3)]);
    }
}
