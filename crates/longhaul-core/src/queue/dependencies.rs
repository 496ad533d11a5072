//! Tasks that wait for others: which task waits for which, on all topics of the queue. A partition
//! is told when the state of a task's dependencies changes. While no task waits, a ledger entry
//! costs one more comparison.
//!
//! Each waiting task watches one open task of its list. The end of any other task does not concern
//! it and costs nothing.

use super::existence::Existence;
use super::{Partitions, remove_from};
use crate::facts::AfterList;
use crate::partition::Partition;
use crate::protocol::entry::ClaimKind;
use crate::protocol::entry_set::BatchOutcome;
use crate::protocol::fold::Phase;
use crate::protocol::register::{KeyName, Keys, QueueTask};
use crate::protocol::waits::{DependencyName, DependencyState, NamedTaskState, WaitsFor};
use crate::task::{Priority, TaskId, text};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Maximum number of names of awaited tasks that the metadata topic shows.
pub const SHOWN_MAX: usize = 100;

/// Limits the search for a task that waits for itself.
const CIRCLE_STEPS_MAX: usize = 10_000;

/// Maximum number of tasks of a circle that are named.
const CIRCLE_NAMED_MAX: usize = 10;

/// The dependencies of a queue's tasks. See the module's documentation.
#[derive(Debug, Default)]
pub struct Dependencies {
    tasks: BTreeMap<QueueTask, Dependent>,
    /// How many lists name a task; a list that names it twice counts twice.
    named: BTreeMap<QueueTask, usize>,
    /// Task → the tasks that watch it: see [`Dependent::open`].
    watched: BTreeMap<QueueTask, BTreeSet<QueueTask>>,
    /// Key → the tasks that wait for it while no task has taken it.
    unbound: BTreeMap<KeyName, BTreeSet<QueueTask>>,
    /// Counts the look-ups of named tasks.
    lookups: std::cell::Cell<usize>,
}

/// A task that waits for others, or has waited for them and is not over.
#[derive(Debug)]
pub struct Dependent {
    list: AfterList,
    /// Key → its task; `None` for a task of another level.
    bound: BTreeMap<Arc<str>, Option<TaskId>>,
    /// Whether keys that no task has taken no longer count.
    key_wait_is_over: bool,
    /// Ids without a message.
    pub(super) unknown: BTreeSet<TaskId>,
    pub(super) existence: Existence,
    /// Set if this task waits for itself: the task that it names, and the way back.
    circle: Option<(TaskId, Arc<str>)>,
    /// The watched name, while the task waits. The last look-up found no open name before it, and
    /// the next one begins here: all look-ups together read the list only a few times.
    open: Option<DependencyName>,
}

impl Dependent {
    fn new(list: AfterList) -> Self {
        Self {
            list,
            bound: BTreeMap::new(),
            key_wait_is_over: false,
            unknown: BTreeSet::new(),
            existence: Existence::default(),
            circle: None,
            open: None,
        }
    }

    fn names(&self) -> impl Iterator<Item = &DependencyName> {
        self.list.iter().flat_map(|list| &list.names)
    }

    /// The task behind a name, if it is known.
    fn task(&self, name: &DependencyName) -> Option<TaskId> {
        match name {
            DependencyName::Task(id) => Some(*id),
            DependencyName::Key(text) => self.bound.get(text).copied().flatten(),
        }
    }

