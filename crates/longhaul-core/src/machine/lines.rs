//! New tasks with an order key: none begins before those before it in the line of its key are over.
//!
//! A line holds the deliveries of one key that are here, and the tasks of the key that have begun,
//! here or elsewhere, because their claims carry the key. The broker delivers the messages of a key
//! to one consumer at a time, in order. The holder of a task has therefore received all tasks
//! before it: they are in the line as well, or acknowledged, which means that the ledger shows
//! their end. So a worker that claims the first task of a line needs no knowledge of other workers,
//! and an old view does no harm, because ends are permanent.
//!
//! There is one exception: a task may begin before an older one that is not due yet. When its
//! worker leaves, the next worker receives the older one first. It knows from the younger one's
//! claim that the younger one runs.
//!
//! Only the first claim that runs a task depends on the line. When it was accepted all tasks before
//! it were over, so any worker may retry it or take it over, like every task. The tasks behind it
//! wait for its end wherever they are delivered.
//!
//! A parked task counts as one that has not begun: it has its place, and begins in its turn once
//! its dependencies are over. A scheduled task before it can begin meanwhile, and may be the one
//! that it waits for. A worker that does not hold a parked task knows no line of it, and leaves it
//! alone.

use super::{Machine, Task};
use crate::protocol::claim::Decision;
use crate::protocol::entry::ClaimKind;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::hash::NameHash;
use crate::protocol::invariants::{Breach, Judgement, ORDER};
use crate::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// The lines of the keys of tasks that are held or have begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct KeyLines {
    lines: BTreeMap<NameHash, KeyLine>,
    keys: BTreeMap<TaskId, NameHash>,
    /// Number of held tasks in lines; below, the number of those lines.
    held: usize,
    standing: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct KeyLine {
    /// Tasks that are held and not over.
    tasks: BTreeSet<TaskId>,
    /// Tasks that have begun, here or elsewhere, are not over, and not parked. Usually the first
    /// one, but a scheduled task takes its place when it is due.
    begun: BTreeSet<TaskId>,
}

impl KeyLine {
    /// The tasks whose turn it may be: the first held one, and the first that has begun.
    fn firsts(&self) -> impl Iterator<Item = TaskId> + use<> {
        let begun = self.begun.first().filter(|id| self.tasks.contains(id));
        [self.tasks.first(), begun].map(Option::<&TaskId>::copied).into_iter().flatten()
    }

    fn lets_begin(&self, id: TaskId) -> bool {
        match self.begun.first() {
            None => self.tasks.first() == Some(&id),
            Some(begun) => *begun == id && self.begun.len() == 1,
        }
    }
}

impl KeyLines {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The decision for a task that must wait for others in its line. Ending a task that never ran
    /// needs no place.
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
        self.line_of(id).is_none_or(|line| line.lets_begin(id))
    }

    /// C-29, as far as this worker can tell.
    pub(super) fn judge_begin(&self, id: TaskId) -> Judgement {
        if self.lets_begin(id) {
            return Ok(());
        }
        let what = "a task is claimed before one of its order key that comes first is over";
        Err(Breach { id: ORDER, what })
    }

    fn line_of(&self, id: TaskId) -> Option<&KeyLine> {
        self.keys.get(&id).and_then(|key| self.lines.get(key))
    }

    /// The order key that a claim of this kind carries.
    pub(super) fn key_for(&self, id: TaskId, kind: ClaimKind) -> Option<NameHash> {
        self.keys.get(&id).copied().filter(|_| kind.begins())
    }

    /// Puts a held task into the line of this key.
    fn stand(&mut self, id: TaskId, key: NameHash) {
        self.enter(id, key);
        self.change(id, |line| _ = line.tasks.insert(id));
    }

    /// Notes that a task is claimed: it has begun, or is about to. Its claim may carry its key.
    pub(super) fn begin(&mut self, id: TaskId, key: Option<NameHash>) {
        if let Some(key) = key {
            self.enter(id, key);
        }
        self.change(id, |line| _ = line.begun.insert(id));
    }

    /// Assigns the key of a task, which never changes.
    fn enter(&mut self, id: TaskId, key: NameHash) {
        let key = *self.keys.entry(id).or_insert(key);
        self.lines.entry(key).or_default();
    }

    /// Notes that the task is parked: it waits for its turn again.
    pub(super) fn stand_back(&mut self, id: TaskId) {
        self.change(id, |line| _ = line.begun.remove(&id));
    }

    /// Notes that the task is not held any more: if it has begun it keeps its place until it is
    /// over.
    pub(super) fn let_go(&mut self, id: TaskId, has_begun: bool) {
        self.change(id, |line| {
            line.tasks.remove(&id);
            if !has_begun {
                line.begun.remove(&id);
            }
        });
    }

    /// Removes a task that is over.
    pub(super) fn leave(&mut self, id: TaskId) {
        self.let_go(id, false);
    }

    /// Changes a line and updates the counts; all changes go through here.
    fn change(&mut self, id: TaskId, change: impl FnOnce(&mut KeyLine)) {
        let Some(key) = self.keys.get(&id).copied() else { return };
        let Some(line) = self.lines.get_mut(&key) else { return };
        let before = line.tasks.len();
        change(line);
        let now = line.tasks.len();
        self.held = self.held + now - before;
        self.standing = self.standing + usize::from(now > 0) - usize::from(before > 0);
        if !line.tasks.contains(&id) && !line.begun.contains(&id) {
            self.keys.remove(&id);
        }
        if line.tasks.is_empty() && line.begun.is_empty() {
            self.lines.remove(&key);
        }
    }
}

