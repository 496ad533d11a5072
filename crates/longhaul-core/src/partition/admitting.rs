//! New tasks with a key: what the register says of them.

use super::Partition;
use crate::agenda::Agenda;
use crate::protocol::moment::Moment;
use crate::protocol::register::QueueTask;
use crate::task::TaskId;
use std::time::Duration;

/// What the register says of a task is mostly known, and a rejected task closed, after some
/// milliseconds. For so long a slot is kept free for the task. If it takes longer the broker of the
/// register may be away, and others run meanwhile.
const DECIDED_WITHIN: Duration = Duration::from_secs(1);

/// Tasks of which the register is about to say whether they hold their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Undecided {
    /// Until when that is expected.
    pub(super) tasks: Agenda<TaskId>,
    /// It took longer the last time.
    late: bool,
}

impl Partition {
    /// A held task has a key, and it is not decided whether it holds it: it is not claimed.
    pub fn wait_for_key(&mut self, id: TaskId, now: Moment) {
        if !self.machine.waits_for_key(id) {
            self.undecided.tasks.set(id, now + DECIDED_WITHIN);
        }
        self.machine.wait_for_key(id);
        self.save_payload(id);
    }

    /// The task waits until the one that holds its key is over, which may take hours: no slot is
    /// kept free for it.
    pub fn stand_behind(&mut self, id: TaskId) {
        self.undecided.tasks.remove(id);
        self.undecided.late = false;
        self.machine.wait_for_key(id);
        self.save_payload(id);
    }

    /// A task holds its key.
    pub fn admit(&mut self, id: TaskId, now: Moment) {
        self.undecided.tasks.remove(id);
        self.undecided.late = false;
        self.machine.admit(id);
        self.look_again(id, now);
    }

    /// Another task holds the key of this one: it is closed.
    pub fn reject(&mut self, id: TaskId, holder: QueueTask, now: Moment) {
        self.undecided.tasks.set(id, now + DECIDED_WITHIN);
        self.undecided.late = false;
        self.machine.reject(id, holder);
        self.look_again(id, now);
    }

    /// How many tasks are about to get a key, or to be closed as they have lost it: each may need a
    /// slot, or makes room for another delivery, in a moment.
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
