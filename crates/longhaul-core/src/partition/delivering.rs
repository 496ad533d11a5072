//! What becomes of deliveries: those whose time has come are looked at, the others are kept as ids
//! until then (`scheduled.rs`).
//!
//! Ready tasks start in the order of when they became ready, and then of their ids: when they were
//! published, or when they were to start, or when their next attempt is due. What goes on with an
//! attempt that had begun comes first.

use super::handing_back::WAIT_FOR_SLOT_MAX;
use super::looking::OpenTaskTimes;
use super::scheduled::Due;
use super::{Mode, Partition, Slots};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::hash::NameHash;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::time::Duration;

/// Tasks whose time has come, that wait for a slot here, are handed back so many at a time, with
/// this pause.
const HAND_BACK_AT_ONCE_MAX: usize = 1_000;
const HAND_BACK_PAUSE: Duration = Duration::from_millis(100);

/// Cancelled tasks are looked for among those that are kept once in so long: each time all of them
/// are gone through.
const LOOK_FOR_CANCELLED_EVERY: Duration = Duration::from_secs(1);

/// When a place in the order of ready tasks is taken as a time: in ms since the epoch.
pub(super) const fn place(ready_ms: u64) -> Moment {
    Moment(Duration::from_millis(ready_ms))
}

impl Partition {
    /// A delivery came, which is ready since now.
    pub fn handle_delivery(&mut self, id: TaskId, batch_size: Option<u32>, now: Moment) {
        self.handle_ready(id, batch_size, self.wall.at(now), now);
    }

    /// A delivery came, which is ready since this wall-clock time, in ms since the epoch.
    pub fn handle_ready(
        &mut self,
        id: TaskId,
        batch_size: Option<u32>,
        ready_ms: u64,
        now: Moment,
    ) {
        self.machine.delivered(id, batch_size);
        self.take_up(id, ready_ms, now, true);
    }

    /// A delivery came that is not to start before this wall-clock time, in ms since the epoch. If
    /// that lies ahead the delivery is kept as an id, and its payload is of no use until then.
    /// Returns whether it is; any other one is to be handled as usual. `order_key` says where it
    /// stands then.
    pub fn keep_until(
        &mut self,
        id: TaskId,
        batch_size: Option<u32>,
        order_key: Option<&[u8]>,
        at_ms: u64,
        now: Moment,
    ) -> bool {
        let untouched = self.machine.fold(id) == TaskFold::default() && !self.machine.is_aside(id);
        if !untouched || self.wall.at(now) >= at_ms {
            return false;
        }
        // One that finds no room comes again with the next session.
        if self.scheduled.keep(id, batch_size, at_ms)
            && let Some(key) = order_key.filter(|_| self.keeps_order())
        {
            self.kept_keys.insert(id, NameHash::of(key));
        }
        true
    }

    fn take_up(&mut self, id: TaskId, ready_ms: u64, now: Moment, payload: bool) {
        let fold = self.machine.fold(id);
        if self.machine.is_aside(id) {
            self.awaiting_heartbeat.insert(id);
        } else if !fold.phase.is_terminal() {
            let open = self.open.entry(id).or_insert_with(|| OpenTaskTimes::new(&fold, now, now));
            open.received = Some(now);
            if fold.phase == Phase::New {
                open.ready_ms = ready_ms;
            }
            if payload {
                open.was_read(true, false);
            }
            self.agenda.set(id, now);
            self.drop_payload_until_due(id, now);
        }
        self.drop_payload_if_awaited(id);
        self.settle();
    }

    /// The consumer session ended.
    pub fn handle_session_lost(&mut self) {
        self.machine.session_lost();
        self.scheduled.clear();
        self.kept_keys.clear();
        for open in self.open.values_mut() {
            open.received = None;
        }
        let machine = &self.machine;
        self.open.retain(|id, _| machine.task(*id).is_some());
        self.unwanted.session_lost(|id| machine.task(id).is_some());
        self.settle();
    }

    /// Looks at what waits for a slot and at what was kept until now, in the order in which they
    /// became ready, as long as there are slots.
    pub(super) fn serve(&mut self, now: Moment, slots: &mut Slots) {
        while slots.may_read() {
            // What has its tickets comes first, wherever it stands: nobody else has the use of
            // them.
            if let Some(id) = self.tickets.first_of(&self.waiting) {
                self.waiting.remove(id);
                self.look(id, now, slots);
                continue;
            }
            if !self.may_ask(slots) {
                return;
            }
            let due = self.due_place(now, slots);
            let unwanted = self.first_unwanted(now, slots);
            let waiting = self.waiting.next();
            let next = match (due, unwanted) {
                (due, Some((place, id)))
                    if due.into_iter().chain(waiting).all(|other| place < other) =>
                {
                    Some(id)
                }
                (Some(due), _) if waiting.is_none_or(|waiting| due < waiting) => {
                    self.start_kept(now)
                }
                _ => self.waiting.pop_first(),
            };
            let Some(id) = next else { return };
            self.look(id, now, slots);
        }
    }

