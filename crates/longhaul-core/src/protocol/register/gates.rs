//! Limits that hold over all workers of a queue: tickets, in the order of the log.
//!
//! Each limit is a *gate*: a number of concurrent tasks ([`GateKind::Slots`]) or a number of tasks
//! per time ([`GateKind::Pace`]), for the queue or for one key. A worker that is about to claim a
//! task takes a *ticket* at each gate with a limit, one after the other, the key's gates first. A
//! gate is one line, and every reader grants the same tickets:
//!
//! | gate | a ticket is granted | it is given back |
//! |---|---|---|
//! | slots | when fewer tickets stand before it than may be granted | at the end of the attempt |
//! | pace | when it lands, as of an instant: the later one of when it was published and when the bucket has a token for it | when its token is forgotten: the bucket would be full again if nothing had followed |
//! | either, without a limit | at once | |
//!
//! A ticket is given back by the tombstone of its key, so compaction removes both, and the register
//! holds only current tickets. A reader in the middle of a compacted part may have read the ticket
//! and never read the tombstone. It then grants less than others until the ticket is given back
//! again. Any worker does that which finds that the ticket is no longer needed, and so does this
//! reader. A second ticket of one writer for one task replaces the first.
//!
//! A reader that begins after a compaction grants no more than one that has read everything, for
//! these reasons. At a gate of slots, a ticket behind its start is granted when its place in line
//! is below the limit, and tickets given back before have no place in either line. At a gate of
//! pace, it does not know the tokens of tickets that were given back; those are forgotten by then,
//! so the bucket lacks at most as many tokens as there are current tickets, and
//! [`Gates::read_to_end`] assumes that many.
//!
//! The instants are wall-clock times of the publishers and of the waiting workers: no clock decides
//! the order of tickets.

mod usage;

pub use usage::LimitUse;

use super::entry::{Stamp, number};
use crate::protocol::key::{OwnerId, parse_owner};
use crate::settings::{LIMIT_KEY_BYTES_MAX, Limit, QueueSettings, Rate};
use crate::task::TaskId;
use std::collections::BTreeMap;
use std::fmt;

/// The subject of a gate's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GateKind {
    /// Number of concurrent tasks.
    Slots,
    /// Number of tasks that begin per time.
    Pace,
}

/// A limit at which tickets line up.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gate {
    /// The subject of the limit.
    pub kind: GateKind,
    /// The key whose tasks it limits; `None`: all tasks of the queue.
    pub key: Option<Box<str>>,
}

/// A ticket on the register.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// The gate.
    pub gate: Gate,
    /// The task.
    pub task: TaskId,
    /// The claimer: an owner on the ledger of the task's partition.
    pub owner: OwnerId,
    /// Makes its key unique.
    pub stamp: Stamp,
}

/// The state of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TicketGrant {
    /// It was not read, or was given back.
    Unknown,
    /// Others are before it.
    Waits,
    /// It is granted from this instant on, in ms since the epoch.
    From(u64),
}

/// The current limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct GateLimits {
    queue: Limit,
    per_key: Limit,
    keys: BTreeMap<Box<str>, Limit>,
}

/// The fold of all tickets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gates {
    limits: GateLimits,
    lines: BTreeMap<Gate, TicketLine>,
    /// Number of tickets read.
    read: u64,
}

/// The tickets at one gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct TicketLine {
    /// Current tickets, by their place in line.
    tickets: BTreeMap<u64, PlacedTicket>,
    places: BTreeMap<PlaceOf, u64>,
    /// Slots: the first place that is not granted; all before it are.
    next: u64,
    /// Slots: number of current tickets that are granted.
    granted: usize,
    /// Pace: when the bucket is full again, in ns since the epoch.
    full_at: u64,
}

/// A ticket at a gate: its task, its writer, and the writer's serial.
type PlaceOf = (TaskId, OwnerId, u64);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlacedTicket {
    ticket: Ticket,
    /// The name of its task topic.
    topic: Box<str>,
    /// Pace: since when it is granted; below, when its token is forgotten; in ns since the epoch.
    from: u64,
    forgotten: u64,
}

const NANOS_PER_MS: u64 = 1_000_000;