    /// The awaited tasks, as far as they are known.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.names().filter_map(|name| self.task(name))
    }

    /// The names in order, each with its task if it is known.
    pub fn named(&self) -> impl Iterator<Item = (&DependencyName, Option<TaskId>)> {
        self.names().map(|name| (name, self.task(name)))
    }

    /// The list with keys replaced by ids, as far as these are known.
    fn resolved(&self) -> WaitsFor {
        let Ok(list) = &self.list else { return WaitsFor::default() };
        let names =
            self.named().map(|(name, id)| id.map_or_else(|| name.clone(), DependencyName::Task));
        WaitsFor { names: names.collect(), failed: list.failed }
    }

    fn known(
        &self,
        partitions: &dyn Partitions,
        level: Priority,
        name: &DependencyName,
    ) -> NamedTaskState {
        let Some(id) = self.task(name) else {
            if matches!(name, DependencyName::Key(text) if self.bound.contains_key(text)) {
                return NamedTaskState::Foreign;
            }
            return if self.key_wait_is_over {
                NamedTaskState::Unbound
            } else {
                NamedTaskState::Open
            };
        };
        let task = QueueTask { level, id };
        match known(partitions, task) {
            NamedTaskState::Open if self.unknown.contains(&id) && is_new(partitions, task) => {
                NamedTaskState::Unknown
            }
            NamedTaskState::Open => match &self.circle {
                Some((first, by)) if *first == id => NamedTaskState::Circle(Arc::clone(by)),
                _ => NamedTaskState::Open,
            },
            known @ (NamedTaskState::Completed
            | NamedTaskState::Failed
            | NamedTaskState::Unknown
            | NamedTaskState::Unbound
            | NamedTaskState::Circle(_)
            | NamedTaskState::Foreign) => known,
        }
    }
}

impl Dependencies {
    /// Makes the task wait for this list.
    pub(super) fn insert(&mut self, task: QueueTask, list: AfterList, keys: &Keys) {
        self.remove(task);
        let mut dependent = Dependent::new(list);
        for name in dependent.list.iter().flat_map(|list| &list.names) {
            let DependencyName::Key(text) = name else { continue };
            if let Some(holder) = name.holder(task.level, keys) {
                dependent.bound.insert(Arc::clone(text), holder);
                continue;
            }
            for key in name.keys().into_iter().flatten() {
                self.unbound.entry(key).or_default().insert(task);
            }
        }
        for id in dependent.tasks() {
            *self.named.entry(QueueTask { id, ..task }).or_default() += 1;
        }
        self.tasks.insert(task, dependent);
    }

    /// Stops counting keys that no task has taken.
    pub(super) fn give_up_keys(&mut self, task: QueueTask) {
        if let Some(dependent) = self.tasks.get_mut(&task) {
            dependent.key_wait_is_over = true;
        }
    }

    /// Removes a task that no longer waits.
    pub(super) fn remove(&mut self, task: QueueTask) {
        self.watch(task, None);
        let Some(dependent) = self.tasks.remove(&task) else { return };
        for id in dependent.tasks() {
            let key = QueueTask { id, ..task };
            if let Some(names) = self.named.get_mut(&key) {
                *names -= 1;
                if *names == 0 {
                    self.named.remove(&key);
                }
            }
        }
        if dependent.names().any(|name| matches!(name, DependencyName::Key(_))) {
            self.unbound.retain(|_, all| {
                all.remove(&task);
                !all.is_empty()
            });
        }
    }

    /// A task that waits or has waited.
    #[must_use]
    pub fn get(&self, task: QueueTask) -> Option<&Dependent> {
        self.tasks.get(&task)
    }

    pub(super) fn get_mut(&mut self, task: QueueTask) -> Option<&mut Dependent> {
        self.tasks.get_mut(&task)
    }

    /// All tasks of this level.
    pub(super) fn of_level(&self, level: Priority) -> impl Iterator<Item = QueueTask> {
        self.tasks.keys().filter(move |task| task.level == level).copied()
    }

    /// The tasks that watch one of these.
    pub(super) fn watchers(
        &self,
        watched: RangeInclusive<QueueTask>,
    ) -> impl Iterator<Item = QueueTask> {
        self.watched.range(watched).flat_map(|(_, tasks)| tasks).copied()
    }

    fn watch(&mut self, task: QueueTask, open: Option<DependencyName>) {
        let Some(dependent) = self.tasks.get_mut(&task) else { return };
        let key = |dependent: &Dependent| {
            let id = dependent.task(dependent.open.as_ref()?)?;
            Some(QueueTask { id, ..task })
        };
        if let Some(before) = key(dependent) {
            remove_from(&mut self.watched, &before, task);
        }
        dependent.open = open;
        if let Some(now) = key(dependent) {
            self.watched.entry(now).or_default().insert(task);
        }
    }

    /// The content of the claim that parks a task, or offers it. An offer waits for nothing, and
    /// neither does a task without a list.
    #[must_use]
    pub fn content(&self, task: QueueTask, kind: ClaimKind) -> String {
        let dependent = self.tasks.get(&task).filter(|_| kind == ClaimKind::Park);
        dependent.map(Dependent::resolved).unwrap_or_default().content()
    }

