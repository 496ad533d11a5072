//! New tasks with a key: what the register says of them.

use super::Partition;
use crate::protocol::moment::Moment;
use crate::protocol::register::QueueTask;
use crate::task::TaskId;

impl Partition {
    /// A held task has a key, and it is not decided whether it holds it: it is not claimed.
    pub fn wait_for_key(&mut self, id: TaskId) {
        self.machine.wait_for_key(id);
    }

    /// A task holds its key.
    pub fn admit(&mut self, id: TaskId, now: Moment) {
        self.machine.admit(id);
        self.look_again(id, now);
    }

    /// Another task holds the key of this one: it is closed.
    pub fn reject(&mut self, id: TaskId, holder: QueueTask, now: Moment) {
        self.machine.reject(id, holder);
        self.look_again(id, now);
    }

    fn look_again(&mut self, id: TaskId, now: Moment) {
        if self.open.contains_key(&id) {
            self.agenda.set(id, now);
        }
    }
}
