//! New tasks with a key: none is claimed before the register says that it holds the key.
//!
//! The machine does not read the register; whoever does tells it. A task that nothing was told of
//! has no key.

use super::Machine;
use crate::protocol::claim::{Decision, NextClaim};
use crate::protocol::entry::ClaimKind;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::invariants::{BINDING, Breach, Judgement};
use crate::protocol::register::QueueTask;
use crate::task::TaskId;
use std::collections::BTreeMap;

/// What the register says of new tasks that are held here. Those that hold their key are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Admitting {
    tasks: BTreeMap<TaskId, KeyState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KeyState {
    /// Not decided.
    Waits,
    /// This task holds the key.
    Lost(QueueTask),
}

impl Admitting {
    /// What follows for a task, where the register says something of it.
    pub(super) fn decide(
        &self,
        id: TaskId,
        fold: &TaskFold,
        closes: Option<ClaimKind>,
    ) -> Option<Decision> {
        let state = self.tasks.get(&id).filter(|_| fold.phase == Phase::New)?;
        match state {
            // What ends it unseen needs no key.
            KeyState::Waits if fold.cancel || closes.is_some_and(ClaimKind::closes) => None,
            KeyState::Waits => Some(Decision::Wait),
            KeyState::Lost(_) => {
                let kind = ClaimKind::Cancelled;
                Some(Decision::Claim(NextClaim { kind, attempt: fold.attempt }))
            }
        }
    }

    /// The delivery is not here any more.
    pub(super) fn let_go(&mut self, id: TaskId) {
        self.tasks.remove(&id);
    }

    /// C-12, as far as this worker can tell.
    pub(super) fn judge_run(&self, id: TaskId) -> Judgement {
        if self.tasks.contains_key(&id) {
            return Err(Breach {
                id: BINDING,
                what: "a task is claimed that does not hold its key",
            });
        }
        Ok(())
    }
}

impl Machine {
    /// A held task has a key, and it is not decided whether it holds it.
    pub fn wait_for_key(&mut self, id: TaskId) {
        if self.task(id).is_some_and(|task| task.held && task.fold.phase == Phase::New) {
            self.admitting.tasks.insert(id, KeyState::Waits);
        }
    }

    /// A task holds its key.
    pub fn admit(&mut self, id: TaskId) {
        self.admitting.tasks.remove(&id);
    }

    /// Another task holds the key of this one, which is closed as soon as it may be.
    pub fn reject(&mut self, id: TaskId, holder: QueueTask) {
        if self.task(id).is_some_and(|task| task.held && task.fold.phase == Phase::New) {
            self.admitting.tasks.insert(id, KeyState::Lost(holder));
        }
    }

    /// The task that holds the key which this one wants, if it is known to have lost.
    #[must_use]
    pub fn lost_to(&self, id: TaskId) -> Option<QueueTask> {
        match self.admitting.tasks.get(&id)? {
            KeyState::Lost(holder) => Some(*holder),
            KeyState::Waits => None,
        }
    }

    /// Whether it is not decided that the task holds its key, or has lost it.
    #[must_use]
    pub fn waits_for_key(&self, id: TaskId) -> bool {
        self.admitting.tasks.get(&id) == Some(&KeyState::Waits)
    }

    /// How many tasks wait for their keys, or have lost them and are not closed.
    #[must_use]
    pub fn waiting_for_keys(&self) -> usize {
        self.admitting.tasks.len()
    }
}
