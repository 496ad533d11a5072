//! New tasks with an order key: none begins before those before it in the line of its key are over.
//!
//! A line holds the deliveries of one key that are here. A broker deals the messages of a key to
//! one consumer at a time, in order, so whoever holds a task has been dealt all before it: they are
//! in the line, too, or acknowledged, which means that the ledger shows their end. So a worker that
//! claims the first of a line needs to know nothing of other workers, however old its view is: ends
//! stand for good.
//!
//! Only the first claim that runs a task depends on the line. Once it was accepted all before the
//! task were over, so it is tried again or taken over by any worker, as every task is; those behind
//! it wait for its end wherever they are delivered.
//!
//! A parked task is as one that has not begun: it has its place, and when those that it waits for
//! are over it begins when it is its turn. So one before it that was to start later can begin, and
//! it may be the one that the parked task waits for. Whoever does not hold a parked task knows no
//! line of it, and leaves it alone.

use super::{Machine, Task};
use crate::protocol::claim::Decision;
use crate::protocol::entry::ClaimKind;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::invariants::{Breach, Judgement, ORDER};
use crate::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key whose tasks are run in order.
pub type OrderKey = Arc<[u8]>;

/// The lines of the keys that tasks are held of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lines {
    lines: BTreeMap<OrderKey, Line>,
    keys: BTreeMap<TaskId, OrderKey>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Line {
    /// Those that are not over.
    tasks: BTreeSet<TaskId>,
    /// Those of them that have begun, and are not parked. As a rule the first one: but a task that
    /// was to wait for its time takes its place when that has come.
    begun: BTreeSet<TaskId>,
}

impl Line {
    fn lets_begin(&self, id: TaskId) -> bool {
        match self.begun.first() {
            None => self.tasks.first() == Some(&id),
            Some(begun) => *begun == id && self.begun.len() == 1,
        }
    }
}

impl Lines {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// What follows for a task that is to begin and is not the next of its line. What ends it
    /// unseen needs no place.
    pub(super) fn decide(
        &self,
        id: TaskId,
        fold: &TaskFold,
        closes: Option<ClaimKind>,
    ) -> Option<Decision> {
        let ends = || fold.cancel || closes.is_some_and(ClaimKind::closes);
        let waits = is_to_begin(fold) && !self.lets_begin(id) && !ends();
        waits.then_some(Decision::Wait)
    }

    fn lets_begin(&self, id: TaskId) -> bool {
        let line = self.keys.get(&id).and_then(|key| self.lines.get(key));
        line.is_none_or(|line| line.lets_begin(id))
    }

    /// C-29, as far as this worker can tell.
    pub(super) fn judge_begin(&self, id: TaskId) -> Judgement {
        if self.lets_begin(id) {
            return Ok(());
        }
        let what = "a task is claimed before one of its order key that comes first is over";
        Err(Breach { id: ORDER, what })
    }

    /// A task is claimed to run, or was.
    pub(super) fn begin(&mut self, id: TaskId) {
        if let Some(line) = self.keys.get(&id).and_then(|key| self.lines.get_mut(key)) {
            line.begun.insert(id);
        }
    }

    /// The task is parked: it waits for its turn again.
    pub(super) fn stand_back(&mut self, id: TaskId) {
        if let Some(line) = self.keys.get(&id).and_then(|key| self.lines.get_mut(key)) {
            line.begun.remove(&id);
        }
    }

    /// The task is over, or not held any more.
    pub(super) fn leave(&mut self, id: TaskId) {
        let Some(key) = self.keys.remove(&id) else { return };
        if let Some(line) = self.lines.get_mut(&key) {
            line.tasks.remove(&id);
            line.begun.remove(&id);
            if line.tasks.is_empty() {
                self.lines.remove(&key);
            }
        }
    }
}

/// Whether the next claim that runs the task depends on its line.
pub(super) const fn is_to_begin(fold: &TaskFold) -> bool {
    matches!(fold.phase, Phase::New) || fold.is_parked()
}

impl Machine {
    /// Whether tasks with a key have an order, from now on.
    pub const fn keep_order(&mut self, by_key: bool) {
        self.by_key = by_key;
    }

    /// Whether a task must not be claimed to run here, because only who holds it knows its line.
    pub(super) fn is_left_to_its_holder(&self, task: &Task, closes: Option<ClaimKind>) -> bool {
        let ends = || task.fold.cancel || closes.is_some_and(ClaimKind::closes);
        self.by_key && !task.held && task.fold.is_parked() && !ends()
    }

    /// A held task has this order key. Call it before the task is looked at.
    pub fn line_up(&mut self, id: TaskId, key: &[u8]) {
        let Some(task) = self.task(id) else { return };
        if !task.held || task.fold.phase.is_terminal() || self.lines.keys.contains_key(&id) {
            return;
        }
        let has_begun = !is_to_begin(&task.fold);
        let key = self
            .lines
            .lines
            .get_key_value(key)
            .map_or_else(|| key.into(), |(key, _)| OrderKey::clone(key));
        self.lines.lines.entry(OrderKey::clone(&key)).or_default().tasks.insert(id);
        self.lines.keys.insert(id, key);
        if has_begun {
            self.lines.begin(id);
        }
    }

    /// Whether the task stands in the line of its key.
    #[must_use]
    pub fn is_in_line(&self, id: TaskId) -> bool {
        !self.lines.is_empty() && self.lines.keys.contains_key(&id)
    }

    /// Whether another task of its key is to begin, or to end, before this one may begin.
    pub(crate) fn stands_behind_in_line(&self, id: TaskId, fold: &TaskFold) -> bool {
        !self.lines.is_empty() && is_to_begin(fold) && !self.lines.lets_begin(id)
    }

    /// The key of a task that stands in a line.
    pub fn order_key(&self, id: TaskId) -> Option<OrderKey> {
        if self.lines.is_empty() { None } else { self.lines.keys.get(&id).cloned() }
    }

    /// Whose turn it is in the line of a key.
    #[must_use]
    pub fn first_in_line(&self, key: &[u8]) -> Option<TaskId> {
        self.lines.lines.get(key)?.tasks.first().copied()
    }

    /// The first of each line.
    pub fn first_in_lines(&self) -> impl Iterator<Item = TaskId> {
        self.lines.lines.values().filter_map(|line| line.tasks.first().copied())
    }

    /// How many tasks stand in lines.
    #[must_use]
    pub fn in_line(&self) -> usize {
        self.lines.keys.len()
    }

    /// How many lines there are.
    #[must_use]
    pub fn line_count(&self) -> usize {
        self.lines.lines.len()
    }

    /// A broken rule, for tests: the task has no place in the line any more, and is not over.
    pub fn leave_line(&mut self, id: TaskId) {
        self.lines.leave(id);
    }
}
