//! Self-fence: a worker whose view has become too old starts afresh under a new owner id, but its running processors go on if
//! the ledger still shows them as the owner's.
//!
//! One read of the ledger does not prove that: a task that was finished and evicted meanwhile may show up as a ghost, RUNNING,
//! while its tombstones are compacted away in front of the reader. So an attempt is kept only if a second full read, begun
//! after the first ended, still shows it. Until then it publishes nothing.

use super::{Action, Machine, Run, Stage, Stop, Task};
use crate::protocol::entry::Entry;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::key::OwnerId;
use crate::task::{Position, TaskId};
use std::collections::BTreeMap;

/// A second full read of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SecondRead {
    position: Option<Position>,
    folds: BTreeMap<TaskId, TaskFold>,
}

impl Machine {
    /// Ends the incarnation: view, deliveries and pending publishes are dropped, and the ledger must be read from the start.
    /// The caller drops the publishes that are still queued and closes the consumer.
    pub fn fence(&mut self, owner: OwnerId) {
        self.former.push(self.owner);
        self.owner = owner;
        self.ready = false;
        self.restart_bootstrap();
        self.forget_former();
    }

    /// Forgets what was read so far: the bootstrap took too long and starts over.
    pub fn restart_bootstrap(&mut self) {
        self.position = None;
        self.second = None;
        let tasks = std::mem::take(&mut self.tasks);
        let kept = |(id, task): (TaskId, Box<Task>)| Some((id, Box::new(keep(&task)?)));
        self.tasks = tasks.into_iter().filter_map(kept).collect();
    }

    /// The own heartbeat came back: the ledger was read to its end.
    pub fn bootstrap_ended(&mut self) {
        self.ready = true;
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            self.check_kept(id, None);
        }
        self.read_again();
    }

    /// Takes the next entry of the second read.
    pub fn second_read(&mut self, position: Position, entry: &Entry) {
        let Some(second) = &mut self.second else { return };
        if second.position.is_some_and(|last| position <= last) {
            return;
        }
        second.position = Some(position);
        let (Some(id), false) = (entry.task(), matches!(entry, Entry::Tombstone(_))) else {
            return;
        };
        second.folds.entry(id).or_default().apply(entry);
    }

    /// The second read took too long (a bootstrap may not last R/4 either): it starts over.
    pub fn second_read_failed(&mut self) {
        self.second = None;
        self.read_again();
    }

    /// The second read has reached the end of the ledger as it was when the read began.
    pub fn second_read_ended(&mut self) {
        let Some(second) = self.second.take() else { return };
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            let shown = second.folds.get(&id).copied().unwrap_or_default();
            self.check_kept(id, Some(&shown));
            self.check_orphan(id, &shown);
        }
        self.read_again();
    }

    /// The owner ids whose heartbeats must go on: the own one, and those of kept attempts.
    #[must_use]
    pub fn owners_alive(&self) -> Vec<OwnerId> {
        let mut owners = vec![self.owner];
        if !self.former.is_empty() {
            let kept = self.tasks().filter_map(|(_, task)| owner_at_work(task));
            owners.extend(kept.filter(|owner| self.former.contains(owner)));
            owners.sort_unstable();
            owners.dedup();
        }
        owners
    }

    fn read_again(&mut self) {
        let needed = !self.former.is_empty()
            && self.tasks.values().any(|task| {
                matches!(task.stage, Stage::Running(Run { confirmed: false, .. }))
                    || (self.is_orphan(task) && !task.live)
            });
        if needed && self.second.is_none() {
            self.second = Some(SecondRead::default());
            self.act(Action::ReadAgain);
        }
    }

    /// A kept attempt goes on only if this read, and the second one, show it as running.
    fn check_kept(&mut self, id: TaskId, shown: Option<&TaskFold>) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Stage::Running(run) = &mut task.stage else { return };
        if run.confirmed {
            return;
        }
        let shows = |fold: &TaskFold| fold.is_run_by(run.epoch, run.owner);
        if !shows(&task.fold) || shown.is_some_and(|fold| !shows(fold)) {
            let epoch = run.epoch;
            task.disowned = task.disowned.max(epoch);
            task.stage = Stage::Idle;
            self.act(Action::Stop { task: id, epoch, why: Stop::Fenced });
        } else if shown.is_some() {
            run.confirmed = true;
            if let Run { epoch, owner, ended: Some(outcome), .. } = *run {
                self.publish_outcome(id, epoch, owner, outcome);
            } else if task.fold.cancel {
                let epoch = run.epoch;
                self.act(Action::Stop { task: id, epoch, why: Stop::Cancelled });
            }
        }
    }

    /// An accepted claim of a former owner id that nothing runs: released if both reads show it, never from the first alone.
    fn check_orphan(&mut self, id: TaskId, shown: &TaskFold) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let TaskFold { epoch, owner, phase, .. } = task.fold;
        if phase != Phase::Running || task.live {
            return;
        }
        if !self.is_own(owner) || !self.tasks.get(&id).is_some_and(|task| self.is_orphan(task)) {
            return;
        }
        if shown.is_run_by(epoch, owner) {
            self.release(id);
        } else if let Some(task) = self.tasks.get_mut(&id) {
            task.disowned = epoch;
        }
    }

    /// Claims of a former id may land for a while, so ids are kept; but a process that is fenced for years must not grow.
    /// An id under which an attempt still runs is never forgotten.
    fn forget_former(&mut self) {
        const FORMER_MAX: usize = 64;
        let at_work: Vec<OwnerId> =
            self.tasks().filter_map(|(_, task)| owner_at_work(task)).collect();
        let mut excess = self.former.len().saturating_sub(FORMER_MAX);
        self.former.retain(|owner| {
            let kept = excess == 0 || at_work.contains(owner);
            excess -= usize::from(!kept);
            kept
        });
    }
}

/// What a self-fence keeps of a task: a running attempt, and one that ended but whose outcome was not read back.
fn keep(task: &Task) -> Option<Task> {
    use crate::protocol::entry::Outcome;
    let run = match task.stage {
        Stage::Running(run) => Run { confirmed: false, ..run },
        Stage::Finishing { outcome: Outcome::Released(_), .. } => return None,
        Stage::Finishing { epoch, owner, outcome, .. } if task.fold.epoch == epoch => {
            Run { epoch, owner, confirmed: false, ended: Some(outcome) }
        }
        Stage::Finishing { .. }
        | Stage::Idle
        | Stage::Reading
        | Stage::Claiming { .. }
        | Stage::Closing(_)
        | Stage::Evicting => return None,
    };
    let Task { batch_size, payload, .. } = *task;
    let kept = Task { stage: Stage::Running(run), batch_size, payload, ..Task::default() };
    Some(kept)
}

fn owner_at_work(task: &Task) -> Option<OwnerId> {
    match task.stage {
        Stage::Running(run) => Some(run.owner),
        Stage::Finishing { owner, .. } => Some(owner),
        Stage::Idle
        | Stage::Reading
        | Stage::Claiming { .. }
        | Stage::Closing(_)
        | Stage::Evicting => None,
    }
}
