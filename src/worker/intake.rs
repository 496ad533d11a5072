//! Limits the tasks that a worker holds without running them: waiting deliveries, and finished
//! tasks whose end is not written yet. Pure.
//!
//! Nothing else limits them. Slots limit running attempts; but while the ledger, the metadata topic
//! or the dead letters cannot be written, the task topic goes on delivering, and claimed tasks go
//! on ending.

/// Number of tasks held beyond one for each slot: what a fast worker has in flight to the broker.
const TASKS_BEYOND_SLOTS: usize = 1_000;

/// Assumed size of a delivery, in bytes, while none is held from which to estimate it.
const DELIVERY_BYTES: usize = 4 * 1024;

/// Tasks that are held and do not run: their payloads, and the results or reasons of ended ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) tasks: usize,
    pub(super) bytes: usize,
}

/// The maximum [`Load`] of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intake {
    tasks: usize,
    bytes: usize,
}

impl Intake {
    pub(super) const fn new(concurrency: usize, bytes: usize) -> Self {
        Self { tasks: concurrency.saturating_add(TASKS_BEYOND_SLOTS), bytes }
    }

    /// How many more deliveries may come; at zero, no payload may be read either.
    pub(super) fn room(&self, load: Load) -> usize {
        let each = load.bytes.checked_div(load.tasks).unwrap_or(0).max(DELIVERY_BYTES);
        let by_bytes = self.bytes.saturating_sub(load.bytes).div_ceil(each);
        self.tasks.saturating_sub(load.tasks).min(by_bytes)
    }
}

impl std::ops::Add for Load {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (tasks, bytes) =
            (self.tasks.saturating_add(other.tasks), self.bytes.saturating_add(other.bytes));
        Self { tasks, bytes }
    }
}

impl std::ops::Sub for Load {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let (tasks, bytes) =
            (self.tasks.saturating_sub(other.tasks), self.bytes.saturating_sub(other.bytes));
        Self { tasks, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tasks: usize, bytes: usize, room: usize) {
        let intake = Intake::new(16, 1024 * 1024);
        assert_eq!(intake.room(Load { tasks, bytes }), room);
    }

    #[test]
    fn what_comes_is_taken_for_as_large_as_what_is_there() {
        check(0, 0, 256);
        check(2, 512 * 1024, 2);
        check(2, 1024 * 1024 - 1, 1);
        check(1, 1024 * 1024, 0);
        check(1, usize::MAX, 0);
    }

    #[test]
    fn tasks_are_counted_however_small() {
        check(1015, 0, 1);
        check(1016, 0, 0);
        check(usize::MAX, 0, 0);
    }
}
