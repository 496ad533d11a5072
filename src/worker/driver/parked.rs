//! Tasks that wait for others: who waits for whom, in all lanes of the worker. A lane is told how
//! it stands with what its tasks wait for when that changes. Where nobody waits an entry of the
//! ledger costs one comparison more.
//!
//! Each task that waits watches one open task of its list. The end of another one changes nothing
//! for it, and costs nothing.

use super::lanes::{LaneId, Lanes};
use longhaul_core::agenda::Agenda;
use longhaul_core::protocol::entry::ClaimKind;
use longhaul_core::protocol::entry_set::Ended;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{KeyName, Keys, QueueTask};
use longhaul_core::protocol::waits::{Name, Named, Standing, WaitsError, WaitsFor};
use longhaul_core::task::Priority;
use longhaul_core::task::{TaskId, text};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// So many names of a parked task are shown on M.
const SHOWN_MAX: usize = 100;

/// So many tasks are looked at for one that waits for itself.
const CIRCLE_STEPS_MAX: usize = 10_000;

/// So many tasks of a circle are named.
const CIRCLE_NAMED_MAX: usize = 10;

/// A task of a lane.
pub(super) type Place = (LaneId, TaskId);

/// What a task waits for, or why that cannot be read.
pub(super) type List = Result<Arc<WaitsFor>, WaitsError>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Parked {
    tasks: BTreeMap<Place, Waiting>,
    /// How many lists name a task of this topic; a list that names it twice counts twice.
    named: BTreeMap<(u16, TaskId), usize>,
    /// The tasks that watch a task of this topic: see [`Waiting::open`].
    watched: BTreeMap<(u16, TaskId), BTreeSet<Place>>,
    /// Who waits for a key that no task has taken, by the number of its register.
    unbound: BTreeMap<(usize, KeyName), BTreeSet<Place>>,
    /// When tasks have waited long enough for keys that no task has taken.
    key_waits: Agenda<Place>,
    /// The number of look-ups of named tasks.
    #[cfg(test)]
    pub(super) looks: std::cell::Cell<usize>,
}

/// A task that waits for others, or has waited for them and is not over.
#[derive(Debug)]
pub(super) struct Waiting {
    list: List,
    /// The tasks of keys that were taken; `None`: one on the topic of another level.
    bound: BTreeMap<Arc<str>, Option<TaskId>>,
    /// Keys that are not taken by now do not count any more.
    key_wait_is_over: bool,
    /// No message has these ids.
    pub(super) unknown: BTreeSet<TaskId>,
    /// How often the topic was asked for messages with those ids that nothing is known of; `None`
    /// while it is being asked.
    pub(super) looked: Option<u32>,
    /// This task waits for itself: from the one that it names, by way of these.
    circle: Option<(TaskId, Arc<str>)>,
    /// The watched name, while the task waits. The last look found no open name before it, and the
    /// next look begins here: all looks together read the list a few times only.
    open: Option<Name>,
}

impl Waiting {
    fn new(list: List) -> Self {
        Self {
            list,
            bound: BTreeMap::new(),
            key_wait_is_over: false,
            unknown: BTreeSet::new(),
            looked: Some(0),
            circle: None,
            open: None,
        }
    }

    fn names(&self) -> impl Iterator<Item = &Name> {
        self.list.iter().flat_map(|list| &list.names)
    }

    /// The task behind a name, if that is known.
    fn task(&self, name: &Name) -> Option<TaskId> {
        match name {
            Name::Task(id) => Some(*id),
            Name::Key(text) => self.bound.get(text).copied().flatten(),
        }
    }

