//! New tasks with a key: what the register says of them.

use super::Partition;
use crate::agenda::Agenda;
use crate::protocol::entry::Claim;
use crate::protocol::moment::Moment;
use crate::protocol::register::QueueTask;
use crate::task::TaskId;
use std::time::Duration;

/// A slot is kept free for this long for a task whose key is not decided, or that has lost it. Both
/// end within milliseconds, unless the broker of the register is away: then other tasks run
/// meanwhile.
const DECIDED_WITHIN: Duration = Duration::from_secs(1);

/// Tasks that are about to get their keys, or to be closed since they have lost them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Undecided {
    /// Until when that is expected.
    pub(super) tasks: Agenda<TaskId>,
    /// The register has not decided in time, and has decided nothing since.
    late: bool,
}

impl Partition {
    /// A held task has a key, and it is not decided whether it holds it: it is not claimed.
    pub fn wait_for_key(&mut self, id: TaskId, now: Moment) {
        if !self.machine.waits_for_key(id) {
            self.undecided.tasks.set(id, now + DECIDED_WITHIN);
        }
        self.machine.wait_for_key(id);
        self.drop_payload_if_many_wait(id);
    }

    /// The task waits until the one that holds its key is over, which may take hours: no slot is
    /// kept free for it.
    pub fn stand_behind(&mut self, id: TaskId) {
        self.undecided.tasks.remove(id);
        self.undecided.late = false;
        self.machine.wait_for_key(id);
        self.drop_payload_if_many_wait(id);
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

    /// Whether this claim, of a task that takes its place, may close the task.
    pub fn may_close(&mut self, claim: &Claim) -> bool {
        let may = self.machine.may_close(claim);
        self.settle();
        may
    }

    /// The number of tasks that are about to get their keys, and may need slots then, or are about
    /// to be closed. Zero while the register does not decide in time.
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
