//! Events of tasks that wait for others: their lists are read, awaited tasks end, and keys are
//! taken.

use super::{QueueContext, QueueCore, Remark, Wake};
use crate::facts::AfterList;
use crate::protocol::entry::{ClaimKind, Entry};
use crate::protocol::entry_set::EntrySet;
use crate::protocol::register::{KeyName, QueueTask};
use crate::protocol::waits::{DependencyState, KEY_WAIT_MAX, WaitsError, WaitsFor};
use crate::task::{Priority, TaskId};
use bytes::Bytes;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

impl QueueCore {
    /// Handles a message that names other tasks. A ledger entry read before takes precedence.
    pub(super) fn depends_on(
        &mut self,
        task: QueueTask,
        after: AfterList,
        cx: &mut QueueContext<'_>,
    ) {
        if self.dependencies.get(task).is_some() {
            return self.tell_dependency_state(task, cx);
        }
        if let Err(error) = &after {
            self.log(Remark::AfterUnreadable(task, error.to_string()));
        }
        self.begin_waiting(task, after, cx);
    }

    fn begin_waiting(&mut self, task: QueueTask, list: AfterList, cx: &mut QueueContext<'_>) {
        self.forget_dependencies(task);
        self.dependencies.insert(task, list, self.register.keys());
        self.tell_broken_circle(task, cx);
        self.tell_dependency_state(task, cx);
    }

    fn tell_broken_circle(&mut self, task: QueueTask, cx: &mut QueueContext<'_>) {
        let broken = self.dependencies.break_circle(task).filter(|broken| *broken != task);
        if let Some(broken) = broken {
            self.tell_dependency_state(broken, cx);
        }
    }

    /// Handles an accepted ledger entry of this task. `content` returns its content.
    pub fn handle_task_entry(
        &mut self,
        task: QueueTask,
        entry: &Entry,
        content: impl FnOnce() -> Bytes,
        cx: &mut QueueContext<'_>,
    ) {
        let parks = matches!(entry, Entry::Claim(claim) if claim.kind == ClaimKind::Park)
            || matches!(entry, Entry::Done(done) if done.parks());
        if parks {
            let list = WaitsFor::of_content(&content()).map(Arc::new).ok_or(WaitsError::Body);
            if let Err(error) = &list {
                self.log(Remark::ParkedUnreadable(task, error.to_string()));
            }
            self.begin_waiting(task, list, cx);
            self.wait_for_keys(task, cx);
        } else if !self.dependencies.is_empty()
            && cx.phase(task).is_some_and(|phase| phase.is_terminal())
        {
            self.forget_dependencies(task);
            self.tell_watchers(task..=task, cx);
        }
        self.overwritten_has_changed(task, cx);
    }

    /// Handles a seal: the tasks of these entries are over for good.
    pub fn handle_sealed(&mut self, level: Priority, sealed: &EntrySet, cx: &mut QueueContext<'_>) {
        if self.dependencies.is_empty() {
            return;
        }
        for range in sealed.ranges() {
            let task = |id: TaskId| QueueTask { level, id };
            let (first, last) = range.tasks().into_inner();
            self.tell_watchers(task(first)..=task(last), cx);
        }
    }

    /// Handles a partition of this level that has read its ledger: its tasks count from now on.
    pub fn handle_ready(&mut self, level: Priority, cx: &mut QueueContext<'_>) {
        for task in self.dependencies.of_level(level).collect::<Vec<_>>() {
            self.tell_dependency_state(task, cx);
        }
    }

    /// Handles a register entry of this key.
    pub(super) fn dependency_was_bound(&mut self, name: &KeyName, cx: &mut QueueContext<'_>) {
        for task in self.dependencies.unbound(name) {
            if self.dependencies.bind(task, name, self.register.keys()) {
                self.tell_broken_circle(task, cx);
                self.tell_dependency_state(task, cx);
            }
        }
    }

    /// Plans a check for when a parked task has waited long enough for its keys.
    fn wait_for_keys(&mut self, task: QueueTask, cx: &QueueContext<'_>) {
        let dependent = self.dependencies.get(task);
        if dependent.is_none_or(|it| it.named().all(|(_, task)| task.is_some())) {
            return;
        }
        let known = cx.of(task).and_then(|partition| partition.machine().task(task.id));
        let Some(since_ms) = known.map(|known| known.state_ms) else { return };
        let waited = Duration::from_millis(cx.wall_ms.saturating_sub(since_ms));
        let until = cx.now + KEY_WAIT_MAX.saturating_sub(waited);
        self.agenda.set(Wake::KeyWait(task), until);
    }

    /// Ends the wait of a task that has waited long enough for its keys.
    pub(super) fn give_up_keys(&mut self, task: QueueTask, cx: &mut QueueContext<'_>) {
        self.dependencies.give_up_keys(task);
        let fold = cx.of(task).map(|partition| partition.machine().fold(task.id));
        if fold.is_some_and(|fold| fold.is_parked()) {
            self.tell_dependency_state(task, cx);
        }
    }

    fn tell_watchers(&mut self, ended: RangeInclusive<QueueTask>, cx: &mut QueueContext<'_>) {
        for task in self.dependencies.watchers(ended).collect::<Vec<_>>() {
            if !self.dependencies.still_waits(cx.partitions, task) {
                self.tell_dependency_state(task, cx);
            }
        }
    }

    /// Tells the partition the state of the task's dependencies.
    pub(super) fn tell_dependency_state(&mut self, task: QueueTask, cx: &mut QueueContext<'_>) {
        let Some(state) = self.dependencies.state(cx.partitions, task) else { return };
        let (waits, now) = (state == DependencyState::Waits, cx.now);
        let Some(partition) = cx.of_mut(task) else { return };
        if !partition.record_standing(task.id, state, now) {
            self.forget_dependencies(task);
        } else if waits {
            self.look_for_dependencies_later(task, cx);
        }
    }

    fn forget_dependencies(&mut self, task: QueueTask) {
        self.dependencies.remove(task);
        self.agenda.remove(Wake::KeyWait(task));
        self.agenda.remove(Wake::Dependencies(task));
    }
}