    /// The names that the metadata topic shows, and how many names there are.
    #[must_use]
    pub fn shown(&self, task: QueueTask) -> (Vec<String>, usize) {
        let list = self.tasks.get(&task).map(Dependent::resolved).unwrap_or_default();
        let shown = list.names.iter().take(SHOWN_MAX).map(DependencyName::to_string);
        (shown.collect(), list.names.len())
    }

    /// Whether no task waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// How many named tasks were looked up.
    #[must_use]
    pub const fn lookups(&self) -> usize {
        self.lookups.get()
    }

    /// The state of a task's dependencies. A task that waits watches an open name from now on.
    pub(super) fn state(
        &mut self,
        partitions: &dyn Partitions,
        task: QueueTask,
    ) -> Option<DependencyState> {
        if self.still_waits(partitions, task) {
            return Some(DependencyState::Waits);
        }
        let dependent = self.tasks.get(&task)?;
        let list = match &dependent.list {
            Ok(list) => list,
            Err(error) => {
                let reason = format!("{} cannot be followed: {error}", text::AFTER);
                return Some(DependencyState::Closes(ClaimKind::Final, reason));
            }
        };
        let state = list.standing(|name| self.known(dependent, partitions, task, name));
        if state == DependencyState::Waits {
            self.watch(task, list.names.first().cloned());
            self.still_waits(partitions, task);
        }
        Some(state)
    }

    /// Whether a task that waited for others still does. It watches the next open name then.
    pub(super) fn still_waits(&mut self, partitions: &dyn Partitions, task: QueueTask) -> bool {
        let Some(dependent) = self.tasks.get(&task) else { return false };
        let (Some(open), Ok(list)) = (&dependent.open, &dependent.list) else { return false };
        let is_open = |name: &&DependencyName| {
            self.known(dependent, partitions, task, name) == NamedTaskState::Open
        };
        let next = list.names.range(open..).find(is_open).cloned();
        let waits = next.is_some();
        self.watch(task, next);
        waits
    }

    fn known(
        &self,
        dependent: &Dependent,
        partitions: &dyn Partitions,
        task: QueueTask,
        name: &DependencyName,
    ) -> NamedTaskState {
        self.lookups.set(self.lookups.get() + 1);
        dependent.known(partitions, task.level, name)
    }

    /// The tasks that wait for this key while no task has taken it.
    pub(super) fn unbound(&self, name: &KeyName) -> Vec<QueueTask> {
        self.unbound.get(name).into_iter().flatten().copied().collect()
    }

    /// Handles an entry of a key that this task waits for. Returns whether a task has taken the
    /// key.
    pub(super) fn bind(&mut self, task: QueueTask, name: &KeyName, keys: &Keys) -> bool {
        let text: Arc<str> = name.text().into();
        let name = DependencyName::Key(Arc::clone(&text));
        let Some(holder) = name.holder(task.level, keys) else { return false };
        for key in name.keys().into_iter().flatten() {
            remove_from(&mut self.unbound, &key, task);
        }
        let Some(dependent) = self.tasks.get_mut(&task) else { return false };
        dependent.bound.insert(text, holder);
        if let Some(id) = holder {
            *self.named.entry(QueueTask { id, ..task }).or_default() += 1;
        }
        // A task of another level closes the task that names it, whatever else is open.
        let open = dependent.open.clone().filter(|_| holder.is_some());
        self.watch(task, open);
        true
    }

    /// Looks for a circle of waiting tasks that begins at this one. The task with the highest id
    /// breaks it: it treats the task that it names as one without a result.
    pub(super) fn break_circle(&mut self, start: QueueTask) -> Option<QueueTask> {
        let circle = self.circle(start)?;
        let at = circle.iter().enumerate().max_by_key(|(_, id)| **id).map(|(at, _)| at)?;
        let around = || circle.iter().cycle().skip(at);
        let mut by: Vec<_> = around().take(circle.len().min(CIRCLE_NAMED_MAX)).collect();
        let more = circle.len() - by.len();
        let (last, next) = (*around().next()?, *around().nth(1)?);
        by.push(&last);
        let names: Vec<_> = by.iter().map(ToString::to_string).collect();
        let more = if more == 0 { String::new() } else { format!(" ({more} left out)") };
        let by = format!("{}{more}", names.join(" -> "));
        let task = QueueTask { id: last, ..start };
        self.tasks.get_mut(&task)?.circle = Some((next, by.into()));
        Some(task)
    }

