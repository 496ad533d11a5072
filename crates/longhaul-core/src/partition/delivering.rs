//! Handles deliveries: those that are due are looked at, the others are kept as ids until then
//! (`scheduled.rs`).
//!
//! Ready tasks start in the order of the time at which they became ready, and then of their ids. A
//! task becomes ready when it is published, when its scheduled time comes, or when its next attempt
//! is due. The continuation of an attempt that had begun comes first.

use super::handing_back::WAIT_FOR_SLOT_MAX;
use super::looking::OpenTaskTimes;
use super::scheduled::Due;
use super::{Mode, Partition, Slots};
use crate::facts::TaskFacts;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::time::Duration;

/// Maximum number of due tasks without a slot that are handed back at once, followed by this pause.
const HAND_BACK_AT_ONCE_MAX: usize = 1_000;
const HAND_BACK_PAUSE: Duration = Duration::from_millis(100);

/// Interval between searches for tasks among the kept ones: each search goes through all
/// of them.
const LOOK_FOR_KEPT_EVERY: Duration = Duration::from_secs(1);

/// A place in the order of ready tasks as a time, from ms since the epoch.
pub(super) const fn place(ready_ms: u64) -> Moment {
    Moment(Duration::from_millis(ready_ms))
}

impl Partition {
    /// Handles a delivery. One that must not start yet is kept as an id, and its payload is not
    /// needed until then. Returns whether the payload may be needed now.
    pub fn handle_delivery(&mut self, id: TaskId, facts: &TaskFacts, now: Moment) -> bool {
        if let Some(at_ms) = facts.waits_until_ms
            && self.keep_until(id, facts, at_ms, now)
        {
            return false;
        }
        self.machine.delivered(id, facts.batch_size);
        self.take_up(id, facts.ready_ms(), now, true);
        self.record_facts(id, facts);
        true
    }

    /// Keeps a delivery as an id if its time, in ms since the epoch, lies ahead. Returns whether it
    /// does.
    fn keep_until(&mut self, id: TaskId, facts: &TaskFacts, at_ms: u64, now: Moment) -> bool {
        let untouched = self.machine.fold(id) == TaskFold::default() && !self.machine.is_aside(id);
        if !untouched || self.wall.at(now) >= at_ms {
            return false;
        }
        // A delivery beyond the limit comes again with the next session.
        if self.scheduled.keep(id, facts.batch_size, at_ms)
            && let Some(key) = facts.order_key.filter(|_| self.keeps_order())
        {
            self.kept_keys.insert(id, key);
        }
        true
    }

    /// Notes what the message of a task says, delivered or read.
    pub(super) fn record_facts(&mut self, id: TaskId, facts: &TaskFacts) {
        if let Some(key) = facts.order_key {
            self.stand_in_line(id, key);
        }
        self.machine.record_limits(id, facts.limits);
        if let Some(open) = self.open.get_mut(&id)
            && facts.task_type.is_some()
        {
            open.task_type = facts.task_type;
        }
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

    /// Handles the end of the consumer session.
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

    /// Looks at tasks that wait for a slot and at kept ones that are due, in the order in which
    /// they became ready, as long as there are slots.
    pub(super) fn serve(&mut self, now: Moment, slots: &mut Slots) {
        while slots.may_read() {
            // Tasks with their tickets come first, whatever their places: no other worker can use
            // the tickets.
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

    /// The place of the first kept task, if it is due and may be claimed.
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

    /// Its payload is read from the task topic before the claim.
    fn take_up_kept(&mut self, Due { id, batch_size, at_ms }: Due, now: Moment) {
        self.machine.delivered_as_id(id, batch_size);
        self.take_up(id, at_ms, now, false);
    }

    /// On a queue with an order, puts kept tasks that are due into their lines, even without a free
    /// slot: the tasks behind them wait.
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

    /// Plans a search for a kept task that was cancelled or rescheduled, or has ended.
    pub(super) fn look_for_kept(&mut self, id: TaskId, now: Moment) {
        if !self.scheduled.is_empty() && self.machine.task(id).is_some_and(|task| !task.held) {
            self.scheduled.look_for(id, now + LOOK_FOR_KEPT_EVERY);
        }
    }

    /// Removes kept tasks that must not be kept any longer, and sets the time of the next check.
    pub(super) fn recheck_kept(&mut self, now: Moment) {
        if self.scheduled.is_empty() {
            (self.next_kept, self.kept_is_due) = (None, false);
            return;
        }
        if self.scheduled.look_at().is_some_and(|at| at <= now) {
            for due in self.scheduled.take_sought(self.settings.partition) {
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

    /// Whether there are other workers that could take a task.
    pub(super) fn has_others(&self, now: Moment) -> bool {
        self.silence.live_owners(now).any(|owner| !self.machine.is_own(owner))
    }

    /// Hands due tasks that have waited for a slot for a while back to the broker, so that another
    /// worker can take them; in a drain at once. The broker has another order, so a worker that is
    /// alone keeps them.
    fn hand_back_kept(&mut self, now: Moment) {
        let patience = if self.mode == Mode::Draining { Duration::ZERO } else { WAIT_FOR_SLOT_MAX };
        let late = self.wall.at(Moment(now.0.saturating_sub(patience)));
        for _ in 0..HAND_BACK_AT_ONCE_MAX {
            let Some(due) = self.scheduled.pop_due(late, self.settings.partition) else { return };
            let Due { id, batch_size, at_ms } = due;
            if self.machine.works_on_entry(id) {
                // Other tasks of its batch are in progress: it waits with them.
                self.scheduled.keep(id, batch_size, at_ms);
                return;
            }
            self.hand_back(id);
        }
    }
}
