//! Tickets that are of no use and still stand: those of a worker that has fallen silent are given
//! back by the first worker by rank.

use super::lane::Lane;
use super::{Driver, Event};
use longhaul_core::partition::Partition;
use longhaul_core::protocol::register::Ticket;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often the tickets of others are looked at, while there are any.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// Whoever finds a ticket of no use so often gives it back: nobody else seems to, or this worker
/// has missed that somebody did.
const FOUND_USELESS_MAX: u32 = 5;

/// How much later than it is forgotten a token's ticket is given back: so much may clocks differ
/// before a worker that starts then takes a bucket for fuller than it is.
const FORGOTTEN_FOR_MS: u64 = 1_000;

impl Driver {
    /// Has the tickets of others looked at in a while, if there are any tickets.
    pub(super) fn look_at_tickets_later(&mut self, number: usize) {
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

    /// Gives back tickets that are of no use and still stand: those of silent workers where this
    /// one is the first of them all, any others when they were found a few times.
    pub(super) fn handle_tickets_due(&mut self, number: usize) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.tickets.scheduled = false;
        if !register.is_read() {
            // All tickets are looked at when it is.
            return;
        }
        let Some(register) = self.registers.get(number) else { return };
        let (mut left, mut useless, mut owners) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        for (ticket, topic) in register.fold.gates().standing_tickets() {
            owners.insert(ticket.owner);
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
            register.tickets.heard.retain(|owner, _| owners.contains(owner));
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
            |lane: &&Lane| &*lane.topics.name == topic && lane.partition() == ticket.task.partition;
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
        let core = self.lanes.values().find(of_topic).map(|lane| &lane.core);
        let heard = register.tickets.heard.get(&ticket.owner).copied().unwrap_or_default();
        let is_silent = |core: &Partition| core.is_silent(ticket.owner, heard);
        if forgotten.is_some() {
            // Whoever its owner is, and whether or not anybody works on its topic.
            return Some(core.is_some_and(|core| core.keeps_metadata() && is_silent(core)));
        }
        // Who does not work on the topic knows nothing of the ticket's owner.
        let core = core?;
        if core.needs_ticket_of(ticket.task, ticket.owner) {
            return None;
        }
        if is_silent(core) {
            return Some(core.keeps_metadata());
        }
        let machine = core.machine();
        let over = machine.is_ready() && machine.fold(ticket.task).phase.is_terminal();
        (over && register.tickets.holder_of(ticket).is_none()).then_some(false)
    }
}