    /// The tasks of a circle that this one is part of, in the order in which each waits for the
    /// next.
    fn circle(&self, start: QueueTask) -> Option<Vec<TaskId>> {
        if !self.named.contains_key(&start) {
            // No task waits for this one. This check keeps a long chain cheap to read in its own or
            // in the opposite order.
            return None;
        }
        let names = |id: TaskId| {
            let dependent = self.tasks.get(&QueueTask { id, ..start });
            dependent.map(|it| it.tasks().collect::<Vec<_>>()).unwrap_or_default()
        };
        let mut path = vec![(start.id, names(start.id))];
        let mut seen = BTreeSet::new();
        while let Some((_, left)) = path.last_mut() {
            match left.pop() {
                None => drop(path.pop()),
                Some(id) if id == start.id => {
                    return Some(path.iter().map(|(id, _)| *id).collect());
                }
                Some(id) if seen.len() < CIRCLE_STEPS_MAX && seen.insert(id) => {
                    path.push((id, names(id)));
                }
                Some(_) => {}
            }
        }
        None
    }
}

/// This worker's knowledge of a task that another one waits for.
fn known(partitions: &dyn Partitions, QueueTask { level, id }: QueueTask) -> NamedTaskState {
    let Some(partition) = partitions.get(level, id.partition) else {
        // A topic with partitions may get more of them, and this worker learns of them later.
        let partitioned = partitions.get(level, -1).is_none();
        let may_come = partitioned && id.partition >= 0;
        return if may_come { NamedTaskState::Open } else { NamedTaskState::Foreign };
    };
    let machine = partition.machine();
    if !machine.is_ready() {
        return NamedTaskState::Open;
    }
    match machine.fold(id).phase {
        Phase::New | Phase::Running | Phase::Retry => NamedTaskState::Open,
        Phase::Completed => NamedTaskState::Completed,
        Phase::Final | Phase::Cancelled | Phase::Expired => NamedTaskState::Failed,
        Phase::Sealed => match machine.seals().ended(id.entry_id()) {
            Some(BatchOutcome::Completed) => NamedTaskState::Completed,
            Some(BatchOutcome::Failed | BatchOutcome::Mixed) | None => NamedTaskState::Failed,
        },
    }
}

/// Whether the ledger has no entry of a task.
pub(super) fn is_new(partitions: &dyn Partitions, QueueTask { level, id }: QueueTask) -> bool {
    let partition = partitions.get(level, id.partition);
    let machine = partition.map(Partition::machine).filter(|machine| machine.is_ready());
    machine.is_none_or(|machine| machine.fold(id).phase == Phase::New)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::waits::AfterFailed;

    /// Earlier, each task of a long chain was followed to its end, up to 10,000 tasks, when it was
    /// read; a worker with 20,000 of them did nothing else at its start.
    #[test]
    fn a_long_chain_is_read_at_once_and_a_circle_in_it_is_found() {
        let keys = Keys::default();
        let task = |entry| {
            QueueTask::normal(TaskId { ledger: 1, entry, partition: -1, batch_index: None })
        };
        let mut dependencies = Dependencies::default();
        let mut waits_for = |waits: u64, named: u64| {
            let list = WaitsFor::of([task(named).id], AfterFailed::Fail);
            dependencies.insert(task(waits), Ok(Arc::new(list)), &keys);
            dependencies.break_circle(task(waits))
        };
        for task in 1..20_000 {
            assert_eq!(waits_for(task, task - 1), None);
        }
        for task in (30_001..50_000).rev() {
            assert_eq!(waits_for(task, task - 1), None);
        }
        assert_eq!(waits_for(60_001, 60_000), None);
        assert_eq!(waits_for(60_000, 60_001), Some(task(60_001)));
        assert_eq!(waits_for(9_000, 9_000), Some(task(9_000)), "it waits for itself");
    }
}
