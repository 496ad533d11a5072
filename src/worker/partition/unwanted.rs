//! Tasks of types that nobody asks for here, where tasks are leased: they wait without their payloads, and stand in nobody's way. What else becomes of them
//! goes on: they can be cancelled, they expire, and their retries are counted.
//!
//! A subscription cannot tell the broker which types it wants, so that a gateway is given all of them. Where other workers are, what was delivered and is
//! not asked for goes back: soon when it was delivered for the first time, for another gateway may be asked for it, and after a second when all that have
//! had it were not. A gateway that is alone keeps it.

use super::delivering::place;
use super::looking::{Open, WAIT_FOR_SLOT_MAX};
use super::{Mode, Partition, Slots};
use crate::protocol::claim::Decision;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use crate::worker::agenda::Agenda;
use crate::worker::wanted::{TaskType, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So many deliveries of a partition are kept for which nobody asks, before those that wait count as what was asked for, and no more come.
/// Each takes up 1.3 kB, so that a partition has 13 MB of them at most.
const KEPT_MAX: usize = 10_000;

/// So many more are asked for at once as are kept already, up to this: behind a million of them lies what is asked for.
const AHEAD_MAX: usize = 256;

/// Where others are a task goes back after so long: nobody else can have it meanwhile.
const HELD_BESIDE_OTHERS: Duration = Duration::from_millis(100);

/// They go back so many at a time, with this pause.
const HAND_BACK_AT_ONCE_MAX: usize = 1_000;
const HAND_BACK_PAUSE: Duration = Duration::from_millis(100);

/// Beside others so many are looked at in a round, and then none for so long, in which the others can have them. Both double with each round in which
/// nothing was found that is asked for, up to these: so a request for what there is not costs the others a tenth of their time.
const LOOK_BESIDE_OTHERS: usize = 16;
const LOOK_BESIDE_OTHERS_MAX: usize = 1_000;
const LEFT_TO_OTHERS: Duration = Duration::from_millis(50);
const LEFT_TO_OTHERS_MAX: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Unwanted {
    tasks: BTreeMap<TaskId, (TaskType, Moment)>,
    /// In the order in which they became ready.
    order: BTreeSet<(Moment, TaskId)>,
    by_type: BTreeMap<TaskType, BTreeSet<(Moment, TaskId)>>,
    /// Those of them that are held here, and when they may go back.
    held: Agenda<TaskId>,
    /// Payloads that are being read for whoever asks for this type.
    reading: BTreeMap<TaskId, TaskType>,
    reads: BTreeMap<TaskType, usize>,
    /// When some of them went back, and until when others are to have them.
    handed_back: Option<Moment>,
    left_until: Moment,
    /// Rounds in which nothing was found that is asked for.
    rounds: u32,
    /// When to look at them, if nothing happens.
    pub(super) look_at: Option<Moment>,
}

impl Unwanted {
    /// A task that became ready then waits until it is asked for. `back`: when it may go back, if it is held here.
    fn keep(&mut self, id: TaskId, task_type: TaskType, ready: Moment, back: Option<Moment>) {
        self.remove(id);
        self.tasks.insert(id, (task_type, ready));
        self.order.insert((ready, id));
        self.by_type.entry(task_type).or_default().insert((ready, id));
        if let Some(back) = back {
            self.held.set(id, back);
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
        // A read that goes on is not counted again.
        if self.reading.insert(id, task_type).is_none() {
            *self.reads.entry(task_type).or_default() += 1;
        }
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

    /// Some have gone back. Those that follow while others are to have them belong to the same round.
    fn note_handed_back(&mut self, now: Moment) {
        self.handed_back = Some(now);
        if now >= self.left_until {
            let left = LEFT_TO_OTHERS * (1 << self.rounds.min(8));
            self.left_until = now + left.min(LEFT_TO_OTHERS_MAX);
            self.rounds = self.rounds.saturating_add(1);
        }
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

    /// Deliveries for which nobody asks that count as what was asked for, so that no more come.
    #[must_use]
    pub fn unwanted_beyond(&self, now: Moment) -> usize {
        let held = self.unwanted.held.len();
        if held == 0 {
            return 0;
        }
        let beside_others = LOOK_BESIDE_OTHERS << self.unwanted.rounds.min(8);
        let most =
            if self.has_others(now) { beside_others.min(LOOK_BESIDE_OTHERS_MAX) } else { KEPT_MAX };
        held.saturating_sub(most)
    }

    /// Whether others are to have what has just gone back.
    #[must_use]
    pub fn leaves_to_others(&self, now: Moment) -> bool {
        now < self.unwanted.left_until
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

    /// A task is claimed: one less is asked for.
    pub(super) fn take_for(&mut self, id: TaskId, slots: &mut Slots) {
        if slots.wanted().is_some()
            && let Some(task_type) = self.open.get(&id).and_then(|open| open.task_type)
        {
            slots.take_for(task_type);
            self.unwanted.rounds = 0;
        }
    }

    /// Nobody asks for it: it waits without its payload, and is looked at again when it may be closed.
    pub(super) fn keep_unwanted(&mut self, id: TaskId, task_type: TaskType, now: Moment) {
        self.machine.drop_waiting_payload(id);
        self.waiting.remove(id);
        self.give_up_ticket(id);
        let held = self.machine.task(id).is_some_and(|task| task.held);
        if let Some(open) = self.open.get_mut(&id) {
            open.granted = false;
            let back = open.received.filter(|_| held).map(|received| back_at(open, received));
            self.unwanted.keep(id, task_type, place(open.ready_ms), back);
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

    /// What was delivered here and nobody asks for goes back after a while where others are: they may be asked for it.
    pub(super) fn look_at_unwanted(&mut self, now: Moment) {
        self.unwanted.look_at = None;
        if self.unwanted.held.next().is_none() || self.mode != Mode::Live || !self.has_others(now) {
            return;
        }
        if self.unwanted.paused_until().is_none_or(|until| until <= now) {
            self.hand_back_unwanted(now);
        }
        let paused = self.unwanted.paused_until().unwrap_or_default();
        let back = self.unwanted.held.next().map(|back| back.max(paused));
        let left = Some(self.unwanted.left_until).filter(|at| *at > now);
        self.unwanted.look_at = back.into_iter().chain(left).min();
    }

    fn hand_back_unwanted(&mut self, now: Moment) {
        for _ in 0..HAND_BACK_AT_ONCE_MAX {
            let Some(id) = self.unwanted.held.pop_due(now) else { return };
            if self.machine.works_on_entry(id) {
                // Others of its batch are under way: it goes on waiting with them.
                self.unwanted.held.set(id, now + WAIT_FOR_SLOT_MAX);
            } else {
                self.hand_back(id);
                self.unwanted.note_handed_back(now);
            }
        }
    }
}

/// When a task that was delivered then may go back.
fn back_at(open: &Open, received: Moment) -> Moment {
    received.max(open.due) + HELD_BESIDE_OTHERS
}
