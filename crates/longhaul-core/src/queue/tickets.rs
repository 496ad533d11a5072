//! Tickets: the claims of this worker need them where the queue has limits.
//!
//! A task takes its tickets one after the other (`protocol/register/gates.rs`), and may be claimed
//! once it has all of them. A ticket for a slot is given back when the attempt is over. A ticket of
//! a rate is given back when its token is forgotten, whatever happened to the task.

use super::rates::{RateWaitList, SLOT_AHEAD_MS, TOKEN_KEEPS_MS};
use super::{Intent, QueueContext, QueueCore, Wake, remove_from};
use crate::protocol::key::OwnerId;
use crate::protocol::moment::Moment;
use crate::protocol::register::{
    Gate, GateKind, Gates, QueueTask, RegisterEntry, RegisterKey, Stamp, Ticket, TicketGrant,
};
use std::collections::{BTreeMap, BTreeSet};

/// This worker's tickets at the gates of a register.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    tasks: BTreeMap<QueueTask, TicketsOfTask>,
    /// Ticket stamp → task.
    holders: BTreeMap<Stamp, QueueTask>,
    /// The tasks that have a ticket at a gate and have not passed it.
    waiting: BTreeMap<Gate, BTreeSet<QueueTask>>,
    pub(super) rates: RateWaitList,
    /// Tickets whose tombstones are in flight, or are stored and not read.
    pub(super) returning: BTreeSet<Stamp>,
    /// How often each unneeded ticket was found still standing.
    pub(super) abandoned: BTreeMap<Stamp, u32>,
    /// When a ticket of each owner was last read, for owners that have any.
    pub(super) heard: BTreeMap<OwnerId, Moment>,
}

/// The tickets of a task.
#[derive(Debug)]
struct TicketsOfTask {
    key: Option<Box<str>>,
    tickets: Vec<Ticket>,
    passed: Vec<Gate>,
    /// Whether the task may be claimed, or was.
    granted: bool,
}

/// The next step of a task.
enum NextStep {
    /// Wait for others, or for the token of the task until this time (ms since the epoch).
    Wait {
        of_key: bool,
        until_ms: Option<u64>,
        /// Whether the wait is so long that others get the slots meanwhile.
        gives_slots: bool,
    },
    /// Wait at this gate, which has no token until shortly after this time; others get the slots.
    Park(Gate, u64),
    /// Replace the token at this gate; it is too old.
    Renew(Gate),
    /// Take a ticket here.
    Take(Gate),
    Pass(Gate),
    Claim,
}

impl TicketsOfTask {
    fn ticket_at(&self, gate: &Gate) -> Option<&Ticket> {
        self.tickets.iter().find(|ticket| ticket.gate == *gate)
    }

    fn next(&self, task: QueueTask, gates: &Gates, rates: &RateWaitList, wall_ms: u64) -> NextStep {
        let way: Vec<Gate> = gates.on_the_way(self.key.as_deref()).collect();
        let needs_slots = way.iter().any(|gate| gate.kind == GateKind::Slots);
        let tokens = way.iter().filter(|gate| needs_slots && gate.kind == GateKind::Pace);
        for gate in tokens {
            let token = self.ticket_at(gate).map(|ticket| gates.standing(ticket));
            let passed = self.passed.contains(gate);
            match token {
                Some(TicketGrant::From(at_ms))
                    if at_ms.saturating_add(TOKEN_KEEPS_MS) < wall_ms =>
                {
                    return NextStep::Renew(gate.clone());
                }
                Some(TicketGrant::From(at_ms)) if !passed && at_ms > wall_ms + SLOT_AHEAD_MS => {
                    let until_ms = Some(at_ms - SLOT_AHEAD_MS);
                    let of_key = gate.key.is_some();
                    return NextStep::Wait { of_key, until_ms, gives_slots: true };
                }
                None if !passed && !rates.has_set_out(gate, task) => {
                    let at_ms = rates.opens_at(gate, task, gates, wall_ms);
                    if at_ms > wall_ms + SLOT_AHEAD_MS {
                        return NextStep::Park(gate.clone(), at_ms - SLOT_AHEAD_MS);
                    }
                }
                None | Some(_) => {}
            }
        }
        let Some(gate) = way.into_iter().find(|gate| !self.passed.contains(gate)) else {
            return NextStep::Claim;
        };
        let Some(ticket) = self.ticket_at(&gate) else {
            if needs_slots && gate.kind == GateKind::Pace {
                let at_ms = rates.opens_at(&gate, task, gates, wall_ms);
                if at_ms > wall_ms + SLOT_AHEAD_MS {
                    return NextStep::Park(gate, at_ms - SLOT_AHEAD_MS);
                }
            }
            return NextStep::Take(gate);
        };
        let of_key = gate.key.is_some();
        let wait = |of_key, until_ms| NextStep::Wait { of_key, until_ms, gives_slots: false };
        match gates.standing(ticket) {
            TicketGrant::Unknown => wait(false, None),
            TicketGrant::Waits => wait(of_key, None),
            TicketGrant::From(at_ms) if at_ms > wall_ms => wait(of_key, Some(at_ms)),
            TicketGrant::From(_) => NextStep::Pass(gate),
        }
    }

