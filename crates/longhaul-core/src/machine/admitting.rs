//! New tasks with a key: none is claimed before the register shows that it holds the key.
//!
//! The machine does not read the register; its reader reports to the machine. A task without a
//! report has no key.

use super::Machine;
use crate::protocol::claim::{Decision, NextClaim};
use crate::protocol::entry::ClaimKind;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::invariants::{BINDING, Breach, Judgement};
use crate::protocol::register::QueueTask;
use crate::task::TaskId;
use std::collections::BTreeMap;

/// The register's verdicts on new tasks held here. Tasks that hold their key are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Admitting {
    tasks: BTreeMap<TaskId, KeyState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KeyState {
    /// Not decided.
    Waits,
    /// The given task holds the key.
    Lost(QueueTask),
}

impl Admitting {
    /// The decision for a task with a verdict.
    pub(super) fn decide(
        &self,
        id: TaskId,
        fold: &TaskFold,
        closes: Option<ClaimKind>,
    ) -> Option<Decision> {
        let state = self.tasks.get(&id).filter(|_| fold.phase == Phase::New)?;
        match state {
            // Ending a task that never ran needs no key.
            KeyState::Waits if fold.cancel || closes.is_some_and(ClaimKind::closes) => None,
            KeyState::Waits => Some(Decision::Wait),
            KeyState::Lost(_) => {
                let kind = ClaimKind::Cancelled;
                Some(Decision::Claim(NextClaim { kind, attempt: fold.attempt }))
            }
        }
    }

    /// Removes a task whose delivery is no longer here.
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
    /// Makes a held task wait until its key is decided.
    pub fn wait_for_key(&mut self, id: TaskId) {
        if self.task(id).is_some_and(|task| task.held && task.fold.phase == Phase::New) {
            self.admitting.tasks.insert(id, KeyState::Waits);
        }
    }

    /// Admits a task that holds its key.
    pub fn admit(&mut self, id: TaskId) {
        self.admitting.tasks.remove(&id);
    }

    /// Rejects a task whose key another task holds; it is closed as soon as possible.
    pub fn reject(&mut self, id: TaskId, holder: QueueTask) {
        if self.task(id).is_some_and(|task| task.held && task.fold.phase == Phase::New) {
            self.admitting.tasks.insert(id, KeyState::Lost(holder));
        }
    }

    /// The holder of the key that this task wants, if the task is known to have lost it.
    #[must_use]
    pub fn lost_to(&self, id: TaskId) -> Option<QueueTask> {
        match self.admitting.tasks.get(&id)? {
            KeyState::Lost(holder) => Some(*holder),
            KeyState::Waits => None,
        }
    }

    /// Whether it is undecided if the task holds its key.
    #[must_use]
    pub fn waits_for_key(&self, id: TaskId) -> bool {
        self.admitting.tasks.get(&id) == Some(&KeyState::Waits)
    }

    /// Number of tasks that wait for their keys, or have lost them and are not closed.
    #[must_use]
    pub fn waiting_for_keys(&self) -> usize {
        self.admitting.tasks.len()
    }
}
