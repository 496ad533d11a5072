//! Decides which dead letters are due for removal. Pure: it takes letters and marks in log order.

use super::DeadLetterPolicy;
use longhaul_core::task::{Position, TaskId};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of known letters without a limit on their number: further ones are read only
/// after the oldest have been removed.
const KNOWN_MAX: usize = 100_000;

/// A letter that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetainedLetter {
    pub(super) task: TaskId,
    pub(super) at: Position,
    published_ms: u64,
}

/// The kept letters with their positions. See the module's documentation.
#[derive(Debug)]
pub(super) struct Ring {
    policy: DeadLetterPolicy,
    kept: BTreeMap<Position, RetainedLetter>,
    of_task: HashMap<TaskId, Position>,
}

impl Ring {
    pub(super) fn new(policy: DeadLetterPolicy) -> Self {
        Self { policy, kept: BTreeMap::new(), of_task: HashMap::new() }
    }

    /// Adds a letter.
    pub(super) fn put(&mut self, task: TaskId, at: Position, published_ms: u64) {
        self.handled(task);
        self.kept.insert(at, RetainedLetter { task, at, published_ms });
        self.of_task.insert(task, at);
    }

    /// Removes the letters of a task that were handled: its mark was read or written.
    pub(super) fn handled(&mut self, task: TaskId) {
        if let Some(at) = self.of_task.remove(&task) {
            self.kept.remove(&at);
        }
    }

    /// Whether to pause reading.
    pub(super) fn is_full(&self) -> bool {
        let max = self.policy.max_size.map_or(KNOWN_MAX, |max| max.saturating_mul(2).max(1_000));
        self.kept.len() >= max
    }

    /// The oldest letter, if it is due for removal now, and the reason.
    pub(super) fn next_to_go(&self, now_ms: u64) -> Option<(RetainedLetter, &'static str)> {
        let (_, oldest) = self.kept.first_key_value()?;
        if self.policy.max_size.is_some_and(|max| self.kept.len() > max) {
            return Some((*oldest, "there are newer ones than may be kept"));
        }
        let due_ms = self.due_ms()?;
        (due_ms <= now_ms).then_some((*oldest, "it was kept as long as it may be"))
    }

    /// When the oldest letter is due for removal, in ms since the epoch.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let retention = u64::try_from(self.policy.retention?.as_millis()).unwrap_or(u64::MAX);
        let (_, oldest) = self.kept.first_key_value()?;
        Some(oldest.published_ms.saturating_add(retention))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(entry: u64) -> Position {
        Position { ledger: 1, entry, batch_index: None }
    }

    fn id(entry: u64) -> TaskId {
        TaskId { ledger: 9, entry, partition: -1, batch_index: None }
    }

    fn goes(ring: &Ring, now_ms: u64) -> Option<u64> {
        ring.next_to_go(now_ms).map(|(kept, _)| kept.task.entry)
    }

    #[test]
    fn the_oldest_letters_go_when_there_are_too_many() {
        let mut ring = Ring::new(DeadLetterPolicy::new().max_size(2));
        for task in 0..4 {
            ring.put(id(task), at(task), 0);
        }
        assert_eq!(goes(&ring, u64::MAX), Some(0));
        ring.handled(id(0));
        // Another letter was replayed: there is room for one more.
        ring.handled(id(2));
        assert_eq!(goes(&ring, u64::MAX), None);
        assert_eq!(ring.due_ms(), None);
    }

    #[test]
    fn a_letter_goes_when_its_time_is_over() {
        let mut ring = Ring::new(DeadLetterPolicy::new().retention(Duration::from_secs(1)));
        ring.put(id(0), at(0), 500);
        ring.put(id(1), at(1), 900);
        assert_eq!((goes(&ring, 1_499), goes(&ring, 1_500)), (None, Some(0)));
        ring.handled(id(0));
        assert_eq!(
            (ring.due_ms(), goes(&ring, 1_899), goes(&ring, 1_900)),
            (Some(1_900), None, Some(1))
        );
    }

    /// A letter that was stored twice counts once, with the age of the last one.
    #[test]
    fn a_letter_that_was_stored_twice_counts_once() {
        let mut ring = Ring::new(DeadLetterPolicy::new().max_size(2));
        for (entry, task) in [(0, 0), (1, 1), (2, 0)] {
            ring.put(id(task), at(entry), 0);
        }
        assert_eq!(goes(&ring, 0), None);
        ring.put(id(3), at(3), 0);
        assert_eq!(goes(&ring, 0), Some(1));
    }

    #[test]
    fn it_knows_of_a_limited_number_of_letters() {
        let mut ring = Ring::new(DeadLetterPolicy::new().max_size(2));
        for task in 0..1_000 {
            assert!(!ring.is_full());
            ring.put(id(task), at(task), 0);
        }
        assert!(ring.is_full());
    }
}
