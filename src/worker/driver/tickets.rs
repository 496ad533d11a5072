//! Tickets: what the claims of this worker need where the queue has limits, and what it gives back.
//!
//! A task takes its tickets one after the other, as the register's fold says (`protocol/register/gates.rs`), and may be claimed when it has
//! all of them. One for a slot is given back when the attempt is over; one for a pace when its token is forgotten, whatever became of the
//! task. The tickets of a worker that has fallen silent are given back by the first worker by rank.

use super::lane::{Lane, TaskPayload};
use super::lanes::LaneId;
use super::register::OwnRegister;
use super::{Driver, Event, PublishResult};
use crate::protocol::moment::Moment;
use crate::protocol::register::{Entry, Gate, GateKind, Gates, Key, Stamp, Standing, Ticket};
use crate::task::{TaskId, text};
use crate::transport::OnReceipt;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often the tickets of others are looked at, while there are any.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// Whoever finds a ticket of no use so often gives it back: nobody else seems to, or this worker has missed that somebody did.
const FOUND_USELESS_MAX: u32 = 5;

/// How much later than it is forgotten a token's ticket is given back: so much may clocks differ before a worker that starts then takes a
/// bucket for fuller than it is.
const FORGOTTEN_FOR_MS: u64 = 1_000;

/// What this worker has at the gates of a register.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    tasks: BTreeMap<(LaneId, TaskId), Held>,
    /// Whose each of the tickets is.
    holders: BTreeMap<Stamp, (LaneId, TaskId)>,
    /// Which tasks have a ticket at a gate, and have not passed it.
    waiting: BTreeMap<Gate, BTreeSet<(LaneId, TaskId)>>,
    /// Being given back.
    returning: BTreeSet<Stamp>,
    /// How often those that are of no use were found still standing.
    useless: BTreeMap<Stamp, u32>,
    /// They will be looked for.
    scheduled: bool,
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
    /// It takes a ticket here.
    Take(Gate),
    Pass(Gate),
    Claim,
}

