//! Tasks of types that nobody asks for here, where tasks are leased: they wait without their payloads, and stand in nobody's way. What else becomes of them
//! goes on: they can be cancelled, they expire, and their retries are counted.
//!
//! A subscription cannot tell the broker which types it wants, so that a gateway is given all of them. Where other workers are, what was delivered and is
//! not asked for goes back after a second; a gateway that is alone keeps it.

use super::delivering::place;
use super::looking::WAIT_FOR_SLOT_MAX;
use super::{Mode, Partition, Slots};
use crate::protocol::claim::Decision;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use crate::worker::agenda::Agenda;
use crate::worker::wanted::{TaskType, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So many deliveries of a partition are kept for which nobody asks, before those that wait count as what was asked for, and no more come. About 1 kB each.
const KEPT_MAX: usize = 10_000;

/// So many more are asked for at once as are kept already, up to this: behind a million of them lies what is asked for.
const AHEAD_MAX: usize = 256;

/// They go back so many at a time, with this pause: ten thousand that nobody asks for anywhere would go to and fro each second.
const HAND_BACK_AT_ONCE_MAX: usize = 100;
const HAND_BACK_PAUSE: Duration = Duration::from_millis(100);

/// So long no more are asked for when some have gone back: others are to have them.
const LEFT_TO_OTHERS: Duration = Duration::from_millis(50);

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Unwanted {
    tasks: BTreeMap<TaskId, (TaskType, Moment)>,
    /// In the order in which they became ready.
    order: BTreeSet<(Moment, TaskId)>,
    by_type: BTreeMap<TaskType, BTreeSet<(Moment, TaskId)>>,
    /// Those of them that are held here, and since when.
    held: Agenda<TaskId>,
    /// Payloads that are being read for whoever asks for this type.
    reading: BTreeMap<TaskId, TaskType>,
    reads: BTreeMap<TaskType, usize>,
    /// When some of them went back.
    handed_back: Option<Moment>,
    /// When to look at them, if nothing happens.
    pub(super) look_at: Option<Moment>,
}

impl Unwanted {
    /// A task that became ready then waits until it is asked for. `held`: since when it is held here, if it is.
    fn keep(&mut self, id: TaskId, task_type: TaskType, ready: Moment, held: Option<Moment>) {
        self.remove(id);
        self.tasks.insert(id, (task_type, ready));
        self.order.insert((ready, id));
        self.by_type.entry(task_type).or_default().insert((ready, id));
        if let Some(since) = held {
            self.held.set(id, since);
        }
    }

    /// It is looked at, or gone.
    pub(super) fn remove(&mut self, id: TaskId) {
        if self.tasks.is_empty() {
            return;
        }
        let Some((task_type, ready)) = self.tasks.remove(&id) else { return };
        self.order.remove(&(ready, id));
        if let Some(line) = self.by_type.get_mut(&task_type) {
            line.remove(&(ready, id));
            if line.is_empty() {
                self.by_type.remove(&task_type);
            }
        }
        self.held.remove(id);
    }

    /// It is not held here any more.
    pub(super) fn let_go(&mut self, id: TaskId) {
        self.held.remove(id);
    }

    /// The session that brought them has ended: `knows` says which of them are known all the same.
    pub(super) fn session_lost(&mut self, knows: impl Fn(TaskId) -> bool) {
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            self.let_go(id);
            if !knows(id) {
                self.remove(id);
            }
        }
    }

    /// The first of them that is asked for by now, and its place.
    fn first(&self, wanted: Option<&Wanted>) -> Option<(Moment, TaskId)> {
        let (ready, id) = *self.order.first()?;
        let Some(wanted) = wanted else { return Some((ready, id)) };
        let may = self.may_read(wanted);
        if self.tasks.get(&id).is_some_and(|(task_type, _)| may(task_type)) {
            return Some((ready, id));
        }
        let first = |task_type: &TaskType| {
            let line = self.by_type.get(task_type).filter(|_| may(task_type))?;
            line.first().copied()
        };
        if wanted.any > 0 {
            self.by_type.keys().filter_map(first).min()
        } else {
            wanted.types.keys().filter_map(first).min()
        }
    }

    pub(super) fn begin_read(&mut self, id: TaskId, task_type: TaskType) {
        self.reading.insert(id, task_type);
        *self.reads.entry(task_type).or_default() += 1;
    }

    pub(super) fn end_read(&mut self, id: TaskId) {
        let Some(task_type) = self.reading.remove(&id) else { return };
        if let Some(reads) = self.reads.get_mut(&task_type) {
            *reads -= 1;
            if *reads == 0 {
                self.reads.remove(&task_type);
            }
        }
    }

    /// Whether more tasks of a type are asked for than payloads of it are being read.
    fn may_read(&self, wanted: &Wanted) -> impl Fn(&TaskType) -> bool {
        let of = |counts: &BTreeMap<TaskType, usize>, task_type: &TaskType| {
            counts.get(task_type).copied().unwrap_or_default()
        };
        let for_any = self
            .reads
            .iter()
            .map(|(task_type, reads)| reads.saturating_sub(of(&wanted.types, task_type)));
        let any_left = wanted.any > for_any.sum();
        move |task_type| any_left || of(&wanted.types, task_type) > of(&self.reads, task_type)
    }

    /// None goes back before that.
    fn paused_until(&self) -> Option<Moment> {
        self.handed_back.map(|at| at + HAND_BACK_PAUSE)
    }

    /// Those that count as what was asked for.
    pub(super) fn beyond(&self) -> usize {
        self.held.len().saturating_sub(KEPT_MAX)
    }
}