const fn nanos(ms: u64) -> u64 {
    ms.saturating_mul(NANOS_PER_MS)
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            GateKind::Slots => "slots",
            GateKind::Pace => "pace",
        })?;
        match &self.key {
            None => f.write_str("/queue"),
            Some(key) => write!(f, "/key/{key}"),
        }
    }
}

impl Gate {
    /// Parses a gate.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, of) = text.split_once('/')?;
        let kind = match kind {
            "slots" => GateKind::Slots,
            "pace" => GateKind::Pace,
            _ => return None,
        };
        let key = match of.split_once('/') {
            None if of == "queue" => None,
            Some(("key", key)) => {
                let fits = (1..=LIMIT_KEY_BYTES_MAX).contains(&key.len());
                Some(fits.then(|| key.into())?)
            }
            _ => return None,
        };
        Some(Self { kind, key })
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, task, owner, stamp } = self;
        write!(f, "{gate}/{task}/{owner}/{stamp}")
    }
}

impl Ticket {
    const fn place_of(&self) -> PlaceOf {
        (self.task, self.stamp.writer, self.stamp.serial)
    }

    /// Parses a ticket, from its end: the name of a key may contain anything.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(5, '/');
        let (serial, writer) = (number(parts.next()?)?, parse_owner(parts.next()?)?);
        let (owner, task) = (parse_owner(parts.next()?)?, parts.next()?.parse().ok()?);
        let gate = Gate::parse(parts.next()?)?;
        Some(Self { gate, task, owner, stamp: Stamp { writer, serial } })
    }
}

impl Rate {
    /// Time that the bucket takes for one token, in ns.
    fn interval(self) -> u64 {
        let per = u64::try_from(self.per.as_nanos()).unwrap_or(u64::MAX);
        per.div_ceil(u64::from(self.tokens.max(1))).max(1)
    }

    /// Time that the bucket takes for all tokens but one, in ns: it may lack that much before a
    /// task has to wait.
    fn patience(self) -> u64 {
        self.interval().saturating_mul(u64::from(self.tokens.saturating_sub(1)))
    }
}

impl GateLimits {
    fn of(&self, gate: &Gate) -> Limit {
        let Some(key) = &gate.key else { return self.queue };
        self.keys.get(key).copied().unwrap_or(self.per_key)
    }
}

impl TicketLine {
    /// Removes a ticket from the line.
    fn remove(&mut self, of: PlaceOf) -> bool {
        let Some(place) = self.places.remove(&of) else { return false };
        self.tickets.remove(&place);
        self.granted = self.granted.saturating_sub(usize::from(place < self.next));
        true
    }

    /// Replaces the earlier ticket of the same task and writer. A writer takes one slot at a time
    /// for a task, so the earlier ticket was given back, whether or not this reader has read that.
    /// Returns false if this ticket is the earlier one.
    fn supersede(&mut self, ticket: &Ticket) -> bool {
        let (task, writer, serial) = ticket.place_of();
        if ticket.gate.kind == GateKind::Pace {
            return true;
        }
        if self.places.range((task, writer, serial)..=(task, writer, u64::MAX)).next().is_some() {
            return false;
        }
        let before = self.places.range((task, writer, 0)..(task, writer, serial));
        for before in before.map(|(of, _)| *of).collect::<Vec<_>>() {
            self.remove(before);
        }
        true
    }

    /// Grants as many tickets as the limit allows.
    fn grant(&mut self, most: Option<u32>) {
        let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        while self.granted < most
            && let Some((place, _)) = self.tickets.range(self.next..).next()
        {
            self.next = place + 1;
            self.granted += 1;
        }
    }

    /// Takes a token from the bucket for a ticket. Returns when it is granted, and when the token
    /// is forgotten.
    fn pace(&mut self, rate: Option<Rate>, at: u64) -> (u64, u64) {
        let Some(rate) = rate else { return (at, at) };
        let from = at.max(self.full_at.saturating_sub(rate.patience()));
        self.full_at = self.full_at.max(at).saturating_add(rate.interval());
        (from, self.full_at)
    }

