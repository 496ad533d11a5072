//! New tasks with a key: the register's verdict on them.

use super::Partition;
use crate::agenda::Agenda;
use crate::protocol::entry::Claim;
use crate::protocol::moment::Moment;
use crate::protocol::register::QueueTask;
use crate::task::TaskId;
use std::time::Duration;

/// How long a slot is kept free for a task whose key is undecided or lost. Both states end within
/// milliseconds, unless the broker of the register is away: then other tasks run meanwhile.
const DECIDED_WITHIN: Duration = Duration::from_secs(1);

/// Tasks that are about to get their keys, or to be closed because they have lost them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Undecided {
    /// The time by which each is expected to be decided.
    pub(super) tasks: Agenda<TaskId>,
    /// Whether the register has not decided in time, and has decided nothing since.
    late: bool,
}

impl Partition {
    /// Makes a held task wait until its key is decided; it is not claimed.
    pub fn wait_for_key(&mut self, id: TaskId, now: Moment) {
        if !self.machine.waits_for_key(id) {
            self.undecided.tasks.set(id, now + DECIDED_WITHIN);
        }
        self.machine.wait_for_key(id);
        self.drop_payload_if_many_wait(id);
    }

    /// Makes a task wait for the holder of its key to end. This may take hours, so no slot is kept
    /// free.
    pub fn stand_behind(&mut self, id: TaskId) {
        self.undecided.tasks.remove(id);
        self.undecided.late = false;
        self.machine.wait_for_key(id);
        self.drop_payload_if_many_wait(id);
    }

    /// Admits a task that holds its key.
    pub fn admit(&mut self, id: TaskId, now: Moment) {
        self.undecided.tasks.remove(id);
        self.undecided.late = false;
        self.machine.admit(id);
        self.look_again(id, now);
    }

    /// Rejects a task whose key another task holds: it is closed.
    pub fn reject(&mut self, id: TaskId, holder: QueueTask, now: Moment) {
        self.undecided.tasks.set(id, now + DECIDED_WITHIN);
        self.undecided.late = false;
        self.machine.reject(id, holder);
        self.look_again(id, now);
    }

    /// Whether this claim, made for a task that replaces the claimed one, may close it.
    pub fn may_close(&mut self, claim: &Claim) -> bool {
        let may = self.machine.may_close(claim);
        self.settle();
        may
    }

    /// Number of tasks that are about to get their keys, and may then need slots, or are about to
    /// be closed. Zero while the register does not decide in time.
    pub fn undecided(&mut self, now: Moment) -> usize {
        while let Some(id) = self.undecided.tasks.pop_due(now) {
            self.undecided.late |= self.machine.waits_for_key(id);
        }
        if self.undecided.late { 0 } else { self.undecided.tasks.len() }
    }

    fn look_again(&mut self, id: TaskId, now: Moment) {
        if self.open.contains_key(&id) {
            self.agenda.set(id, now);
        }
    }
}
