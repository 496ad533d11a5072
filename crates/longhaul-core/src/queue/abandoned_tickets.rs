//! Tickets that are no longer needed and were not given back. The first worker by rank gives back
//! those of a silent worker.

use super::{QueueContext, QueueCore, Remark, Wake};
use crate::partition::Partition;
use crate::protocol::moment::Moment;
use crate::protocol::register::{QueueTask, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often the tickets of others are checked, while there are any.
const CHECKED_EVERY: Duration = Duration::from_secs(1);

/// A worker gives back a ticket after it has found it abandoned this often: apparently no other
/// worker does, or this one has missed it. After as many further checks it gives it back again: if
/// compaction has removed the ticket and its tombstone before this worker read them, nothing else
/// tells the worker that the ticket is gone.
const FOUND_MAX: u32 = 5;

/// The ticket of a token is given back this long after the token is forgotten. Clocks may differ by
/// as much; otherwise a worker that starts then takes the bucket for fuller than it is.
const FORGOTTEN_FOR_MS: u64 = 1_000;

impl QueueCore {
    /// Checks the tickets of others after a while, if there are any tickets.
    pub(super) fn check_abandoned_later(&mut self, now: Moment) {
        if !self.register.gates().is_empty() && !self.agenda.contains(&Wake::AbandonedTickets) {
            self.agenda.set(Wake::AbandonedTickets, now + CHECKED_EVERY);
        }
    }

    /// Gives back abandoned tickets: those of silent workers if this worker is the first of all,
    /// and any other ticket after a few checks. A ticket that still stands is given back again.
    pub(super) fn give_back_abandoned(&mut self, cx: &QueueContext<'_>) {
        if !self.read {
            // All tickets are checked once the register is read.
            return;
        }
        let (mut left, mut found, mut owners) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        for (ticket, topic) in self.register.gates().standing_tickets() {
            owners.insert(ticket.owner);
            let Some(is_first) = self.is_abandoned(ticket, topic, cx) else { continue };
            let before = self.tickets.abandoned.get(&ticket.stamp).copied().unwrap_or_default();
            let is_due = before >= FOUND_MAX;
            if is_first || is_due {
                left.push((ticket.clone(), is_due));
            }
            found.insert(ticket.stamp, if is_due { 0 } else { before + 1 });
        }
        self.tickets.abandoned = found;
        self.tickets.heard.retain(|owner, _| owners.contains(owner));
        for (ticket, is_due) in left {
            if is_due {
                self.tickets.returning.remove(&ticket.stamp);
            }
            if !self.tickets.returning.contains(&ticket.stamp) {
                self.log(Remark::TicketAbandoned(ticket.clone()));
                self.give_back(ticket);
            }
        }
        self.check_abandoned_later(cx.now);
    }

    /// Whether a ticket is abandoned (`None` if not), and whether this worker is the one to give it
    /// back.
    fn is_abandoned(&self, ticket: &Ticket, topic: &str, cx: &QueueContext<'_>) -> Option<bool> {
        let forgotten = self.register.gates().forgotten_at(ticket);
        if let Some(at_ms) = forgotten {
            if at_ms.saturating_add(FORGOTTEN_FOR_MS) > cx.wall_ms {
                return None;
            }
            if self.stamps.is_own(ticket.stamp) {
                return Some(true);
            }
        }
        let level = self.topics.iter().find(|(_, name)| ***name == *topic).map(|(level, _)| *level);
        let task = level.map(|level| QueueTask { level, id: ticket.task });
        let partition = task.and_then(|task| cx.of(task));
        let heard = self.tickets.heard.get(&ticket.owner).copied().unwrap_or_default();
        let is_silent = |partition: &Partition| partition.is_silent(ticket.owner, heard);
        if forgotten.is_some() {
            // This applies whether or not its task runs.
            return Some(partition.is_some_and(|it| it.keeps_metadata() && is_silent(it)));
        }
        // A worker of other topics cannot know the ticket's owner.
        let (task, partition) = (task?, partition?);
        if partition.needs_ticket_of(ticket.task, ticket.owner) {
            return None;
        }
        if is_silent(partition) {
            return Some(partition.keeps_metadata());
        }
        // For its own tickets this worker knows which task needs them, over or not.
        let is_known = cx.is_over(task) || self.stamps.is_own(ticket.stamp);
        (is_known && self.tickets.holder_of(ticket).is_none()).then_some(false)
    }
}