    /// The gates of rates for which the task has no ticket yet.
    fn needs_tokens_at(&self, gates: &Gates) -> Vec<Gate> {
        let way = gates.on_the_way(self.key.as_deref());
        way.filter(|gate| {
            gate.kind == GateKind::Pace
                && !self.passed.contains(gate)
                && self.ticket_at(gate).is_none()
        })
        .collect()
    }
}

impl Tickets {
    fn wait_at(&mut self, gate: &Gate, task: QueueTask) {
        self.waiting.entry(gate.clone()).or_default().insert(task);
    }

    fn leave(&mut self, gate: &Gate, task: QueueTask) {
        remove_from(&mut self.waiting, gate, task);
    }

    /// Keeps only the tickets that are on this register, which may have replaced another one. A
    /// task that may be claimed keeps the gates that it has passed. A waiting task has passed only
    /// the gates for which it has tickets.
    fn keep_standing(&mut self, gates: &Gates, now: Moment) {
        self.heard = gates.standing_tickets().map(|(ticket, _)| (ticket.owner, now)).collect();
        self.waiting.clear();
        self.holders.clear();
        self.rates.clear();
        self.returning.clear();
        for (task, held) in &mut self.tasks {
            held.tickets.retain(|ticket| gates.standing(ticket) != TicketGrant::Unknown);
            let TicketsOfTask { tickets, passed, granted, .. } = held;
            passed.retain(|gate| *granted || tickets.iter().any(|ticket| ticket.gate == *gate));
            for ticket in tickets {
                self.holders.insert(ticket.stamp, *task);
                if !passed.contains(&ticket.gate) {
                    self.waiting.entry(ticket.gate.clone()).or_default().insert(*task);
                }
            }
        }
    }

    /// The task of this worker that a ticket belongs to.
    pub(super) fn holder_of(&self, ticket: &Ticket) -> Option<QueueTask> {
        self.holders.get(&ticket.stamp).copied()
    }

    /// The tasks that may pass this gate next, or any gate.
    fn at(&self, gate: Option<&Gate>) -> Vec<QueueTask> {
        match gate {
            Some(gate) => self.waiting.get(gate).into_iter().flatten().copied().collect(),
            None => {
                self.tasks.iter().filter(|(_, held)| !held.granted).map(|(id, _)| *id).collect()
            }
        }
    }
}

impl QueueCore {
    /// Requests tickets for the claim of this task with this limit key.
    pub fn ask_for_ticket(
        &mut self,
        task: QueueTask,
        key: Option<&str>,
        cx: &mut QueueContext<'_>,
    ) {
        let (tickets, passed) = (Vec::new(), Vec::new());
        let held = TicketsOfTask { key: key.map(Into::into), tickets, passed, granted: false };
        self.tickets.tasks.insert(task, held);
        self.pass_gates(task, cx);
    }

    /// Passes as many gates as possible now.
    pub(super) fn pass_gates(&mut self, task: QueueTask, cx: &mut QueueContext<'_>) {
        if !self.read {
            return;
        }
        loop {
            let gates = self.register.gates();
            let held = self.tickets.tasks.get_mut(&task).filter(|held| !held.granted);
            let Some(held) = held else { return };
            let next = held.next(task, gates, &self.tickets.rates, cx.wall_ms);
            if !matches!(next, NextStep::Park(..)) {
                self.tickets.rates.unpark(task);
            }
            match next {
                NextStep::Take(gate) => {
                    for gate in held.needs_tokens_at(gates) {
                        self.tickets.rates.set_out(&gate, task);
                    }
                    return self.take_ticket(task, gate, cx);
                }
                NextStep::Wait { of_key, until_ms, gives_slots } => {
                    if gives_slots {
                        self.give_back_slots(task);
                    }
                    line_up(task, of_key, cx);
                    if let Some(until_ms) = until_ms {
                        self.agenda.set(Wake::Ticket(task), cx.at_wall_ms(until_ms));
                    }
                    return;
                }
                NextStep::Park(gate, at_ms) => {
                    self.park_at_rate(task, &gate, at_ms, cx);
                    return line_up(task, gate.key.is_some(), cx);
                }
                NextStep::Renew(gate) => {
                    // The ticket stands until its token is forgotten, as after the start of an
                    // attempt.
                    held.passed.retain(|passed| *passed != gate);
                    let token = held.tickets.iter().position(|ticket| ticket.gate == gate);
                    let token = token.map(|at| held.tickets.swap_remove(at));
                    self.tickets.leave(&gate, task);
                    if let Some(token) = token {
                        self.tickets.holders.remove(&token.stamp);
                    }
                }
                NextStep::Pass(gate) => {
                    held.passed.push(gate.clone());
                    self.tickets.leave(&gate, task);
                }
                NextStep::Claim => {
                    held.granted = true;
                    let now = cx.now;
                    if let Some(partition) = cx.of_mut(task) {
                        partition.grant_ticket(task.id, now);
                    }
                    return;
                }
            }
        }
    }

