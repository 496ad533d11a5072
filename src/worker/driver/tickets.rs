//! Tickets: what the claims of this worker need where the queue has limits, and what it gives back.
//!
//! A task takes its tickets one after the other, as the register's fold says
//! (`protocol/register/gates.rs`), and may be claimed when it has all of them. One for a slot is
//! given back when the attempt is over; one for a pace when its token is forgotten, whatever became
//! of the task.

use super::lane::TaskPayload;
use super::lanes::LaneId;
use super::paces::{Paces, SLOT_AHEAD_MS, TOKEN_KEEPS_MS};
use super::register::OwnRegister;
use super::{Driver, Event, PublishResult};
use crate::transport::OnReceipt;
use longhaul_core::protocol::key::OwnerId;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{
    Entry, Gate, GateKind, Gates, Key, Stamp, Standing, Ticket,
};
use longhaul_core::task::{TaskId, text};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What this worker has at the gates of a register.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    tasks: BTreeMap<(LaneId, TaskId), Held>,
    /// Whose each of the tickets is.
    holders: BTreeMap<Stamp, (LaneId, TaskId)>,
    /// Which tasks have a ticket at a gate, and have not passed it.
    waiting: BTreeMap<Gate, BTreeSet<(LaneId, TaskId)>>,
    pub(super) paces: Paces,
    /// Being given back.
    returning: BTreeSet<Stamp>,
    /// How often those that are of no use were found still standing.
    pub(super) useless: BTreeMap<Stamp, u32>,
    /// When a ticket of each owner was read last, of those that have any.
    pub(super) heard: BTreeMap<OwnerId, Moment>,
    /// They will be looked for.
    pub(super) scheduled: bool,
}

/// The tickets of a task.
#[derive(Debug)]
struct Held {
    key: Option<Box<str>>,
    tickets: Vec<Ticket>,
    passed: Vec<Gate>,
    /// It may be claimed, or was.
    granted: bool,
    /// When to look at it again: in ms since the epoch.
    look_at_ms: Option<u64>,
}

/// What a task does next.
enum Next {
    /// Somebody else is to do something.
    Wait {
        in_line_of_key: bool,
    },
    /// The token of its pace is there then, in ms since the epoch.
    At(u64, bool),
    /// The same, and so late that others are to have its slots until shortly before.
    Aside(u64, bool),
    /// This gate has no token until shortly after this time: others are to have its slots.
    Park(Gate, u64),
    /// The token that it has at this gate is too old.
    Renew(Gate),
    /// It takes a ticket here.
    Take(Gate),
    Pass(Gate),
    Claim,
}

impl Held {
    fn ticket_at(&self, gate: &Gate) -> Option<&Ticket> {
        self.tickets.iter().find(|ticket| ticket.gate == *gate)
    }

    fn next(&self, of: (LaneId, TaskId), gates: &Gates, paces: &Paces, wall_ms: u64) -> Next {
        let way: Vec<Gate> = gates.on_the_way(self.key.as_deref()).collect();
        let needs_slots = way.iter().any(|gate| gate.kind == GateKind::Slots);
        let tokens = way.iter().filter(|gate| needs_slots && gate.kind == GateKind::Pace);
        for gate in tokens {
            let token = self.ticket_at(gate).map(|ticket| gates.standing(ticket));
            let passed = self.passed.contains(gate);
            match token {
                Some(Standing::From(at_ms)) if at_ms.saturating_add(TOKEN_KEEPS_MS) < wall_ms => {
                    return Next::Renew(gate.clone());
                }
                Some(Standing::From(at_ms)) if !passed && at_ms > wall_ms + SLOT_AHEAD_MS => {
                    return Next::Aside(at_ms, gate.key.is_some());
                }
                None if !passed && !paces.has_set_out(gate, of) => {
                    let at_ms = paces.opens_at(gate, of, gates, wall_ms);
                    if at_ms > wall_ms + SLOT_AHEAD_MS {
                        return Next::Park(gate.clone(), at_ms - SLOT_AHEAD_MS);
                    }
                }
                None | Some(_) => {}
            }
        }
        let Some(gate) = way.into_iter().find(|gate| !self.passed.contains(gate)) else {
            return Next::Claim;
        };
        let Some(ticket) = self.ticket_at(&gate) else {
            if needs_slots && gate.kind == GateKind::Pace {
                let at_ms = paces.opens_at(&gate, of, gates, wall_ms);
                if at_ms > wall_ms + SLOT_AHEAD_MS {
                    return Next::Park(gate, at_ms - SLOT_AHEAD_MS);
                }
            }
            return Next::Take(gate);
        };
        match gates.standing(ticket) {
            Standing::Unknown => Next::Wait { in_line_of_key: false },
            Standing::Waits => Next::Wait { in_line_of_key: gate.key.is_some() },
            Standing::From(at_ms) if at_ms > wall_ms => Next::At(at_ms, gate.key.is_some()),
            Standing::From(_) => Next::Pass(gate),
        }
    }

