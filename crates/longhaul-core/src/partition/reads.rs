//! Payload reads in progress. A worker reads the payloads of retries, of offered tasks and of the
//! tasks of dead workers by id, one for each free slot.

use super::Partition;
use crate::agenda::Agenda;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::collections::BTreeSet;
use std::time::Duration;

/// A read is slow after this time. The worker still waits for it, but another task may use its
/// slot: earlier, one hung read blocked all tasks of its type at a gateway with one open request.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// At most this many slow reads give up their slots, because the worker has to hold the payloads of
/// all of them.
const SLOW_MAX: usize = 64;

/// The payload reads of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reads {
    /// Reads that take up a slot each, with the time at which they become slow.
    pub(super) counted: Agenda<TaskId>,
    /// Slow reads, whose slots other tasks may use.
    slow: BTreeSet<TaskId>,
    /// Slots that reads have given up since the last call of `run`.
    pub(super) over: usize,
}

impl Reads {
    /// Begins a read. Returns whether it takes up a slot; a read in progress does not do so again.
    pub(super) fn begin(&mut self, id: TaskId, now: Moment) -> bool {
        let begins = !self.counted.contains(&id) && !self.slow.contains(&id);
        if begins {
            self.counted.set(id, now + SLOW_AFTER);
        }
        begins
    }

    fn end(&mut self, id: TaskId) {
        self.over += usize::from(self.counted.contains(&id));
        self.counted.remove(id);
        self.slow.remove(&id);
    }

    fn next_slow(&mut self, now: Moment) -> Option<TaskId> {
        self.slow_at().filter(|at| *at <= now)?;
        let id = self.counted.pop_first()?;
        self.slow.insert(id);
        self.over += 1;
        Some(id)
    }

    /// When the next read becomes slow.
    pub(super) fn slow_at(&self) -> Option<Moment> {
        self.counted.next().filter(|_| self.slow.len() < SLOW_MAX)
    }
}

impl Partition {
    /// A payload was read, or could not be.
    pub(super) fn end_read(&mut self, id: TaskId) {
        self.reads.end(id);
        self.unwanted.end_read(id);
    }

    pub(super) fn record_slow_reads(&mut self, now: Moment) {
        while let Some(id) = self.reads.next_slow(now) {
            self.unwanted.end_read(id);
        }
    }
}
