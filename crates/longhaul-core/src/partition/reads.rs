//! Payloads that are being read for free slots, by id: of retries, of offered tasks, of what a dead
//! worker ran.

use super::Partition;
use crate::agenda::Agenda;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::collections::BTreeSet;
use std::time::Duration;

/// A read that takes longer is still waited for, but another task may have its slot. One that hung
/// held up every task of its type, where one lease was asked for.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// So many slow reads give up their slots at a time: what all of them bring has to be held.
const SLOW_MAX: usize = 64;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reads {
    /// Each for a slot of its own, and when it is slow.
    pub(super) counted: Agenda<TaskId>,
    /// Whose slots others may have.
    slow: BTreeSet<TaskId>,
    /// Slots that are read for no longer, and were not given back yet.
    pub(super) over: usize,
}

impl Reads {
    /// Returns whether it takes a slot, which a read that goes on already does not.
    pub(super) fn begin(&mut self, id: TaskId, now: Moment) -> bool {
        let begins = !self.counted.contains(id) && !self.slow.contains(&id);
        if begins {
            self.counted.set(id, now + SLOW_AFTER);
        }
        begins
    }

    fn end(&mut self, id: TaskId) {
        self.over += usize::from(self.counted.contains(id));
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

    /// When the next one is slow.
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

    pub(super) fn note_slow_reads(&mut self, now: Moment) {
        while let Some(id) = self.reads.next_slow(now) {
            self.unwanted.end_read(id);
        }
    }
}