    /// The gates of pace where it has no ticket yet.
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
    fn wait_at(&mut self, gate: &Gate, of: (LaneId, TaskId)) {
        self.waiting.entry(gate.clone()).or_default().insert(of);
    }

    fn leave(&mut self, gate: &Gate, of: (LaneId, TaskId)) {
        if let Some(tasks) = self.waiting.get_mut(gate) {
            tasks.remove(&of);
            if tasks.is_empty() {
                self.waiting.remove(gate);
            }
        }
    }

    /// Keeps the tickets that are on this register, which may have replaced another one. A task that
    /// may be claimed keeps the gates that it has passed; a task that waits has passed only the gates
    /// that it has tickets for.
    fn keep_standing(&mut self, gates: &Gates, now: Moment) {
        self.heard = gates.standing_tickets().map(|(ticket, _)| (ticket.owner, now)).collect();
        self.waiting.clear();
        self.holders.clear();
        self.paces.clear();
        self.returning.clear();
        for (of, held) in &mut self.tasks {
            held.tickets.retain(|ticket| gates.standing(ticket) != Standing::Unknown);
            let Held { tickets, passed, granted, .. } = held;
            passed.retain(|gate| *granted || tickets.iter().any(|ticket| ticket.gate == *gate));
            for ticket in tickets {
                self.holders.insert(ticket.stamp, *of);
                if !passed.contains(&ticket.gate) {
                    self.waiting.entry(ticket.gate.clone()).or_default().insert(*of);
                }
            }
        }
    }

    pub(super) fn holder_of(&self, ticket: &Ticket) -> Option<(LaneId, TaskId)> {
        self.holders.get(&ticket.stamp).copied()
    }

    /// Tasks that look whether they may pass this gate, or all.
    fn at(&self, gate: Option<&Gate>) -> Vec<(LaneId, TaskId)> {
        match gate {
            Some(gate) => self.waiting.get(gate).into_iter().flatten().copied().collect(),
            None => {
                self.tasks.iter().filter(|(_, held)| !held.granted).map(|(id, _)| *id).collect()
            }
        }
    }
}

impl Driver {
    /// A claim of this task needs tickets.
    pub(super) fn ask_for_ticket(&mut self, id: LaneId, task: TaskId, now: Moment) {
        let payload = self.lanes.get(&id).and_then(|lane| lane.payloads.get(task));
        let key = payload.and_then(|payload| payload.limit_key()).map(Into::into);
        let Some(register) = self.register_of_mut(id) else { return };
        let held =
            Held { key, tickets: Vec::new(), passed: Vec::new(), granted: false, look_at_ms: None };
        register.tickets.tasks.insert((id, task), held);
        self.pass_gates(id, task, now);
    }