    /// Gives the slots of a task to others. The task takes slots again later.
    pub(super) fn give_back_slots(&mut self, task: QueueTask) {
        let Some(held) = self.tickets.tasks.get_mut(&task) else { return };
        held.passed.retain(|gate| gate.kind != GateKind::Slots);
        let is_slot = |ticket: &mut Ticket| ticket.gate.kind == GateKind::Slots;
        let slots: Vec<Ticket> = held.tickets.extract_if(.., is_slot).collect();
        for ticket in slots {
            self.tickets.leave(&ticket.gate, task);
            self.tickets.holders.remove(&ticket.stamp);
            self.give_back(ticket);
        }
    }

    fn take_ticket(&mut self, task: QueueTask, gate: Gate, cx: &QueueContext<'_>) {
        let Some(partition) = cx.of(task) else { return };
        let Some(topic) = self.topics.get(&task.level).cloned() else { return };
        let (owner, stamp) = (partition.machine().owner(), self.stamps.next());
        let ticket = Ticket { gate, task: task.id, owner, stamp };
        let Some(held) = self.tickets.tasks.get_mut(&task) else { return };
        held.tickets.push(ticket.clone());
        self.tickets.wait_at(&ticket.gate, task);
        self.tickets.holders.insert(stamp, task);
        self.publish_for(Intent::Ticket(ticket.clone()), RegisterEntry::Ticket(ticket, topic));
    }

    /// Returns the tickets of a task that no longer needs them.
    pub fn return_ticket(&mut self, task: QueueTask, cx: &QueueContext<'_>) {
        let Some(held) = self.tickets.tasks.remove(&task) else { return };
        self.agenda.remove(Wake::Ticket(task));
        for ticket in held.tickets {
            self.tickets.leave(&ticket.gate, task);
            self.tickets.holders.remove(&ticket.stamp);
            if ticket.gate.kind == GateKind::Slots {
                self.give_back(ticket);
            }
        }
        self.leave_rates(task, cx);
    }

    /// Publishes the tombstone of a ticket.
    pub(super) fn give_back(&mut self, ticket: Ticket) {
        if self.tickets.returning.insert(ticket.stamp) {
            let entry = RegisterEntry::Tombstone(RegisterKey::Ticket(ticket.clone()));
            self.publish_for(Intent::GiveBack(ticket), entry);
        }
    }

    /// Handles a ticket that may not be stored. If it is read after all, it is given back then.
    pub(super) fn ticket_not_stored(&mut self, ticket: &Ticket, cx: &mut QueueContext<'_>) {
        if self.register.gates().standing(ticket) == TicketGrant::Unknown
            && let Some(task) = self.tickets.holder_of(ticket)
        {
            self.take_again(ticket, task, cx);
        }
    }

    /// Handles a tombstone of a ticket that may not be stored.
    pub(super) fn give_back_not_stored(&mut self, ticket: Ticket) {
        self.tickets.returning.remove(&ticket.stamp);
        if self.register.gates().standing(&ticket) != TicketGrant::Unknown {
            self.give_back(ticket);
        }
    }

    /// Takes another ticket in place of this one: the task runs already, or waits for others.
    fn take_again(&mut self, lost: &Ticket, task: QueueTask, cx: &mut QueueContext<'_>) {
        self.tickets.leave(&lost.gate, task);
        self.tickets.holders.remove(&lost.stamp);
        let Some(held) = self.tickets.tasks.get_mut(&task) else { return };
        held.tickets.retain(|ticket| ticket.stamp != lost.stamp);
        let (passed, granted) = (held.passed.contains(&lost.gate), held.granted);
        if lost.gate.kind == GateKind::Pace && passed {
            return;
        }
        held.passed.retain(|gate| *gate != lost.gate);
        if granted {
            // The task goes on. From now on it counts again.
            self.take_ticket(task, lost.gate.clone(), cx);
        } else {
            self.pass_gates(task, cx);
        }
    }

