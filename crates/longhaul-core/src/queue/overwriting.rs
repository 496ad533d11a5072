//! Tasks that replace an earlier one with the same dedupe key. The register defines which task
//! waits for which ([`Overwriting`]). The worker that keeps the keys of the partition acts on it,
//! no matter which worker holds the deliveries: a scheduled task has none.
//!
//! A task that makes room is closed by a claim of the next epoch, like one closed by an operator
//! (`protocol/operator.rs`): if a worker claims it at the same time, only one of both claims
//! counts. A running task is left alone.

use super::{QueueContext, QueueCore, QueueEffect, Wake};
use crate::machine::Task;
use crate::partition::Partition;
use crate::protocol::entry::{Claim, ClaimKind};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::key::{Epoch, OnceKey};
use crate::protocol::register::{Admission, Digest, Hold, KeyName, Overwriting, QueueTask};
use crate::task::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Retry interval for a step that had no effect.
const AGAIN: Duration = Duration::from_secs(5);

/// Work in progress on overwriters.
#[derive(Debug, Default)]
pub(super) struct Overwriters {
    /// The last step for each key whose overwriters wait, until the key is looked at again.
    steps: BTreeMap<KeyName, OverwriteStep>,
    /// Tasks whose messages are being read, which may take as long as the broker is away.
    reading: BTreeSet<QueueTask>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OverwriteStep {
    /// A closing claim, or the read before it.
    Close(QueueTask, Epoch),
    /// A bind.
    Bind(QueueTask),
}

impl QueueCore {
    /// Handles an accepted ledger entry of this task: overwriters may wait for it, and it may have
    /// ended or stopped running.
    pub(super) fn overwritten_has_changed(&mut self, task: QueueTask, cx: &mut QueueContext<'_>) {
        let keys = self.register.keys();
        if keys.has_overwriters()
            && let Some(name) = keys.held_by(task).cloned()
        {
            self.overwrite(&name, cx);
        }
    }

    /// Checks all keys for which overwriters wait.
    pub fn recheck_overwriters(&mut self, cx: &mut QueueContext<'_>) {
        let names: Vec<KeyName> = self.register.keys().overwritten().cloned().collect();
        for name in names {
            self.overwrite(&name, cx);
        }
    }

    /// Handles a step that may have had no effect.
    pub(super) fn overwriters_are_due(&mut self, name: &KeyName, cx: &mut QueueContext<'_>) {
        self.overwriters.steps.remove(name);
        self.overwrite(name, cx);
    }

    /// Does the next step for the overwriters of a key, if this worker keeps the keys of the
    /// partition.
    pub(super) fn overwrite(&mut self, name: &KeyName, cx: &mut QueueContext<'_>) {
        if !self.read {
            return;
        }
        let Some(overwriting) = self.register.keys().overwriting(name) else { return };
        let (Overwriting::Over { holder: task, .. } | Overwriting::Bind(task, _)) = overwriting;
        let Some(is_over) = cx.is_over_here(task) else { return };
        match overwriting {
            Overwriting::Over { holder, .. } if is_over => self.keep_hold(holder, true),
            Overwriting::Over { holder, by } => self.make_room(name, holder, by, cx),
            // The worker that holds its delivery binds it.
            Overwriting::Bind(task, _) if self.waiting.has(name, task) => {}
            Overwriting::Bind(task, digest) => self.bind_overwriter(name, task, digest, cx),
        }
    }

    /// Closes a task, unless it runs or its overwriter is already over.
    fn make_room(
        &mut self,
        name: &KeyName,
        holder: QueueTask,
        by: QueueTask,
        cx: &mut QueueContext<'_>,
    ) {
        let Some(partition) = cx.of(holder) else { return };
        let fold = partition.machine().fold(holder.id);
        let step = OverwriteStep::Close(holder, fold.epoch);
        if fold.phase == Phase::Running || cx.is_over(by) || !self.begin_step(name, step, cx) {
            return;
        }
        self.read_and_close(holder, by, cx);
    }