    /// Goes on through the gates as far as possible now.
    pub(super) fn pass_gates(&mut self, id: LaneId, task: TaskId, now: Moment) {
        let wall_ms = self.env.clock.wall_ms();
        loop {
            let Some(topic) = self.topics.get(usize::from(id.topic)) else { return };
            let number = topic.register;
            let Some(register) =
                self.registers.get_mut(number).filter(|register| register.is_read())
            else {
                return;
            };
            let OwnRegister { fold, tickets, .. } = register;
            let Some(held) = tickets.tasks.get_mut(&(id, task)).filter(|held| !held.granted) else {
                return;
            };
            let next = held.next((id, task), fold.gates(), &tickets.paces, wall_ms);
            if !matches!(next, Next::Park(..)) {
                tickets.paces.unpark((id, task));
            }
            match next {
                Next::Take(gate) => {
                    for gate in held.needs_tokens_at(fold.gates()) {
                        tickets.paces.set_out(&gate, (id, task));
                    }
                    return self.take_ticket(id, task, gate);
                }
                Next::Wait { in_line_of_key } => return self.line_up(id, task, in_line_of_key),
                Next::At(at_ms, of_key) => {
                    return self.look_again(number, (id, task), at_ms, of_key);
                }
                Next::Aside(at_ms, of_key) => {
                    self.give_back_slots(number, (id, task));
                    return self.look_again(number, (id, task), at_ms - SLOT_AHEAD_MS, of_key);
                }
                Next::Park(gate, at_ms) => {
                    self.park_at_pace(number, (id, task), &gate, at_ms);
                    return self.line_up(id, task, gate.key.is_some());
                }
                Next::Renew(gate) => {
                    // It stands until it is forgotten, as that of a task which has begun.
                    held.passed.retain(|passed| *passed != gate);
                    let token = held.tickets.iter().position(|ticket| ticket.gate == gate);
                    let token = token.map(|at| held.tickets.swap_remove(at));
                    tickets.leave(&gate, (id, task));
                    if let Some(token) = token {
                        tickets.holders.remove(&token.stamp);
                    }
                }
                Next::Pass(gate) => {
                    tickets.leave(&gate, (id, task));
                    if let Some(held) = tickets.tasks.get_mut(&(id, task)) {
                        held.passed.push(gate);
                    }
                }
                Next::Claim => {
                    held.granted = true;
                    if let Some(lane) = self.lanes.get_mut(&id) {
                        lane.core.grant_ticket(task, now);
                    }
                    return;
                }
            }
        }
    }

