//! Own ends that the metadata topic does not show.

use crate::protocol::key::Epoch;
use crate::task::{Position, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Tasks that this owner id has set out to end and that the metadata topic does not show as ended.
/// They count from their publish on, so that an end that never comes back is not reported as shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Unshown {
    /// The epoch, and the position of the last end shown before.
    ends: BTreeMap<TaskId, (Epoch, Option<Position>)>,
    /// In order of the last end shown before.
    order: BTreeSet<(Option<Position>, TaskId)>,
}

impl Unshown {
    /// Notes that this owner id is about to end this epoch, or a later one than before.
    pub(super) fn add(&mut self, id: TaskId, epoch: Epoch, last_shown: Option<Position>) {
        let (known, before) = self.ends.entry(id).or_insert((epoch, last_shown));
        *known = epoch.max(*known);
        self.order.insert((*before, id));
    }

    /// Removes an end that is shown or no longer this owner's. Returns whether it was known.
    pub(super) fn remove(&mut self, id: TaskId) -> bool {
        let Some((_, before)) = self.ends.remove(&id) else { return false };
        self.order.remove(&(before, id))
    }

    /// The epoch of a task that this owner id has set out to end.
    pub(super) fn epoch(&self, id: TaskId) -> Option<Epoch> {
        self.ends.get(&id).map(|(epoch, _)| *epoch)
    }

    /// The last end that was shown before the first unshown one was begun. The outer `None` means
    /// that all are shown.
    pub(super) fn first(&self) -> Option<Option<Position>> {
        self.order.first().map(|(before, _)| *before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(entry: u64) -> TaskId {
        TaskId { ledger: 7, entry, partition: -1, batch_index: None }
    }

    fn at(entry: u64) -> Option<Position> {
        Some(Position { ledger: 1, entry, batch_index: None })
    }

    #[test]
    fn the_first_that_is_not_shown_counts() {
        let mut unshown = Unshown::default();
        assert_eq!(unshown.first(), None);
        for (entry, last_shown) in [(1, None), (2, at(5)), (3, at(5)), (4, at(9))] {
            unshown.add(task(entry), Epoch(1), last_shown);
        }
        // Published again for a later epoch, it keeps its place.
        unshown.add(task(1), Epoch(2), at(9));
        assert_eq!((unshown.epoch(task(1)), unshown.first()), (Some(Epoch(2)), Some(None)));
        for (entry, first) in [(1, Some(at(5))), (3, Some(at(5))), (2, Some(at(9))), (4, None)] {
            assert!(unshown.remove(task(entry)) && !unshown.remove(task(entry)));
            assert_eq!((unshown.first(), unshown.epoch(task(entry))), (first, None));
        }
    }
}
