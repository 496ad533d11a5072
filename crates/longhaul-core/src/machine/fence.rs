//! Self-fence: a worker whose view is too old starts again under a new owner id. Its running
//! processors go on if the ledger still shows them as the owner's.
//!
//! Until the ledger was read to its end they publish nothing. One read of a sound ledger is proof
//! enough: a bootstrap is at most behind, and a task that has left the ledger is named by a seal,
//! which every bootstrap reads. `partition/comparing.rs` finds out whether it was sound.

use super::admitting::Admitting;
use super::lines::KeyLines;
use super::{Action, AttemptRun, Machine, Stage, Stop, Task};
use crate::protocol::digest::TasksDigest;
use crate::protocol::key::{Epoch, OwnerId};
use crate::task::TaskId;

impl Machine {
    /// Ends the incarnation: view, deliveries and pending publishes are dropped, and the ledger
    /// must be read from the start. The caller drops the queued publishes and closes the consumer.
    pub fn fence(&mut self, owner: OwnerId) {
        self.ready = false;
        self.position = None;
        self.sealing.begin_anew();
        self.admitting = Admitting::default();
        self.lines = KeyLines::default();
        self.drop_silent_ends();
        self.tasks.keep_only(keep);
        self.digest = TasksDigest::default();
        let at_work: Vec<OwnerId> = self.owners_at_work().collect();
        self.owners.renew(owner, &at_work);
    }

    /// Notes that the processor of this attempt will not start.
    pub fn not_started(&mut self, id: TaskId, started: Epoch) {
        if let Some(task) = self.tasks.get_mut(id)
            && let Stage::Running(AttemptRun { epoch, .. }) = task.stage
            && epoch == started
        {
            task.stage = Stage::Idle;
        }
    }

    /// Ends the bootstrap: an own heartbeat came back, so the ledger was read to its end.
    pub fn bootstrap_ended(&mut self) {
        self.ready = true;
        self.live_from = self.position;
        // No finished task runs here or was to be run.
        let ids: Vec<TaskId> = self.open_tasks().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(task) = self.tasks.get_mut(id) {
                task.own_record.update(&task.fold);
            }
            self.check_kept(id);
            self.release_orphan(id);
        }
    }

    /// The owner ids whose heartbeats must go on: the current one, and those of kept attempts.
    #[must_use]
    pub fn owners_alive(&self) -> Vec<OwnerId> {
        self.owners.alive(self.owners_at_work())
    }

    fn owners_at_work(&self) -> impl Iterator<Item = OwnerId> {
        self.open_tasks().filter_map(|(_, task)| task.stage.attempt()).map(|(_, owner)| owner)
    }

    /// Lets a kept attempt go on only if the ledger shows it as running.
    fn check_kept(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let Stage::Running(run) = task.stage else { return };
        let AttemptRun { epoch, owner, ended } = run;
        if !task.fold.is_run_by(epoch, owner) {
            task.stage = Stage::Idle;
            self.act(Action::Stop { task: id, epoch, why: Stop::Fenced });
        } else if let Some(outcome) = ended {
            self.publish_outcome(id, epoch, owner, outcome);
        } else if task.fold.cancel {
            self.act(Action::Stop { task: id, epoch, why: Stop::Cancelled });
        }
    }
}

/// The part of a task that a self-fence keeps: a running attempt, or one that ended and whose
/// outcome was not read back.
fn keep(task: &Task) -> Option<Task> {
    let run = task.stage.run()?;
    let Task { batch_size, payload, own_record, gives, .. } = *task;
    let (stage, limits) = (Stage::Running(run), task.limits.clone());
    let kept = Task { stage, batch_size, limits, gives, payload, own_record, ..Task::default() };
    Some(kept)
}