    fn line_up(&mut self, id: LaneId, task: TaskId, in_line_of_key: bool) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.core.line_up(task, in_line_of_key);
        }
    }

    /// The task goes on at this time of the wall clock, in ms since the epoch.
    fn look_again(&mut self, number: usize, of: (LaneId, TaskId), at_ms: u64, of_key: bool) {
        self.line_up(of.0, of.1, of_key);
        let Some(register) = self.registers.get_mut(number) else { return };
        let Some(held) = register.tickets.tasks.get_mut(&of) else { return };
        if held.look_at_ms.replace(at_ms) != Some(at_ms) {
            self.at_wall_ms(at_ms, Event::TicketDue { lane: of.0, id: of.1 });
        }
    }

    /// A time has come for which a task has waited: perhaps not by the wall clock, which may have
    /// been set back.
    pub(super) fn handle_ticket_due(&mut self, id: LaneId, task: TaskId, now: Moment) {
        let Some(topic) = self.topics.get(usize::from(id.topic)) else { return };
        let register = self.registers.get_mut(topic.register);
        if let Some(held) =
            register.and_then(|register| register.tickets.tasks.get_mut(&(id, task)))
        {
            held.look_at_ms = None;
        }
        self.pass_gates(id, task, now);
    }

    /// Others are to have the slots of a task: it will take them again.
    pub(super) fn give_back_slots(&mut self, number: usize, of: (LaneId, TaskId)) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let tickets = &mut register.tickets;
        let Some(held) = tickets.tasks.get_mut(&of) else { return };
        held.passed.retain(|gate| gate.kind != GateKind::Slots);
        let is_slot = |ticket: &mut Ticket| ticket.gate.kind == GateKind::Slots;
        let slots: Vec<Ticket> = held.tickets.extract_if(.., is_slot).collect();
        for ticket in &slots {
            tickets.leave(&ticket.gate, of);
            tickets.holders.remove(&ticket.stamp);
        }
        for ticket in slots {
            self.give_back(number, ticket);
        }
    }

    /// Has something done at this time of the wall clock.
    pub(super) fn at_wall_ms(&self, at_ms: u64, event: Event) {
        let clock = self.env.clock;
        let wait = Duration::from_millis(at_ms.saturating_sub(clock.wall_ms()));
        let at = clock.now() + wait;
        self.pending.push(Box::pin(async move {
            clock.sleep_until(at).await;
            event
        }));
    }

    fn take_ticket(&mut self, id: LaneId, task: TaskId, gate: Gate) {
        let Self { topics, registers, lanes, env, services, .. } = self;
        let Some(topic) = topics.get(usize::from(id.topic)) else { return };
        let number = topic.register;
        let Some(register) = registers.get_mut(number) else { return };
        let Some(lane) = lanes.get(&id) else { return };
        let (owner, stamp) = (lane.core.machine().owner(), register.next_stamp());
        let ticket = Ticket { gate, task, owner, stamp };
        let Some(held) = register.tickets.tasks.get_mut(&(id, task)) else { return };
        held.tickets.push(ticket.clone());
        register.tickets.wait_at(&ticket.gate, (id, task));
        register.tickets.holders.insert(stamp, (id, task));
        let answers = env.answers.clone();
        let lost = ticket.clone();
        let on_receipt = OnReceipt::new(move |published| {
            if PublishResult::from(published) != PublishResult::Stored {
                let event = Event::TicketLost { register: number, ticket: lost };
                answers.put(Event::Later(Box::new(event)));
            }
        });
        let entry = Entry::Ticket(ticket, topic.name().into());
        register.publish(env, services, &entry, on_receipt);
    }

    /// The tickets of a task are of no more use to it.
    pub(super) fn return_ticket(&mut self, id: LaneId, task: TaskId) {
        let Some(topic) = self.topics.get(usize::from(id.topic)) else { return };
        let number = topic.register;
        let Some(register) = self.registers.get_mut(number) else { return };
        let Some(held) = register.tickets.tasks.remove(&(id, task)) else { return };
        for ticket in &held.tickets {
            register.tickets.leave(&ticket.gate, (id, task));
            register.tickets.holders.remove(&ticket.stamp);
        }
        for ticket in held.tickets.into_iter().filter(|ticket| ticket.gate.kind == GateKind::Slots)
        {
            self.give_back(number, ticket);
        }
        self.leave_paces(number, (id, task));
    }

    /// Publishes that a ticket is of no more use.
    pub(super) fn give_back(&mut self, number: usize, ticket: Ticket) {
        let Self { registers, env, services, .. } = self;
        let Some(register) = registers.get_mut(number) else { return };
        if !register.tickets.returning.insert(ticket.stamp) {
            return;
        }
        let (answers, entry) = (env.answers.clone(), Entry::Tombstone(Key::Ticket(ticket.clone())));
        let on_receipt = OnReceipt::new(move |published| {
            if PublishResult::from(published) != PublishResult::Stored {
                let event = Event::TicketStays { register: number, ticket };
                answers.put(Event::Later(Box::new(event)));
            }
        });
        register.publish(env, services, &entry, on_receipt);
    }

    /// A ticket may not be stored. Should it land all the same it is given back when it is read.
    pub(super) fn handle_ticket_lost(&mut self, number: usize, ticket: &Ticket, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let OwnRegister { fold, tickets, .. } = register;
        if fold.gates().standing(ticket) == Standing::Unknown
            && let Some(of) = tickets.holder_of(ticket)
        {
            self.take_again(number, ticket, of, now);
        }
    }

    /// It may not be given back.
    pub(super) fn handle_ticket_stays(&mut self, number: usize, ticket: Ticket) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.tickets.returning.remove(&ticket.stamp);
        if register.fold.gates().standing(&ticket) != Standing::Unknown {
            self.give_back(number, ticket);
        }
    }

    /// The task needs another ticket in place of this one: it runs already, or waits for others.
    fn take_again(&mut self, number: usize, lost: &Ticket, of: (LaneId, TaskId), now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.tickets.leave(&lost.gate, of);
        register.tickets.holders.remove(&lost.stamp);
        let Some(held) = register.tickets.tasks.get_mut(&of) else { return };
        held.tickets.retain(|ticket| ticket.stamp != lost.stamp);
        let (passed, granted) = (held.passed.contains(&lost.gate), held.granted);
        if lost.gate.kind == GateKind::Pace && passed {
            return;
        }
        held.passed.retain(|gate| *gate != lost.gate);
        if granted {
            // It goes on; from now on it counts again.
            self.take_ticket(of.0, of.1, lost.gate.clone());
        } else {
            self.pass_gates(of.0, of.1, now);
        }
    }

    /// A ticket was read, or that one was given back.
    pub(super) fn ticket_was_read(&mut self, number: usize, entry: &Entry, now: Moment) {
        let (ticket, taken) = match entry {
            Entry::Ticket(ticket, _) => (ticket, true),
            Entry::Tombstone(Key::Ticket(ticket)) => (ticket, false),
            Entry::Start(_)
            | Entry::Period(..)
            | Entry::Bind(_)
            | Entry::Release(_)
            | Entry::Document(_)
            | Entry::Moved(_)
            | Entry::Tombstone(_) => return,
        };
        let Some(register) = self.registers.get_mut(number) else { return };
        if !register.is_read() {
            return;
        }
        let own = register.stamps.is_own(ticket.stamp);
        let holder = if own { register.tickets.holder_of(ticket) } else { None };
        if let Some(of) = holder {
            register.tickets.paces.arrive(&ticket.gate, of);
        }
        if taken {
            register.tickets.heard.insert(ticket.owner, now);
        }
        if taken && own {
            // What nobody here needs any more was on its way for long.
            if holder.is_none() && ticket.gate.kind == GateKind::Slots {
                self.give_back(number, ticket.clone());
            }
        } else if !taken {
            register.tickets.returning.remove(&ticket.stamp);
            if let Some(of) = holder {
                self.take_again(number, ticket, of, now);
            }
        }
        self.look_at_gate(number, Some(&ticket.gate), now);
        self.look_at_tickets_later(number);
    }

    /// Tasks at this gate, or at all of them, go on if they may.
    pub(super) fn look_at_gate(&mut self, number: usize, gate: Option<&Gate>, now: Moment) {
        let Some(register) = self.registers.get(number) else { return };
        for (lane, task) in register.tickets.at(gate) {
            self.pass_gates(lane, task, now);
        }
    }

    /// The register was read to its end. It may have replaced another one.
    pub(super) fn look_at_all_tickets(&mut self, number: usize, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let OwnRegister { fold, tickets, .. } = register;
        tickets.keep_standing(fold.gates(), now);
        self.look_at_gate(number, None, now);
        self.look_at_tickets_later(number);
    }
}