impl Partition {
    /// What type a task has, as its message says. Asked for only where somebody asks for tasks of some types.
    pub fn note_type(&mut self, id: TaskId, task_type: TaskType) {
        if let Some(open) = self.open.get_mut(&id) {
            open.task_type = Some(task_type);
        }
    }

    /// Whether there are tasks that wait until somebody asks for their types.
    #[must_use]
    pub fn has_unwanted(&self) -> bool {
        !self.unwanted.tasks.is_empty()
    }

    /// How many deliveries more may come than there are requests, so that those are found that are asked for: nobody else is there who could have the others.
    #[must_use]
    pub fn looks_ahead(&self, now: Moment) -> usize {
        let kept = self.unwanted.held.len();
        if kept == 0 || self.has_others(now) {
            return 0;
        }
        kept.min(AHEAD_MAX).min(KEPT_MAX.saturating_sub(kept))
    }

    /// Whether others are to have what has just gone back.
    #[must_use]
    pub fn leaves_to_others(&self, now: Moment) -> bool {
        self.unwanted.handed_back.is_some_and(|at| now < at + LEFT_TO_OTHERS)
    }

    /// The type of a task that nobody asks for. What type it has that was not delivered here tells its message, which is read for that.
    pub(super) fn unwanted_type(
        &self,
        id: TaskId,
        decision: Decision,
        slots: &Slots,
    ) -> Option<TaskType> {
        let wanted = slots.wanted()?;
        let task_type = self.open.get(&id)?.task_type?;
        let is_wanted = match decision {
            Decision::ReadPayload => self.unwanted.may_read(wanted)(&task_type),
            Decision::Claim(_) => wanted.of(task_type) > 0,
            Decision::Wait => true,
        };
        (!is_wanted).then_some(task_type)
    }

    /// Its payload is read because somebody asks for its type.
    pub(super) fn note_read(&mut self, id: TaskId, slots: &Slots) {
        if slots.wanted().is_some()
            && let Some(task_type) = self.open.get(&id).and_then(|open| open.task_type)
        {
            self.unwanted.begin_read(id, task_type);
        }
    }

    /// Nobody asks for it: it waits without its payload, and asks for nothing but its end.
    pub(super) fn keep_unwanted(&mut self, id: TaskId, task_type: TaskType, now: Moment) {
        self.machine.drop_waiting_payload(id);
        self.waiting.remove(id);
        self.give_up_ticket(id);
        let held = self.machine.task(id).is_some_and(|task| task.held);
        if let Some(open) = self.open.get(&id) {
            let since = open.received.filter(|_| held).map(|received| received.max(open.due));
            self.unwanted.keep(id, task_type, place(open.ready_ms), since);
        }
        self.look_when_it_closes(id, now);
    }

    /// The first of those that somebody asks for by now, and its place in the order of ready tasks.
    pub(super) fn first_unwanted(&self, now: Moment, slots: &Slots) -> Option<(Moment, TaskId)> {
        if self.unwanted.tasks.is_empty() || slots.full || !self.may_take(now) {
            return None;
        }
        self.unwanted.first(slots.wanted())
    }

    /// What was delivered here and nobody asks for goes back after a while, where others are that may be asked for it.
    pub(super) fn look_at_unwanted(&mut self, now: Moment) {
        self.unwanted.look_at = None;
        if self.unwanted.held.next().is_none() || self.mode != Mode::Live || !self.has_others(now) {
            return;
        }
        if self.unwanted.paused_until().is_none_or(|until| until <= now) {
            self.hand_back_unwanted(now);
        }
        let late = self.unwanted.held.next().map(|since| since + WAIT_FOR_SLOT_MAX);
        let late = late.map(|late| self.unwanted.paused_until().map_or(late, |at| at.max(late)));
        let left = self.unwanted.handed_back.map(|at| at + LEFT_TO_OTHERS);
        self.unwanted.look_at = late.into_iter().chain(left.filter(|at| *at > now)).min();
    }

    fn hand_back_unwanted(&mut self, now: Moment) {
        for _ in 0..HAND_BACK_AT_ONCE_MAX {
            let late = |since: &Moment| *since + WAIT_FOR_SLOT_MAX <= now;
            if self.unwanted.held.next().filter(late).is_none() {
                return;
            }
            let Some(id) = self.unwanted.held.first() else { return };
            if self.machine.works_on_entry(id) {
                // Others of its batch are under way: it goes on waiting with them.
                self.unwanted.held.set(id, now);
            } else {
                self.hand_back(id);
                self.unwanted.let_go(id);
                self.unwanted.handed_back = Some(now);
            }
        }
    }
}