    /// Changes the rate at this instant: waiting tickets get tokens of the new bucket, which is
    /// empty at first.
    fn pace_anew(&mut self, rate: Option<Rate>, had_one: bool, at: u64) {
        let begins = if had_one { rate.map_or(0, |rate| rate.patience()) } else { 0 };
        self.full_at = at.saturating_add(begins);
        let waiting: Vec<u64> = self
            .tickets
            .iter()
            .filter(|(_, ticket)| ticket.from > at)
            .map(|(place, _)| *place)
            .collect();
        for place in waiting {
            let (from, forgotten) = self.pace(rate, at);
            if let Some(placed) = self.tickets.get_mut(&place) {
                (placed.from, placed.forgotten) = (from, forgotten);
            }
        }
    }
}

impl Gates {
    /// Whether there is any limit.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.limits.queue.is_none() || self.any_of_keys()
    }

    /// Whether there is a limit for the tasks of any key.
    #[must_use]
    pub fn any_of_keys(&self) -> bool {
        !self.limits.per_key.is_none() || self.limits.keys.values().any(|limit| !limit.is_none())
    }

    /// The gates at which a task with this key takes a ticket, in order.
    pub fn on_the_way(&self, key: Option<&str>) -> impl Iterator<Item = Gate> {
        let gates = [GateKind::Slots, GateKind::Pace].into_iter().flat_map(move |kind| {
            let of_key = key.map(|key| Gate { kind, key: Some(key.into()) });
            of_key.into_iter().chain([Gate { kind, key: None }])
        });
        gates.filter(move |gate| self.stands(gate))
    }

    /// The limit of a gate.
    #[must_use]
    pub fn limit(&self, gate: &Gate) -> Limit {
        self.limits.of(gate)
    }

    /// Whether this gate has a limit.
    fn stands(&self, gate: &Gate) -> bool {
        let limit = self.limits.of(gate);
        match gate.kind {
            GateKind::Slots => limit.max_in_flight.is_some(),
            GateKind::Pace => limit.rate.is_some(),
        }
    }

    /// The state of a ticket.
    #[must_use]
    pub fn standing(&self, ticket: &Ticket) -> TicketGrant {
        let line = self.lines.get(&ticket.gate);
        let place = line.and_then(|line| line.places.get(&ticket.place_of()));
        let (Some(line), Some(place)) = (line, place) else { return TicketGrant::Unknown };
        match ticket.gate.kind {
            GateKind::Slots if *place >= line.next => TicketGrant::Waits,
            GateKind::Slots => TicketGrant::From(0),
            GateKind::Pace => {
                let from = line.tickets.get(place).map(|ticket| ticket.from.div_ceil(NANOS_PER_MS));
                from.map_or(TicketGrant::Unknown, TicketGrant::From)
            }
        }
    }

    /// When a ticket published now at a gate of pace, behind `behind` others, would be granted, in
    /// ms since the epoch.
    #[must_use]
    pub fn opens_at(&self, gate: &Gate, behind: usize, now_ms: u64) -> u64 {
        let Some(rate) = self.limits.of(gate).rate else { return now_ms };
        let behind = u64::try_from(behind).unwrap_or(u64::MAX);
        let full_at = self.lines.get(gate).map_or(0, |line| line.full_at).max(nanos(now_ms));
        let full_at = full_at.saturating_add(rate.interval().saturating_mul(behind));
        full_at.saturating_sub(rate.patience()).div_ceil(NANOS_PER_MS).max(now_ms)
    }

    /// When a ticket stops being needed, in ms since the epoch; `None` if its attempt may still go
    /// on.
    #[must_use]
    pub fn forgotten_at(&self, ticket: &Ticket) -> Option<u64> {
        let line = self.lines.get(&ticket.gate).filter(|_| ticket.gate.kind == GateKind::Pace)?;
        let place = line.places.get(&ticket.place_of())?;
        line.tickets.get(place).map(|ticket| ticket.forgotten.div_ceil(NANOS_PER_MS))
    }

    /// All current tickets, each with the name of its task topic.
    pub fn standing_tickets(&self) -> impl Iterator<Item = (&Ticket, &str)> {
        let lines = self.lines.values();
        lines.flat_map(|line| line.tickets.values()).map(|ticket| (&ticket.ticket, &*ticket.topic))
    }

    /// Whether there are no tickets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.values().all(|line| line.tickets.is_empty())
    }

    /// Number of granted and of waiting tickets at a gate.
    #[must_use]
    pub fn counts(&self, gate: &Gate) -> (usize, usize) {
        let Some(line) = self.lines.get(gate) else { return (0, 0) };
        (line.granted, line.tickets.len() - line.granted)
    }

    /// Number of tickets that wait before this one at a gate of slots.
    #[must_use]
    pub fn waiting_before(&self, ticket: &Ticket) -> usize {
        let Some(line) = self.lines.get(&ticket.gate) else { return 0 };
        let place = line.places.get(&ticket.place_of()).copied().unwrap_or(u64::MAX);
        line.tickets.range(line.next..).take_while(|(at, _)| **at < place).count()
    }

    /// Handles a ticket published at this time (ms since the epoch), the next entry of the log.
    pub(super) fn take(&mut self, ticket: &Ticket, topic: &str, published_ms: u64) -> bool {
        let limit = self.limits.of(&ticket.gate);
        let line = self.lines.entry(ticket.gate.clone()).or_default();
        if line.places.contains_key(&ticket.place_of()) || !line.supersede(ticket) {
            return false;
        }
        let place = self.read;
        self.read += 1;
        let (from, forgotten) = match ticket.gate.kind {
            GateKind::Slots => (0, 0),
            GateKind::Pace => line.pace(limit.rate, nanos(published_ms)),
        };
        let (ticket, topic) = (ticket.clone(), topic.into());
        line.places.insert(ticket.place_of(), place);
        let kind = ticket.gate.kind;
        line.tickets.insert(place, PlacedTicket { ticket, topic, from, forgotten });
        if kind == GateKind::Slots {
            line.grant(limit.max_in_flight);
        }
        true
    }

    /// Handles a ticket given back at this time (ms since the epoch).
    pub(super) fn give_back(&mut self, ticket: &Ticket, published_ms: u64) -> bool {
        let most = self.limits.of(&ticket.gate).max_in_flight;
        let Some(line) = self.lines.get_mut(&ticket.gate) else { return false };
        if !line.remove(ticket.place_of()) {
            return false;
        }
        if ticket.gate.kind == GateKind::Slots {
            line.grant(most);
        }
        // The lack of a bucket is not forgotten before its time, even if tickets are given back too
        // early.
        if line.tickets.is_empty() && line.full_at <= nanos(published_ms) {
            self.lines.remove(&ticket.gate);
        }
        true
    }

    /// Applies other settings as of this time (ms since the epoch).
    pub(super) fn set(&mut self, settings: &QueueSettings, published_ms: u64) {
        let keys = settings.keys.iter().map(|(key, limit)| (key.as_str().into(), *limit));
        let (queue, per_key) = (settings.limit, settings.per_key);
        let limits = GateLimits { queue, per_key, keys: keys.collect() };
        let before = std::mem::replace(&mut self.limits, limits);
        for (gate, line) in &mut self.lines {
            let (old, new) = (before.of(gate), self.limits.of(gate));
            match gate.kind {
                GateKind::Slots => line.grant(new.max_in_flight),
                GateKind::Pace if old.rate != new.rate => {
                    line.pace_anew(new.rate, old.rate.is_some(), nanos(published_ms));
                }
                GateKind::Pace => {}
            }
        }
        let now = nanos(published_ms);
        self.lines.retain(|_, line| !line.tickets.is_empty() || line.full_at > now);
    }

    /// Handles the end of the log as of this time (ms since the epoch). Entries removed before are
    /// unknown: the bucket lacks at most as many tokens as there are current tickets, because the
    /// others are forgotten.
    pub fn read_to_end(&mut self, now_ms: u64) {
        for (gate, line) in &mut self.lines {
            let Some(rate) = self.limits.of(gate).rate else { continue };
            if gate.kind == GateKind::Pace && !line.tickets.is_empty() {
                let standing = u64::try_from(line.tickets.len()).unwrap_or(u64::MAX);
                let lacks = rate.interval().saturating_mul(standing);
                line.full_at = line.full_at.max(nanos(now_ms).saturating_add(lacks));
            }
        }
    }
}

#[cfg(test)]
mod tests;