impl TaskPayload {
    /// The key of the limits that the task is under. One that is none does not count.
    pub(super) fn limit_key(&self) -> Option<&str> {
        let key = self.properties.get(text::LIMIT_KEY)?;
        text::is_limit_key(key).then_some(key.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::protocol::key::OwnerId;
    use longhaul_core::protocol::register::Register;
    use longhaul_core::task::Position;

    /// No task was looked at for its tickets on a register that had replaced a deleted one, and the
    /// gates that tickets of the deleted one had passed stayed passed.
    #[test]
    fn tasks_wait_by_the_register_that_is_there_now() {
        let slots = Gate { kind: GateKind::Slots, key: None };
        let task = |entry| TaskId { ledger: 1, entry, partition: -1, batch_index: None };
        let ticket = |entry| {
            let stamp = Stamp { writer: OwnerId(1), serial: entry };
            Ticket { gate: slots.clone(), task: task(entry), owner: OwnerId(1), stamp }
        };
        let held = |tickets: Vec<Ticket>, passed: &[&Gate], granted| Held {
            key: None,
            tickets,
            passed: passed.iter().map(|gate| (*gate).clone()).collect(),
            granted,
            look_at_ms: None,
        };
        let mut there = Register::default();
        let position = Position { ledger: 9, entry: 0, batch_index: None };
        there.apply(&Entry::Ticket(ticket(1), "queue".into()), position);
        let mut tickets = Tickets::default();
        let lane = LaneId::default();
        let all = [(1, &[][..], false), (2, &[&slots], false), (3, &[&slots], true)];
        for (entry, passed, granted) in all {
            let held = held(vec![ticket(entry)], passed, granted);
            tickets.tasks.insert((lane, task(entry)), held);
        }
        tickets.keep_standing(there.gates(), Moment::default());
        assert_eq!(tickets.at(Some(&slots)), [(lane, task(1))]);
        assert_eq!(tickets.holder_of(&ticket(1)), Some((lane, task(1))));
        assert_eq!(tickets.holder_of(&ticket(2)), None);
        let passed = |entry| !tickets.tasks[&(lane, task(entry))].passed.is_empty();
        assert_eq!([2, 3].map(passed), [false, true], "what runs goes on");
    }
}
