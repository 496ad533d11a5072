//! The payloads of tasks. The machine knows only whether a payload is in memory; it requests one
//! before a claim and decides when it may be dropped.

use super::{Action, Machine, Stage, Task, TerminalStep};
use crate::protocol::entry::Outcome;
use crate::protocol::fold::Phase;
use crate::task::TaskId;

impl Machine {
    /// Drops the payload of an idle task; it is read again before a claim. The delivered payload of
    /// a new task stays.
    pub fn drop_idle_payload(&mut self, id: TaskId) {
        let idle = |task: &Task| task.stage == Stage::Idle && task.fold.phase != Phase::New;
        if self.task(id).is_some_and(|task| idle(&task)) {
            self.drop_payload(id);
        }
    }

    /// Drops the payload of a task that waits for a request, even that of a new one.
    pub fn drop_waiting_payload(&mut self, id: TaskId) {
        if self.task(id).is_some_and(|task| task.stage == Stage::Idle) {
            self.drop_payload(id);
        }
    }

    /// Drops the payload of an ended attempt whose outcome and later steps do not need it. If the
    /// outcome is not accepted, no step follows here.
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

    /// Notes that the payload is missing, contrary to the record.
    pub fn payload_missing(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.payload = false;
        }
    }

    /// Whether the task has no work in progress and nothing left to write about its end.
    #[must_use]
    pub fn is_at_rest(&self, id: TaskId) -> bool {
        self.task(id).is_none_or(|task| task.stage.is_at_rest() || task.is_aside())
    }

    /// Requests the payload.
    pub fn read_payload(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id)
            && task.stage == Stage::Idle
        {
            task.stage = Stage::Reading;
            self.act(Action::ReadPayload(id));
        }
    }

    /// Notes the batch size from the message; the ledger has it only once a worker has claimed the
    /// task.
    pub fn record_batch_size(&mut self, id: TaskId, batch_size: Option<u32>) {
        if let Some(task) = self.tasks.get_mut(id)
            && task.batch_size.is_none()
        {
            task.batch_size = batch_size;
        }
    }

    /// Handles the result of reading the payload. All conditions are checked again before a claim.
    /// A payload that is no longer needed is dropped.
    pub fn payload_read(&mut self, id: TaskId, found: bool) {
        let Some(task) = self.tasks.get_mut(id) else {
            return self.act(Action::DropPayload(id));
        };
        task.payload |= found;
        if task.stage == Stage::Reading {
            task.stage = Stage::Idle;
            self.recheck_terminal(id);
        } else if task.is_aside()
            || task.fold.phase.is_terminal() && task.stage.step() != Some(TerminalStep::DeadLetter)
        {
            self.drop_payload(id);
        }
    }
}
