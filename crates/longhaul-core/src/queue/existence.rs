//! Finds out whether awaited tasks exist. The ledger has no entry of a task that no worker has
//! claimed, but the message of such a task is on the task topic, because it was not acknowledged.
//! So a named task with neither a ledger entry nor a message does not exist.

use super::dependencies::is_new;
use super::{QueueContext, QueueCore, QueueEffect, Remark, Wake};
use crate::machine::Task;
use crate::partition::Partition;
use crate::protocol::moment::Moment;
use crate::protocol::register::QueueTask;
use crate::task::TaskId;
use std::time::Duration;

/// The longest pause between two searches.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The state of the search for the tasks that one task waits for.
#[derive(Debug, Default)]
pub(super) struct Existence {
    /// Number of searches for their messages.
    looks: u32,
    step: ExistenceStep,
}

#[derive(Debug, Default)]
enum ExistenceStep {
    /// No search is in progress.
    #[default]
    Idle,
    /// The next search comes after a pause.
    Pauses,
    /// The broker is being asked.
    Asks,
    /// At that time the topic had no messages of these tasks. Their ends may be on the ledger,
    /// unread so far: this counts once everything stored by then was read.
    Missed(Vec<TaskId>, Moment),
}

impl QueueCore {
    /// Plans a search for the awaited tasks of which nothing is known. The worker that holds the
    /// delivery of the waiting task, or has parked it, searches after a while, and again with
    /// growing pauses, because a message may be deleted later.
    pub(super) fn look_for_dependencies_later(&mut self, task: QueueTask, cx: &QueueContext<'_>) {
        let machine = cx.of(task).map(Partition::machine);
        let known = machine.and_then(|machine| machine.task(task.id));
        let is_own = |known: &Task| machine.is_some_and(|it| it.is_own(known.fold.owner));
        if !known.is_some_and(|known| known.held || is_own(&known)) {
            return;
        }
        let Some(dependent) = self.dependencies.get_mut(task) else { return };
        let Existence { looks, step } = &mut dependent.existence;
        if !matches!(step, ExistenceStep::Idle) {
            return;
        }
        *step = ExistenceStep::Pauses;
        // By then most of them are claimed or over.
        let pause = (2 * self.config.heartbeat * (1 << (*looks).min(16))).min(PAUSE_MAX);
        self.agenda.set(Wake::Dependencies(task), cx.now + pause);
    }

    /// Handles the end of a pause.
    pub(super) fn dependencies_are_due(&mut self, task: QueueTask, cx: &mut QueueContext<'_>) {
        let Some(dependent) = self.dependencies.get_mut(task) else { return };
        match std::mem::take(&mut dependent.existence.step) {
            ExistenceStep::Missed(gone, at) => self.judge_missed(task, gone, at, cx),
            ExistenceStep::Pauses => self.look_for_dependencies(task, cx),
            ExistenceStep::Asks | ExistenceStep::Idle => {}
        }
    }

    /// Searches the topic for the messages of named tasks of which nothing is known.
    fn look_for_dependencies(&mut self, task: QueueTask, cx: &QueueContext<'_>) {
        let Some(dependent) = self.dependencies.get_mut(task) else { return };
        let held = |named: QueueTask| {
            let known = cx.of(named).and_then(|it| it.machine().task(named.id));
            known.is_some_and(|known| known.held)
        };
        let all = dependent.tasks().map(|id| QueueTask { id, ..task });
        let unseen = all.filter(|named| {
            let is_here = cx.of(*named).is_some();
            is_here && is_new(cx.partitions, *named) && !held(*named)
        });
        let named: Vec<QueueTask> = unseen.collect();
        if named.is_empty() {
            dependent.existence.looks += 1;
            return self.look_for_dependencies_later(task, cx);
        }
        dependent.existence.step = ExistenceStep::Asks;
        self.effects.push_back(QueueEffect::LookFor { task, named });
    }

    /// Handles the broker's answer: at this time these named tasks had no messages.
    pub fn handle_looked(
        &mut self,
        task: QueueTask,
        gone: Vec<TaskId>,
        at: Moment,
        cx: &mut QueueContext<'_>,
    ) {
        let Some(dependent) = self.dependencies.get_mut(task) else { return };
        if matches!(dependent.existence.step, ExistenceStep::Asks) {
            dependent.existence.step = ExistenceStep::Idle;
            self.judge_missed(task, gone, at, cx);
        }
    }

    fn judge_missed(
        &mut self,
        task: QueueTask,
        gone: Vec<TaskId>,
        at: Moment,
        cx: &mut QueueContext<'_>,
    ) {
        let Some(dependent) = self.dependencies.get_mut(task) else { return };
        let complete_at = |id: TaskId| cx.of(QueueTask { id, ..task }).and_then(Partition::view_at);
        if gone.iter().any(|id| complete_at(*id) <= Some(at)) {
            dependent.existence.step = ExistenceStep::Missed(gone, at);
            let next = cx.now + self.config.heartbeat;
            return self.agenda.set(Wake::Dependencies(task), next);
        }
        dependent.existence.looks += 1;
        dependent.unknown.extend(&gone);
        for id in gone {
            self.log(Remark::DependencyMissing(task, QueueTask { id, ..task }));
        }
        self.tell_dependency_state(task, cx);
    }
}
