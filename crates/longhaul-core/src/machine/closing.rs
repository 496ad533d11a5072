//! The steps after an accepted terminal entry: dead letter, view, ack. Long after, a seal
//! (`sealing.rs`).
//!
//! The finisher of the task takes them, and so does every holder of a delivery, which writes only
//! what the finisher has not written; the partition knows that (`partition/finishers.rs`). An entry
//! of a batch is acknowledged as a whole, so its ack waits until all of its tasks are terminal and
//! shown.

use super::reading::is_gone;
use super::{Action, Machine, Stage, Task, TerminalStep};
use crate::protocol::fold::Phase;
use crate::task::{EntryId, TaskId};

impl Machine {
    /// Handles the receipt of the dead letter.
    pub fn dead_letter_stored(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.own_record.dead_letter = true;
        }
        if self.step(id) == Some(TerminalStep::DeadLetter) {
            self.show_outcome(id);
        }
    }

    /// Handles the receipt of the metadata entry.
    pub fn metadata_stored(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id)
            && task.fold.phase.is_terminal()
        {
            task.own_record.shown = true;
        }
        if self.step(id) == Some(TerminalStep::Metadata) {
            self.set_stage(id, Stage::Closing(TerminalStep::Written));
            self.drop_payload(id);
            self.try_ack(id);
        }
    }

    /// Handles the receipt of the ack.
    pub fn acked(&mut self, entry: EntryId) {
        let ids: Vec<TaskId> = self.tasks.members(entry).map(|(id, _)| id).collect();
        for id in ids {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            task.held = false;
            task.own_record.acked = task.fold.phase.is_terminal();
            if task.stage.step() == Some(TerminalStep::Ack) {
                task.stage = Stage::Closing(TerminalStep::Closed);
            }
            let gone = is_gone(task);
            self.drop_payload(id);
            if gone {
                self.forget(id);
            }
        }
    }

    /// Closes a terminal task that its finisher may have left behind: only a worker that has closed
    /// the task itself may seal it.
    pub fn close(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        if self.ready && task.fold.phase.is_terminal() && task.stage == Stage::Idle {
            self.begin_closing(id);
        }
    }

    /// Handles a delivery of a terminal task: shows its outcome if that was not done, then
    /// acknowledges.
    pub(super) fn close_again(&mut self, id: TaskId) {
        let Some(stage) = self.task(id).map(|task| task.stage) else { return };
        match stage.step() {
            Some(TerminalStep::Closed) => self.try_ack(id),
            // The ack in flight has overtaken this delivery, which would then stay unacknowledged.
            Some(TerminalStep::Ack) => self.act(Action::Ack(id.entry_id())),
            None if stage.is_free() => self.begin_closing(id),
            Some(TerminalStep::DeadLetter | TerminalStep::Metadata | TerminalStep::Written)
            | None => {}
        }
    }

    /// Begins to close a task that became terminal if this worker has ended it, holds it, or waits
    /// for it to acknowledge a batch.
    pub(super) fn recheck_terminal(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        if !task.fold.phase.is_terminal() || !task.stage.is_free() {
            return;
        }
        let is_written = |member: &Task| member.stage.step() == Some(TerminalStep::Written);
        // A closing claim that was given up may have been stored after all.
        let own = |owner| owner == self.owner() || self.has_granted(owner);
        let ended_by = task.ended_by.as_deref().copied().unwrap_or(task.fold.owner);
        let concerned = task.held || self.ready && own(ended_by);
        if concerned || self.tasks.members(id.entry_id()).any(|(_, member)| is_written(&member)) {
            self.begin_closing(id);
        } else {
            self.drop_payload(id);
        }
    }

    pub(super) fn begin_closing(&mut self, id: TaskId) {
        let phase = self.fold(id).phase;
        if self.letters.wants(phase) {
            self.set_stage(id, Stage::Closing(TerminalStep::DeadLetter));
            return self.act(Action::DeadLetter(id));
        }
        if let Some(task) = self.tasks.get_mut(id)
            && matches!(phase, Phase::Final | Phase::Expired)
        {
            // There is no dead letter, so nothing waits for it.
            task.own_record.dead_letter = true;
        }
        self.show_outcome(id);
    }

    fn show_outcome(&mut self, id: TaskId) {
        self.set_stage(id, Stage::Closing(TerminalStep::Metadata));
        // The entry carries the payload, and may have to be published more than once.
        self.act(Action::ShowOutcome(id));
    }

    fn try_ack(&mut self, id: TaskId) {
        let size = self.tasks.get(id).and_then(|task| task.batch_size).unwrap_or(1);
        let written = |stage: Stage| stage.step() >= Some(TerminalStep::Written);
        let members: Vec<_> = self
            .tasks
            .members(id.entry_id())
            .filter(|(_, task)| task.fold.phase.is_terminal())
            .map(|(member, task)| (member, task.stage))
            .collect();
        if u32::try_from(members.len()).unwrap_or(u32::MAX) < size {
            return;
        }
        for (member, stage) in &members {
            if *stage == Stage::Idle {
                self.begin_closing(*member);
            }
        }
        if members.iter().all(|(_, stage)| written(*stage)) {
            for (member, _) in members {
                self.set_stage(member, Stage::Closing(TerminalStep::Ack));
            }
            self.act(Action::Ack(id.entry_id()));
        }
    }

    fn step(&self, id: TaskId) -> Option<TerminalStep> {
        self.task(id)?.stage.step()
    }

    /// Drops the payload of a task whose end another worker shows. A payload read for that end may
    /// be here without a delivery.
    pub fn let_payload_go(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.payload = false;
            self.act(Action::DropPayload(id));
        }
    }

    pub(super) fn drop_payload(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id)
            && task.payload
        {
            task.payload = false;
            self.act(Action::DropPayload(id));
        }
    }
}
