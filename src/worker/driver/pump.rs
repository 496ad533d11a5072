//! Performs the effects that the state machines return and passes them the time, until nothing is
//! left to do. Also gives the broker credit for deliveries.

use super::WorkerDriver;
use super::lanes::LaneId;
use super::task_topics::TaskTopic;
use crate::telemetry;
use crate::worker::session::ConsumerCommand;
use longhaul_core::protocol::moment::Moment;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the worker requests one delivery per partition although no slot is free. It can then
/// hand back the deliveries that a client has prefetched, for idle workers, and acknowledge
/// finished tasks that are redelivered.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Upper limit of deliveries requested beyond the free slots while all deliveries are early.
const SKIM_MAX: usize = 256;

impl WorkerDriver {
    /// The earliest deadline; the driver wakes up at it.
    pub(super) fn timeout(&self) -> Moment {
        let next = self.lanes.timeout().unwrap_or(self.probe_at);
        let probe = if self.slots.free() == 0 { self.probe_at } else { next };
        let queues = self.queues.iter().filter_map(|queue| queue.core.timeout()).min();
        let queues = queues.unwrap_or(next);
        let leasing = self.leasing.as_ref();
        let unconfirmed = leasing.and_then(|leasing| leasing.confirmations.timeout());
        let next = next.min(unconfirmed.unwrap_or(next));
        self.shares_again_at().unwrap_or(next).min(probe).min(next).min(queues)
    }

    /// Performs the effects of what has happened. It runs after each event, because the next event
    /// may concern the same task.
    pub(super) fn perform_effects(&mut self) {
        while let Some(id) = self.lanes.next_fresh() {
            self.perform_effects_of(id);
        }
    }

    /// Returns whether there were any effects.
    fn perform_effects_of(&mut self, id: LaneId) -> bool {
        let mut any = false;
        while let Some(effect) = self.lanes.poll_effect(id) {
            any = true;
            self.perform(id, effect);
        }
        any
    }

    /// Runs the lanes that something has happened to or whose deadline has passed.
    pub(super) fn pump(&mut self) {
        let now = self.env.clock.now();
        self.run_queues(now);
        self.end_unconfirmed(now);
        self.perform_effects();
        self.set_free_slots();
        self.lanes.count_load();
        self.slots.set_room(self.room());
        let probe = now >= self.probe_at;
        if self.shares.is_single() {
            self.recheck_due(now);
        } else {
            if self.leasing.is_some() {
                // A leasing worker has no open requests for deliveries until a client asks for a
                // task. Topics of higher priority must still be asked first.
                self.give_credits(false, now);
            }
            self.share_slots(now);
        }
        if probe {
            self.probe_at = now + PROBE_EVERY;
            // Series that do not change for long are forgotten.
            self.measure_slots();
            self.without_credit.extend(self.lanes.keys());
            for lane in self.lanes.values() {
                lane.open_entries.store(lane.core.open_entries(), Ordering::Relaxed);
            }
        }
        self.give_credits(probe, now);
        if self.stats.hold(self.attempts.len(), self.lanes.load().tasks) {
            self.measure_slots();
        }
    }

    /// Reports the number of slots and of slots in use. A gateway has none: its leases would hide
    /// that all workers are busy.
    pub(super) fn measure_slots(&self) {
        if self.leasing.is_some() {
            return;
        }
        let queue = self.topics.first().map(TaskTopic::name).unwrap_or_default();
        telemetry::slots(queue, self.config.concurrency, self.attempts.len());
    }

    fn recheck_due(&mut self, now: Moment) {
        for id in self.lanes.take_due(now) {
            self.look_at(id, now);
            self.without_credit.insert(id);
        }
        // A slot that one lane has freed may be used by a lane that waits for one.
        for _ in 0..self.lanes.waiting() {
            if self.slots.may_read()
                && let Some(id) = self.lanes.next_waiting()
            {
                self.look_at(id, now);
            }
        }
    }

    pub(super) fn look_at(&mut self, id: LaneId, now: Moment) {
        self.slots.set_asked_elsewhere(self.lanes.asked_beside(id));
        loop {
            let Some(lane) = self.lanes.look_at(id) else { return };
            lane.core.run(now, &mut self.slots);
            let ran = self.perform_effects_of(id);
            self.keep_metadata(id, now);
            self.renew(id, now);
            if !ran && self.lanes.get(&id).is_none_or(|lane| !lane.core.has_effects()) {
                break;
            }
        }
        if let Some((before, uses)) = self.lanes.looked_at(id)
            && !self.shares.is_single()
        {
            self.shares.note(id.topic, before, uses);
        }
    }

    /// Requests more deliveries after one that came before its scheduled time: up to a million
    /// early ones may lie before the first task that is ready. The request grows with each early
    /// delivery in a row. The first ready task ends this, so that no worker gets many more of them
    /// than it has slots.
    pub(super) fn skim(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.skim = (2 * lane.skim + 1).min(SKIM_MAX);
            self.skimming.insert(id);
        }
    }

    /// How many more deliveries the worker may take, given what it already holds.
    fn room(&self) -> usize {
        self.intake.room(self.lanes.load())
    }

    /// Gives credit to the lanes that have asked for it. A lane that gets none asks again as soon
    /// as a slot is free.
    fn give_credits(&mut self, probe: bool, now: Moment) {
        let room = self.room();
        // A leasing worker takes no task without a request for it: the request may be at another
        // gateway.
        let probe = probe && self.leasing.is_none();
        let none = self.slots.free().min(room) == 0 && !probe;
        if none && self.shares.is_single() {
            // An early delivery needs no slot.
            for id in self.skimming.clone() {
                self.give_credit(id, room, probe, now);
            }
            return;
        }
        for id in std::mem::take(&mut self.without_credit) {
            let skims = self.skimming.contains(&id);
            let lacks = none && !self.shares.has_at_hand(id.topic) && !skims;
            if lacks || self.give_credit(id, room, probe, now) {
                self.without_credit.insert(id);
            }
        }
    }

    /// Lets the broker deliver as many tasks as the free slots and the limit of held bytes allow.
    /// Gives no credit while the lane may claim nothing, because other workers can take the tasks.
    /// Returns whether the lane is without credit now but may get some later.
    fn give_credit(&mut self, id: LaneId, room: usize, probe: bool, now: Moment) -> bool {
        let (lanes, asked) = (self.lanes.len().max(1), self.lanes.asked());
        let Some(lane) = self.lanes.look_at(id) else { return false };
        let Some(session) = lane.session.filter(|_| lane.core.may_take(now)) else { return true };
        let undecided = lane.core.undecided(now);
        let core = &lane.core;
        let probe = probe && !core.has_one_for_others();
        if core.holds_enough() {
            return true;
        }
        let waiting = core.waiting() + core.unwanted_beyond() + undecided + asked;
        let wanted = if self.shares.is_single() {
            let free = self.slots.free().saturating_sub(waiting).min(room);
            let least = usize::from(free == 0 && room > 0 && probe);
            free.div_ceil(lanes).max(least)
        } else {
            self.shares.credit(id.topic, waiting, self.slots.free(), room, probe, now)
        };
        let ahead = if self.slots.free() > 0 { core.looks_ahead() } else { 0 };
        let wanted = wanted + lane.skim.max(ahead).min(room);
        if wanted > lane.credit {
            if lane.credit == 0 {
                self.shares.may_have_more(id.topic, now);
            }
            let count = wanted - lane.credit;
            lane.credit = wanted;
            lane.consumer.put(ConsumerCommand::Credit { session, count });
        }
        lane.credit == 0
    }
}
