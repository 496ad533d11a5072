//! The payloads of tasks: the machine only knows whether one is at hand. It asks for it before a
//! claim, and says when it may be dropped.

use super::{Action, Machine, Stage, Task, TerminalStep};
use crate::protocol::entry::Outcome;
use crate::protocol::fold::Phase;
use crate::task::TaskId;

impl Machine {
    /// Drops the payload of a task that nothing is being done about: it is read again before a
    /// claim. That of a new one is what was delivered, and stays.
    pub fn drop_idle_payload(&mut self, id: TaskId) {
        let idle = |task: &Task| task.stage == Stage::Idle && task.fold.phase != Phase::New;
        if self.task(id).is_some_and(|task| idle(&task)) {
            self.drop_payload(id);
        }
    }

    /// Drops the payload of a task that waits until somebody asks for it, also that of a new one.
    pub fn drop_waiting_payload(&mut self, id: TaskId) {
        if self.task(id).is_some_and(|task| task.stage == Stage::Idle) {
            self.drop_payload(id);
        }
    }

    /// An attempt has ended, and neither the outcome nor what follows it takes the payload. Were
    /// the outcome not accepted, nothing would follow here.
    pub fn payload_spent(&mut self, id: TaskId) {
        let spent = |task: &Task| {
            matches!(
                task.stage,
                Stage::Finishing { outcome: Outcome::Completed | Outcome::Cancelled, .. }
            )
        };
        if self.task(id).is_some_and(|task| spent(&task)) {
            self.drop_payload(id);
        }
    }

    /// The payload is not at hand although it was said to be.
    pub fn payload_missing(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.payload = false;
        }
    }

    /// Whether nothing is being done about the task, nor is to be written about its end.
    #[must_use]
    pub fn is_at_rest(&self, id: TaskId) -> bool {
        self.task(id).is_none_or(|task| task.stage.is_at_rest() || task.is_aside())
    }

    /// Asks for the payload.
    pub fn read_payload(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id)
            && task.stage == Stage::Idle
        {
            task.stage = Stage::Reading;
            self.act(Action::ReadPayload(id));
        }
    }

    /// Its message says how many tasks came with it: the ledger does before that only where
    /// somebody has claimed the task.
    pub fn note_batch_size(&mut self, id: TaskId, batch_size: Option<u32>) {
        if let Some(task) = self.tasks.get_mut(id)
            && task.batch_size.is_none()
        {
            task.batch_size = batch_size;
        }
    }

    /// The payload was read, or could not be. All conditions are checked again before a claim.
    /// Whoever turned out not to need it any more drops it.
    pub fn payload_read(&mut self, id: TaskId, found: bool) {
        let Some(task) = self.tasks.get_mut(id) else {
            return self.act(Action::DropPayload(id));
        };
        task.payload |= found;
        if task.stage == Stage::Reading {
            task.stage = Stage::Idle;
            self.look_at_terminal(id);
        } else if task.is_aside()
            || task.fold.phase.is_terminal() && task.stage.step() != Some(TerminalStep::DeadLetter)
        {
            self.drop_payload(id);
        }
    }
}