    /// The tasks that it waits for, as far as it is known which these are.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.names().filter_map(|name| self.task(name))
    }

    /// The names in their order, each with its task where that is known.
    pub(super) fn named(&self) -> impl Iterator<Item = (&Name, Option<TaskId>)> {
        self.names().map(|name| (name, self.task(name)))
    }

    /// The list with the ids of tasks in the place of keys, as far as these are known.
    fn resolved(&self) -> WaitsFor {
        let Ok(list) = &self.list else { return WaitsFor::default() };
        let names = self.named().map(|(name, id)| id.map_or_else(|| name.clone(), Name::Task));
        WaitsFor { names: names.collect(), failed: list.failed }
    }

    fn known(&self, lanes: &Lanes, topic: u16, name: &Name) -> Named {
        let Some(id) = self.task(name) else {
            if matches!(name, Name::Key(text) if self.bound.contains_key(text)) {
                return Named::Foreign;
            }
            return if self.key_wait_is_over { Named::Unbound } else { Named::Open };
        };
        match known(lanes, topic, id) {
            Named::Open if self.unknown.contains(&id) && is_new(lanes, topic, id) => Named::Unknown,
            Named::Open => match &self.circle {
                Some((first, by)) if *first == id => Named::Circle(Arc::clone(by)),
                _ => Named::Open,
            },
            known @ (Named::Completed
            | Named::Failed
            | Named::Unknown
            | Named::Unbound
            | Named::Circle(_)
            | Named::Foreign) => known,
        }
    }
}

impl Parked {
    /// The task waits for these from now on.
    pub(super) fn insert(
        &mut self,
        place: Place,
        list: List,
        register: usize,
        keys: KeysOfQueue<'_>,
    ) {
        self.remove(place);
        let mut waiting = Waiting::new(list);
        for name in waiting.list.iter().flat_map(|list| &list.names) {
            if let (Name::Key(text), Some(names)) = (name, name.keys()) {
                if let Some(holder) = keys.holder(&names) {
                    waiting.bound.insert(Arc::clone(text), holder);
                } else {
                    for name in names {
                        self.unbound.entry((register, name)).or_default().insert(place);
                    }
                }
            }
        }
        for id in waiting.tasks() {
            *self.named.entry((place.0.topic, id)).or_default() += 1;
        }
        self.tasks.insert(place, waiting);
    }

    /// Until then the task waits for keys that no task has taken.
    pub(super) fn wait_for_keys(&mut self, place: Place, until: Moment) {
        self.key_waits.set(place, until);
    }

    /// When the first of them has waited long enough.
    pub(super) fn next_key_wait(&self) -> Option<Moment> {
        self.key_waits.next()
    }

    /// A task that has waited long enough, and whose keys do not count any more.
    pub(super) fn give_up_keys(&mut self, now: Moment) -> Option<Place> {
        let place = self.key_waits.pop_due(now)?;
        self.tasks.get_mut(&place)?.key_wait_is_over = true;
        Some(place)
    }

    /// The task does not wait any more.
    pub(super) fn remove(&mut self, place: Place) {
        self.watch(place, None);
        self.key_waits.remove(place);
        let Some(waiting) = self.tasks.remove(&place) else { return };
        for id in waiting.tasks() {
            let key = (place.0.topic, id);
            if let Some(names) = self.named.get_mut(&key) {
                *names -= 1;
                if *names == 0 {
                    self.named.remove(&key);
                }
            }
        }
        if waiting.names().any(|name| matches!(name, Name::Key(_))) {
            self.unbound.retain(|_, all| {
                all.remove(&place);
                !all.is_empty()
            });
        }
    }