    /// Handles a ticket or the tombstone of one.
    pub(super) fn ticket_was_read(&mut self, entry: &RegisterEntry, cx: &mut QueueContext<'_>) {
        let (ticket, taken) = match entry {
            RegisterEntry::Ticket(ticket, _) => (ticket, true),
            RegisterEntry::Tombstone(RegisterKey::Ticket(ticket)) => (ticket, false),
            RegisterEntry::Start(_)
            | RegisterEntry::Period(..)
            | RegisterEntry::Bind(_)
            | RegisterEntry::Release(_)
            | RegisterEntry::Document(_)
            | RegisterEntry::Tombstone(_) => return,
        };
        if !self.read {
            return;
        }
        let own = self.stamps.is_own(ticket.stamp);
        let holder = if own { self.tickets.holder_of(ticket) } else { None };
        if let Some(task) = holder {
            self.tickets.rates.arrive(&ticket.gate, task);
        }
        if taken {
            self.tickets.heard.insert(ticket.owner, cx.now);
        }
        if taken && own {
            // The ticket was in flight for so long that no task here needs it any more.
            if holder.is_none() && ticket.gate.kind == GateKind::Slots {
                self.give_back(ticket.clone());
            }
        } else if !taken {
            self.tickets.returning.remove(&ticket.stamp);
            if let Some(task) = holder {
                self.take_again(ticket, task, cx);
            }
        }
        self.recheck_gate(Some(&ticket.gate), cx);
        self.check_abandoned_later(cx.now);
    }

    /// Lets the tasks at this gate, or at all gates, continue if they may.
    pub(super) fn recheck_gate(&mut self, gate: Option<&Gate>, cx: &mut QueueContext<'_>) {
        for task in self.tickets.at(gate) {
            self.pass_gates(task, cx);
        }
    }

    /// Rechecks all tickets after the register was read to its end; it may have replaced another
    /// one.
    pub(super) fn recheck_all_tickets(&mut self, cx: &mut QueueContext<'_>) {
        self.tickets.keep_standing(self.register.gates(), cx.now);
        self.recheck_gate(None, cx);
        self.check_abandoned_later(cx.now);
    }
}

fn line_up(task: QueueTask, in_line_of_key: bool, cx: &mut QueueContext<'_>) {
    if let Some(partition) = cx.of_mut(task) {
        partition.line_up(task.id, in_line_of_key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::register::Register;
    use crate::task::{Position, TaskId};

    /// Earlier, tasks were not checked for their tickets on a register that had replaced a deleted
    /// one, and gates passed with tickets of the deleted one stayed passed.
    #[test]
    fn tasks_wait_by_the_register_that_is_there_now() {
        let slots = Gate { kind: GateKind::Slots, key: None };
        let task = |entry| {
            QueueTask::normal(TaskId { ledger: 1, entry, partition: -1, batch_index: None })
        };
        let ticket = |entry| {
            let stamp = Stamp { writer: OwnerId(1), serial: entry };
            Ticket { gate: slots.clone(), task: task(entry).id, owner: OwnerId(1), stamp }
        };
        let held = |tickets: Vec<Ticket>, passed: &[&Gate], granted| TicketsOfTask {
            key: None,
            tickets,
            passed: passed.iter().map(|gate| (*gate).clone()).collect(),
            granted,
        };
        let mut there = Register::default();
        let position = Position { ledger: 9, entry: 0, batch_index: None };
        there.apply(&RegisterEntry::Ticket(ticket(1), "queue".into()), position);
        let mut tickets = Tickets::default();
        let all = [(1, &[][..], false), (2, &[&slots], false), (3, &[&slots], true)];
        for (entry, passed, granted) in all {
            let held = held(vec![ticket(entry)], passed, granted);
            tickets.tasks.insert(task(entry), held);
        }
        tickets.keep_standing(there.gates(), Moment::default());
        assert_eq!(tickets.at(Some(&slots)), [task(1)]);
        assert_eq!(tickets.holder_of(&ticket(1)), Some(task(1)));
        assert_eq!(tickets.holder_of(&ticket(2)), None);
        let passed = |entry| !tickets.tasks[&task(entry)].passed.is_empty();
        assert_eq!([2, 3].map(passed), [false, true], "what runs goes on");
    }
}