    /// The place of the first of those that were kept, if its time has come and it may be claimed.
    fn due_place(&self, now: Moment, slots: &Slots) -> Option<Moment> {
        let at_ms = self.scheduled.first_at_ms()?;
        let may = self.may_take(now) && !slots.full && at_ms <= self.wall.at(now);
        may.then_some(place(at_ms))
    }

    fn start_kept(&mut self, now: Moment) -> Option<TaskId> {
        let due = self.scheduled.pop_due(self.wall.at(now), self.settings.partition)?;
        self.take_up_kept(due, now);
        Some(due.id)
    }

    /// Its payload is read from the task topic before it is claimed.
    fn take_up_kept(&mut self, Due { id, batch_size, at_ms }: Due, now: Moment) {
        self.machine.delivered_as_id(id, batch_size);
        self.take_up(id, at_ms, now, false);
    }

    /// On a queue with an order what was kept takes its place when its time has come, whether there
    /// is a slot for it or not: those behind it wait.
    pub(super) fn line_up_kept(&mut self, now: Moment) {
        if !self.keeps_order() {
            return;
        }
        while let Some(due) = self.scheduled.pop_due(self.wall.at(now), self.settings.partition) {
            let (id, key) = (due.id, self.kept_keys.remove(&due.id));
            self.take_up_kept(due, now);
            if let Some(key) = key {
                self.machine.line_up(id, key);
            }
        }
    }

    /// The end of a task that may be kept was asked for, or has come.
    pub(super) fn look_for_cancelled(&mut self, id: TaskId, now: Moment) {
        if !self.scheduled.is_empty() && self.machine.task(id).is_some_and(|task| !task.held) {
            self.scheduled.cancel(id, now + LOOK_FOR_CANCELLED_EVERY);
        }
    }

    /// Takes out of what is kept what is not to be kept any longer, and notes when to look again.
    pub(super) fn look_at_kept(&mut self, now: Moment) {
        if self.scheduled.is_empty() {
            (self.next_kept, self.kept_is_due) = (None, false);
            return;
        }
        if self.scheduled.look_at().is_some_and(|at| at <= now) {
            for due in self.scheduled.take_cancelled(self.settings.partition) {
                self.kept_keys.remove(&due.id);
                self.take_up_kept(due, now);
            }
        }
        let others = !self.keeps_order() && (self.mode == Mode::Draining || self.has_others(now));
        if others {
            self.hand_back_kept(now);
        }
        let first = self.scheduled.first_at_ms().map(|at_ms| self.wall.moment(at_ms));
        self.kept_is_due = first.is_some_and(|first| first <= now);
        let next = match first {
            Some(first) if first <= now => {
                others.then(|| (first + WAIT_FOR_SLOT_MAX).max(now + HAND_BACK_PAUSE))
            }
            first => first,
        };
        self.next_kept = next.into_iter().chain(self.scheduled.look_at()).min();
    }

    /// Whether other workers are there that could have a task.
    pub(super) fn has_others(&self, now: Moment) -> bool {
        self.silence.live_owners(now).any(|owner| !self.machine.is_own(owner))
    }

    /// What could not start here for a while although its time has come goes back to the broker, so
    /// that another worker can have it; in a drain at once. The broker has another order, so that a
    /// worker that is alone keeps them.
    fn hand_back_kept(&mut self, now: Moment) {
        let patience = if self.mode == Mode::Draining { Duration::ZERO } else { WAIT_FOR_SLOT_MAX };
        let late = self.wall.at(Moment(now.0.saturating_sub(patience)));
        for _ in 0..HAND_BACK_AT_ONCE_MAX {
            let Some(due) = self.scheduled.pop_due(late, self.settings.partition) else { return };
            let Due { id, batch_size, at_ms } = due;
            if self.machine.works_on_entry(id) {
                // Others of its batch are under way: it goes on waiting with them.
                self.scheduled.keep(id, batch_size, at_ms);
                return;
            }
            self.hand_back(id);
        }
    }
}