/// Whether the next claim that runs the task depends on its line.
pub(super) const fn is_to_begin(fold: &TaskFold) -> bool {
    matches!(fold.phase, Phase::New) || fold.is_parked()
}

/// Whether the task has begun and is not over: it is in its line even where it is not held.
pub(super) const fn has_begun(fold: &TaskFold) -> bool {
    !is_to_begin(fold) && !fold.phase.is_terminal()
}

impl Machine {
    /// Sets whether tasks with a key have an order.
    pub const fn keep_order(&mut self, by_key: bool) {
        self.by_key = by_key;
    }

    /// Whether tasks with a key have an order.
    #[must_use]
    pub const fn keeps_order(&self) -> bool {
        self.by_key
    }

    /// Whether a task must not be claimed to run here, because only its holder knows its line.
    pub(super) fn is_left_to_its_holder(&self, task: &Task, closes: Option<ClaimKind>) -> bool {
        let ends = || task.fold.cancel || closes.is_some_and(ClaimKind::closes);
        self.by_key && !task.held && task.fold.is_parked() && !ends()
    }

    /// Puts a task that is held or has begun into the line of this order key. Call it before the
    /// task is looked at.
    pub fn line_up(&mut self, id: TaskId, key: NameHash) {
        let Some(task) = self.task(id) else { return };
        let (begun, over) = (has_begun(&task.fold), task.fold.phase.is_terminal());
        if task.held && !over {
            self.lines.stand(id, key);
        }
        if begun {
            self.lines.begin(id, Some(key));
        }
    }

    /// Whether the task is in the line of its key.
    #[must_use]
    pub fn is_in_line(&self, id: TaskId) -> bool {
        !self.lines.is_empty() && self.lines.keys.contains_key(&id)
    }

    /// Whether another task of its key must begin or end before this one may begin.
    pub(crate) fn stands_behind_in_line(&self, id: TaskId, fold: &TaskFold) -> bool {
        !self.lines.is_empty() && is_to_begin(fold) && !self.lines.lets_begin(id)
    }

    /// The key of a task in a line.
    pub fn order_key(&self, id: TaskId) -> Option<NameHash> {
        if self.lines.is_empty() { None } else { self.lines.keys.get(&id).copied() }
    }

    /// The tasks whose turn it may be in the line of a key, in order.
    pub fn first_in_line(&self, key: NameHash) -> impl Iterator<Item = TaskId> + use<> {
        self.lines.lines.get(&key).map(KeyLine::firsts).into_iter().flatten()
    }

    /// The tasks whose turn it may be in each line.
    pub fn first_in_lines(&self) -> impl Iterator<Item = TaskId> {
        self.lines.lines.values().flat_map(KeyLine::firsts)
    }

    /// Number of held tasks in lines.
    #[must_use]
    pub const fn in_line(&self) -> usize {
        self.lines.held
    }

    /// Number of lines with held tasks.
    #[must_use]
    pub const fn line_count(&self) -> usize {
        self.lines.standing
    }

    /// Breaks a rule, for tests: removes the task from its line before it is over.
    pub fn leave_line(&mut self, id: TaskId) {
        self.lines.leave(id);
    }
}