    /// Closes an overwriter that has lost against a later task of its partition. Its delivery may
    /// come only after its loss is forgotten.
    pub(super) fn overwriter_lost(
        &mut self,
        hold: &Hold,
        to: QueueTask,
        cx: &mut QueueContext<'_>,
    ) {
        let (task, name) = (hold.key.task, &hold.key.name);
        // The worker that holds the delivery closes the task.
        let held =
            |partition: &Partition| partition.machine().task(task.id).is_some_and(|task| task.held);
        if self.read
            && hold.overwrites
            && self.register.keys().admission(name, task) == Admission::Lost(to)
            && cx.phase(task) != Some(Phase::Running)
            && !cx.of(task).is_some_and(held)
            && task.makes_room_for(to)
            && cx.is_over_here(task) == Some(false)
        {
            self.read_and_close(task, to, cx);
        }
    }

    /// Closes a task. The claim carries the size of its batch; if the size is unknown, the message
    /// is read first.
    fn read_and_close(&mut self, task: QueueTask, by: QueueTask, cx: &mut QueueContext<'_>) {
        let Some(partition) = cx.of(task) else { return };
        let is_known = |task: &Task| task.held || task.fold.epoch > Epoch(0);
        let known = partition.machine().task(task.id);
        if let Some(known) = known.filter(|known| is_known(known)) {
            let (fold, batch_size) = (known.fold, known.batch_size);
            self.close_for(task, by, &fold, batch_size, cx);
        } else if self.overwriters.reading.insert(task) {
            self.effects.push_back(QueueEffect::ReadOverwritten(task, by));
        }
    }

    /// Handles the message of a task that makes room, or its absence. Without the message it is
    /// unknown whether the task ever ran; it is closed all the same, and its own index is the only
    /// lower bound of the size of its batch.
    pub fn handle_overwritten_read(
        &mut self,
        (task, by): (QueueTask, QueueTask),
        batch_size: Option<u32>,
        cx: &mut QueueContext<'_>,
    ) {
        self.overwriters.reading.remove(&task);
        let Some(partition) = cx.of(task) else { return };
        let fold = partition.machine().fold(task.id);
        if partition.machine().is_ready() && fold.phase == Phase::New {
            let in_batch = || task.id.batch_index.map(|index| index.saturating_add(1));
            self.close_for(task, by, &fold, batch_size.or_else(in_batch), cx);
        }
    }

    fn close_for(
        &mut self,
        task: QueueTask,
        by: QueueTask,
        fold: &TaskFold,
        batch_size: Option<u32>,
        cx: &mut QueueContext<'_>,
    ) {
        let stamp = self.stamps.next();
        let (epoch, owner, serial) = (fold.epoch.next(), stamp.writer, stamp.serial);
        let key = OnceKey { task: task.id, epoch, owner, serial };
        let claim = Claim::plain(key, fold.attempt, ClaimKind::Cancelled);
        let claim = Claim { batch_size, ..claim };
        if cx.of_mut(task).is_some_and(|partition| partition.may_close(&claim)) {
            self.effects.push_back(QueueEffect::Close(task, claim, Failure::superseded_by(by.id)));
        }
    }

    /// Publishes the bind of an overwriter: afterwards it holds the key, or has lost it for good.
    fn bind_overwriter(
        &mut self,
        name: &KeyName,
        task: QueueTask,
        digest: Option<Digest>,
        cx: &QueueContext<'_>,
    ) {
        if self.begin_step(name, OverwriteStep::Bind(task), cx) {
            let stamp = self.stamps.next();
            let entry = self.register.keys().bind_of(name, task, digest, stamp);
            // If this is lost, it is published again after `AGAIN`.
            self.publish(entry.overwriting(true));
        }
    }

    /// Records the next step. Returns false if it is in progress already.
    fn begin_step(&mut self, name: &KeyName, step: OverwriteStep, cx: &QueueContext<'_>) -> bool {
        let before = self.overwriters.steps.insert(name.clone(), step);
        if before.is_none() {
            self.agenda.set(Wake::Overwriters(name.clone()), cx.now + AGAIN);
        }
        before != Some(step)
    }
}