impl Held {
    fn next(&self, gates: &Gates, wall_ms: u64) -> Next {
        let gate = gates.on_the_way(self.key.as_deref()).find(|gate| !self.passed.contains(gate));
        let Some(gate) = gate else { return Next::Claim };
        let Some(ticket) = self.tickets.iter().find(|it| it.gate == gate) else {
            return Next::Take(gate);
        };
        match gates.standing(ticket) {
            Standing::Unknown => Next::Wait { in_line_of_key: false },
            Standing::Waits => Next::Wait { in_line_of_key: gate.key.is_some() },
            Standing::From(at_ms) if at_ms > wall_ms => Next::At(at_ms, gate.key.is_some()),
            Standing::From(_) => Next::Pass(gate),
        }
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

    fn holder_of(&self, ticket: &Ticket) -> Option<(LaneId, TaskId)> {
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
        let key = payload.and_then(|it| it.limit_key()).map(Into::into);
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
            let Some(register) = self.registers.get_mut(number).filter(|it| it.is_read()) else {
                return;
            };
            let OwnRegister { fold, tickets, .. } = register;
            let Some(held) = tickets.tasks.get_mut(&(id, task)).filter(|it| !it.granted) else {
                return;
            };
            match held.next(fold.gates(), wall_ms) {
                Next::Take(gate) => return self.take_ticket(id, task, gate),
                Next::Wait { in_line_of_key } => return self.line_up(id, task, in_line_of_key),
                Next::At(at_ms, of_key) => {
                    let other = held.look_at_ms.replace(at_ms) != Some(at_ms);
                    self.line_up(id, task, of_key);
                    if other {
                        let event = Event::TicketDue { lane: id, id: task };
                        self.at_wall_ms(at_ms, event);
                    }
                    return;
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
        if in_line_of_key && let Some(lane) = self.lanes.get_mut(&id) {
            lane.core.line_up(task);
        }
    }

    /// Has something done at this time of the wall clock.
    fn at_wall_ms(&self, at_ms: u64, event: Event) {
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
        for ticket in held.tickets.into_iter().filter(|it| it.gate.kind == GateKind::Slots) {
            self.give_back(number, ticket);
        }
    }

    /// Publishes that a ticket is of no more use.
    fn give_back(&mut self, number: usize, ticket: Ticket) {
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
        held.tickets.retain(|it| it.stamp != lost.stamp);
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
            | Entry::Bind(_)
            | Entry::Release(_)
            | Entry::Document(_)
            | Entry::Tombstone(_) => return,
        };
        let Some(register) = self.registers.get_mut(number) else { return };
        if !register.is_read() {
            return;
        }
        let own = register.stamps.is_own(ticket.stamp);
        let holder = if own { register.tickets.holder_of(ticket) } else { None };
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

    /// The register was read to its end, perhaps another one than before: then none of the tickets that were taken stands there.
    pub(super) fn look_at_all_tickets(&mut self, number: usize, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let OwnRegister { fold, tickets, .. } = register;
        tickets.waiting.clear();
        tickets.holders.clear();
        for (of, held) in &mut tickets.tasks {
            held.tickets.retain(|it| fold.gates().standing(it) != Standing::Unknown);
            tickets.holders.extend(held.tickets.iter().map(|it| (it.stamp, *of)));
        }
        tickets.returning.clear();
        self.look_at_gate(number, None, now);
        self.look_at_tickets_later(number);
    }

    /// Has the tickets of others looked at in a while, if there are any tickets.
    fn look_at_tickets_later(&mut self, number: usize) {
        let Some(register) = self.registers.get_mut(number) else { return };
        if register.fold.gates().is_empty()
            || std::mem::replace(&mut register.tickets.scheduled, true)
        {
            return;
        }
        let clock = self.env.clock;
        let at = clock.now() + LOOKED_AT_EVERY;
        self.pending.push(Box::pin(async move {
            clock.sleep_until(at).await;
            Event::TicketsDue(number)
        }));
    }

    /// Gives back tickets that are of no use and still stand: those of silent workers where this one is the first of them all, any others when they
    /// were found a few times.
    pub(super) fn handle_tickets_due(&mut self, number: usize) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.tickets.scheduled = false;
        let Some(register) = self.registers.get(number) else { return };
        let (mut left, mut useless) = (Vec::new(), BTreeMap::new());
        for (ticket, topic) in register.fold.gates().standing_tickets() {
            let Some(found) = self.is_useless(number, ticket, topic) else { continue };
            let before = register.tickets.useless.get(&ticket.stamp).copied().unwrap_or_default();
            if found || before >= FOUND_USELESS_MAX {
                left.push(ticket.clone());
            } else {
                useless.insert(ticket.stamp, before + 1);
            }
        }
        if let Some(register) = self.registers.get_mut(number) {
            register.tickets.useless = useless;
        }
        for ticket in left {
            tracing::debug!(task = %ticket.task, owner = %ticket.owner, gate = %ticket.gate, "a ticket of no use is given back");
            self.give_back(number, ticket);
        }
        self.look_at_tickets_later(number);
    }

    /// Whether a ticket is of no use, and then whether this worker is the one to give it back.
    fn is_useless(&self, number: usize, ticket: &Ticket, topic: &str) -> Option<bool> {
        let of_topic =
            |it: &&Lane| &*it.topics.name == topic && it.partition() == ticket.task.partition;
        let register = self.registers.get(number)?;
        let forgotten = register.fold.gates().forgotten_at(ticket);
        if let Some(at_ms) = forgotten {
            if at_ms.saturating_add(FORGOTTEN_FOR_MS) > self.env.clock.wall_ms() {
                return None;
            }
            if register.stamps.is_own(ticket.stamp) {
                return Some(true);
            }
        }
        // Who does not work on the topic knows nothing of the ticket's owner.
        let core = &self.lanes.values().find(of_topic)?.core;
        if forgotten.is_some() {
            return Some(core.keeps_metadata() && core.is_silent(ticket.owner));
        }
        if core.is_silent(ticket.owner) {
            return Some(core.keeps_metadata());
        }
        let machine = core.machine();
        let over = machine.is_ready() && machine.fold(ticket.task).phase.is_terminal();
        (over && register.tickets.holder_of(ticket).is_none()).then_some(false)
    }
}

impl TaskPayload {
    /// The key of the limits that the task is under. One that is none does not count.
    pub(super) fn limit_key(&self) -> Option<&str> {
        let key = self.properties.get(text::LIMIT_KEY)?;
        text::is_limit_key(key).then_some(key.as_str())
    }
}