    pub(super) fn get(&self, place: Place) -> Option<&Waiting> {
        self.tasks.get(&place)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Waiting> {
        self.tasks.get_mut(&place)
    }

    /// All of this topic.
    pub(super) fn of_topic(&self, topic: u16) -> impl Iterator<Item = Place> {
        self.tasks.keys().filter(move |(lane, _)| lane.topic == topic).copied()
    }

    /// The tasks that watch one of these.
    pub(super) fn who_watches(
        &self,
        watched: RangeInclusive<(u16, TaskId)>,
    ) -> impl Iterator<Item = Place> {
        self.watched.range(watched).flat_map(|(_, places)| places).copied()
    }

    fn watch(&mut self, place: Place, open: Option<Name>) {
        let Some(waiting) = self.tasks.get_mut(&place) else { return };
        let key = |waiting: &Waiting| Some((place.0.topic, waiting.task(waiting.open.as_ref()?)?));
        if let Some(before) = key(waiting) {
            remove_from(&mut self.watched, &before, place);
        }
        waiting.open = open;
        if let Some(now) = key(waiting) {
            self.watched.entry(now).or_default().insert(place);
        }
    }

    /// Whether any waits for a key that no task has taken.
    pub(super) fn has_unbound(&self) -> bool {
        !self.unbound.is_empty()
    }

    /// The content of the claim that parks a task, or offers it. An offer waits for nothing, and so
    /// does a task without a list, which then was read from nowhere.
    pub(super) fn content(&self, place: Place, kind: ClaimKind) -> String {
        let waiting = self.tasks.get(&place).filter(|_| kind == ClaimKind::Park);
        waiting.map(Waiting::resolved).unwrap_or_default().content()
    }

    /// What M shows of what a task waits for, and of how many names these are the first.
    pub(super) fn shown(&self, place: Place) -> (Vec<String>, usize) {
        let list = self.tasks.get(&place).map(Waiting::resolved).unwrap_or_default();
        let shown = list.names.iter().take(SHOWN_MAX).map(Name::to_string);
        (shown.collect(), list.names.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// How it stands with what a task waits for. A task that waits watches an open name from now
    /// on.
    pub(super) fn standing(&mut self, lanes: &Lanes, place: Place) -> Option<Standing> {
        if self.still_waits(lanes, place) {
            return Some(Standing::Waits);
        }
        let waiting = self.tasks.get(&place)?;
        let list = match &waiting.list {
            Ok(list) => list,
            Err(error) => {
                let reason = format!("{} cannot be followed: {error}", text::AFTER);
                return Some(Standing::Closes(ClaimKind::Final, reason));
            }
        };
        let standing = list.standing(|name| self.known(waiting, lanes, place, name));
        if standing == Standing::Waits {
            self.watch(place, list.names.first().cloned());
            self.still_waits(lanes, place);
        }
        Some(standing)
    }

    /// Whether a task that waited for others still does. It watches the next open name then.
    pub(super) fn still_waits(&mut self, lanes: &Lanes, place: Place) -> bool {
        let Some(waiting) = self.tasks.get(&place) else { return false };
        let (Some(open), Ok(list)) = (&waiting.open, &waiting.list) else { return false };
        let is_open = |name: &&Name| self.known(waiting, lanes, place, name) == Named::Open;
        let next = list.names.range(open..).find(is_open).cloned();
        let waits = next.is_some();
        self.watch(place, next);
        waits
    }

    fn known(&self, waiting: &Waiting, lanes: &Lanes, place: Place, name: &Name) -> Named {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        waiting.known(lanes, place.0.topic, name)
    }

    /// Those that wait for a key that no task has taken.
    pub(super) fn unbound(&self, register: usize, name: &KeyName) -> BTreeSet<Place> {
        self.unbound.get(&(register, name.clone())).cloned().unwrap_or_default()
    }

    /// A task waits for a key that was read of. Returns whether a task has taken the key.
    pub(super) fn bind(
        &mut self,
        place: Place,
        register: usize,
        name: &KeyName,
        keys: KeysOfQueue<'_>,
    ) -> bool {
        let text: Arc<str> = name.text().into();
        let Some(names) = Name::Key(Arc::clone(&text)).keys() else { return false };
        let Some(holder) = keys.holder(&names) else { return false };
        for name in names {
            remove_from(&mut self.unbound, &(register, name), place);
        }
        let Some(waiting) = self.tasks.get_mut(&place) else { return false };
        waiting.bound.insert(text, holder);
        if let Some(id) = holder {
            *self.named.entry((place.0.topic, id)).or_default() += 1;
        }
        // A task of another level closes the one that names it, whatever else is open.
        let open = waiting.open.clone().filter(|_| holder.is_some());
        self.watch(place, open);
        true
    }

    /// Looks for a circle of tasks that wait for one another, from this one on. The one with the
    /// highest id in it breaks it: it counts the task that it names as one without a result.
    pub(super) fn break_circle(&mut self, start: Place) -> Option<Place> {
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
        let place = (LaneId::new(start.0.topic, last.partition), last);
        self.tasks.get_mut(&place)?.circle = Some((next, by.into()));
        Some(place)
    }

    /// The tasks of a circle that this one is part of, in the order in which each waits for the
    /// next.
    fn circle(&self, start: Place) -> Option<Vec<TaskId>> {
        let topic = start.0.topic;
        if !self.named.contains_key(&(topic, start.1)) {
            // Nobody waits for it. So a long chain is read at little cost in its own order, or in
            // the opposite one.
            return None;
        }
        let place = |id: TaskId| (LaneId::new(topic, id.partition), id);
        let names = |id: TaskId| {
            let waiting = self.tasks.get(&place(id));
            waiting.map(|waiting| waiting.tasks().collect::<Vec<_>>()).unwrap_or_default()
        };
        let mut path = vec![(start.1, names(start.1))];
        let mut seen = BTreeSet::new();
        while let Some((_, left)) = path.last_mut() {
            match left.pop() {
                None => drop(path.pop()),
                Some(id) if id == start.1 => return Some(path.iter().map(|(id, _)| *id).collect()),
                Some(id) if seen.len() < CIRCLE_STEPS_MAX && seen.insert(id) => {
                    path.push((id, names(id)));
                }
                Some(_) => {}
            }
        }
        None
    }
}

/// The keys of a queue, as a task on one of its topics sees them.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeysOfQueue<'a> {
    pub(super) keys: &'a Keys,
    /// The level of that topic.
    pub(super) level: Priority,
}

impl KeysOfQueue<'_> {
    /// The task that has taken a key, or took it last; `Some(None)` if that is on the topic of
    /// another level.
    fn holder(self, names: &[KeyName]) -> Option<Option<TaskId>> {
        let QueueTask { level, id } = names.iter().find_map(|name| self.keys.last_holder(name))?;
        Some((level == self.level).then_some(id))
    }
}

/// Removes a task from the set of this key.
fn remove_from<K: Ord>(map: &mut BTreeMap<K, BTreeSet<Place>>, key: &K, place: Place) {
    if let Some(all) = map.get_mut(key) {
        all.remove(&place);
        if all.is_empty() {
            map.remove(key);
        }
    }
}

/// What this worker knows of a task that another one waits for.
fn known(lanes: &Lanes, topic: u16, id: TaskId) -> Named {
    let Some(lane) = lanes.get(&LaneId::new(topic, id.partition)) else {
        // A topic with partitions may get more of them, and this worker learns of those later.
        let partitioned = !lanes.contains(LaneId::new(topic, -1));
        let may_come = partitioned && id.partition >= 0;
        return if may_come { Named::Open } else { Named::Foreign };
    };
    let machine = lane.core.machine();
    if !machine.is_ready() {
        return Named::Open;
    }
    match machine.fold(id).phase {
        Phase::New | Phase::Running | Phase::Retry => Named::Open,
        Phase::Completed => Named::Completed,
        Phase::Final | Phase::Cancelled | Phase::Expired => Named::Failed,
        Phase::Sealed => match machine.seals().ended(id.entry_id()) {
            Some(Ended::Completed) => Named::Completed,
            Some(Ended::Failed | Ended::Mixed) | None => Named::Failed,
        },
    }
}

/// Whether the ledger says nothing of a task.
pub(super) fn is_new(lanes: &Lanes, topic: u16, id: TaskId) -> bool {
    let lane = lanes.get(&LaneId::new(topic, id.partition));
    let machine = lane.map(|lane| lane.core.machine()).filter(|machine| machine.is_ready());
    machine.is_none_or(|machine| machine.fold(id).phase == Phase::New)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::protocol::waits::AfterFailed;

    /// Each task of a long chain was followed to its end, up to 10,000 tasks, when it was read: a
    /// worker that found 20,000 of them at its start was busy with that alone.
    #[test]
    fn a_long_chain_is_read_at_once_and_a_circle_in_it_is_found() {
        let keys = Keys::default();
        let keys = KeysOfQueue { keys: &keys, level: Priority::Normal };
        let place = |entry| {
            let id = TaskId { ledger: 1, entry, partition: -1, batch_index: None };
            (LaneId::new(0, -1), id)
        };
        let mut parked = Parked::default();
        let mut waits_for = |task: u64, named: u64| {
            let list = WaitsFor::of([place(named).1], AfterFailed::Fail);
            parked.insert(place(task), Ok(Arc::new(list)), 0, keys);
            parked.break_circle(place(task))
        };
        for task in 1..20_000 {
            assert_eq!(waits_for(task, task - 1), None);
        }
        for task in (30_001..50_000).rev() {
            assert_eq!(waits_for(task, task - 1), None);
        }
        assert_eq!(waits_for(60_001, 60_000), None);
        assert_eq!(waits_for(60_000, 60_001), Some(place(60_001)));
        assert_eq!(waits_for(9_000, 9_000), Some(place(9_000)), "it waits for itself");
    }
}
