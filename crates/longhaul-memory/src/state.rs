//! The state of the broker, behind one lock that is never held across an await.
//!
//! Each effect is performed by the function of the same name in the file of its role: `publish`,
//! `consume`, `follow`, `lifecycle`, `chaos`.

use super::agenda::{
    ConnectionId, Down, EffectAgenda, PartitionId, PlannedEffect, SessionAttachment, SessionId, Up,
};
use super::faults::{DurationRange, Faults, PublishFate};
use super::history::{Happening, SimulationHistory};
use super::log::PartitionLog;
use super::session::{MemoryConnection, MemorySession};
use super::subscription::MemorySubscription;
use longhaul_transport::{
    EntryId, TopicPartition, TransportError, TransportErrorKind, clock::Clock, moment::Moment,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The first ledger id; ledgers are numbered for all partitions together, as in Pulsar.
const FIRST_LEDGER: u64 = 10;

#[derive(Debug)]
pub(super) struct MemoryBrokerState {
    pub(super) clock: Clock,
    pub(super) rng: fastrand::Rng,
    pub(super) faults: Faults,
    /// Numbers the fault plans, so that faults planned by an earlier one do not happen.
    pub(super) plan: u32,
    pub(super) history: SimulationHistory,
    /// Whether events are still added to the history.
    pub(super) keeps_history: bool,
    pub(super) agenda: EffectAgenda,
    /// The time until which the pump sleeps; `None` if nothing is planned.
    asleep_until: Option<Moment>,
    pub(super) signals: Arc<PumpSignals>,
    pub(super) topics: BTreeMap<String, MemoryTopic>,
    pub(super) partitions: BTreeMap<PartitionId, MemoryPartition>,
    pub(super) connections: BTreeMap<ConnectionId, MemoryConnection>,
    pub(super) sessions: BTreeMap<SessionId, MemorySession>,
    pub(super) outage: BrokerOutage,
    /// Numbers the outages.
    pub(super) outages: u32,
    /// Effects that wait until the broker moves again.
    pub(super) hung: Vec<PlannedEffect>,
    /// Set if missing topics are created on demand; the function decides by the name whether
    /// duplicates are dropped there.
    pub(super) missing_topics: Option<fn(&str) -> bool>,
    next_ledger: u64,
    next_id: u64,
}

#[derive(Debug, Default)]
pub(super) struct PumpSignals {
    /// Wakes the pump.
    pub(super) wake: Notify,
    /// Notifies that the broker or a connection may be reachable again.
    pub(super) changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrokerOutage {
    None,
    /// The broker is down.
    Refuses,
    /// The broker hangs.
    Hangs,
}

#[derive(Debug)]
pub(super) struct MemoryTopic {
    pub(super) partitions: Option<u32>,
    pub(super) deduplication: bool,
}

#[derive(Debug)]
pub(super) struct MemoryPartition {
    pub(super) name: Arc<str>,
    pub(super) at: TopicPartition,
    pub(super) deleted: bool,
    pub(super) log: PartitionLog,
    pub(super) subscriptions: BTreeMap<Arc<str>, MemorySubscription>,
    pub(super) followers: BTreeSet<SessionId>,
    /// The highest sequence of each publisher session.
    pub(super) sequences: BTreeMap<SessionId, u64>,
    /// Entries whose delivery ends the session, because no client can decode them.
    pub(super) undecodable: BTreeSet<EntryId>,
    pub(super) unavailable_until: Moment,
    pub(super) stalled_until: Moment,
    /// The time until which followers are sent nothing.
    pub(super) silent_until: Moment,
    /// Whether opening is forbidden.
    pub(super) forbidden: bool,
    /// Fates that a test has set for the next entries, requests and acks.
    pub(super) next_fates: VecDeque<PublishFate>,
    pub(super) next_errors: u32,
    pub(super) next_lost_acks: u32,
}

impl MemoryBrokerState {
    pub(super) fn new(clock: Clock, seed: u64) -> Self {
        Self {
            clock,
            rng: fastrand::Rng::with_seed(seed),
            faults: Faults::quiet(),
            plan: 0,
            history: SimulationHistory::default(),
            keeps_history: true,
            agenda: EffectAgenda::default(),
            asleep_until: None,
            signals: Arc::default(),
            topics: BTreeMap::new(),
            partitions: BTreeMap::new(),
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            outage: BrokerOutage::None,
            outages: 0,
            hung: Vec::new(),
            missing_topics: None,
            next_ledger: FIRST_LEDGER,
            next_id: 0,
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn ledger(&mut self) -> u64 {
        self.next_ledger += 1;
        self.next_ledger
    }

    pub(super) fn happened(&mut self, what: Happening) {
        if self.keeps_history {
            self.history.push(self.clock.now(), what);
        }
    }

    pub(super) fn note(&mut self, text: String) {
        self.happened(Happening::Note(text));
    }

    pub(super) fn after(&mut self, delay: Duration, effect: PlannedEffect) {
        self.at(self.now() + delay, effect);
    }

    pub(super) fn at(&mut self, at: Moment, effect: PlannedEffect) {
        self.agenda.put(at, effect);
        if self.asleep_until.is_none_or(|until| at < until) {
            self.signals.wake.notify_one();
        }
    }

    /// Performs everything that is due. Returns the time of the next effect.
    pub(super) fn run_due(&mut self) -> Option<Moment> {
        // This loop sees effects planned from here on, so no wake-up is needed.
        self.asleep_until = Some(Moment::default());
        let now = self.now();
        while let Some(effect) = self.agenda.pop_due(now) {
            self.perform(effect);
        }
        self.asleep_until = self.agenda.first();
        self.asleep_until
    }

    pub(super) fn perform(&mut self, effect: PlannedEffect) {
        let waits = match self.outage {
            BrokerOutage::None => false,
            BrokerOutage::Refuses => effect.is_up(None),
            BrokerOutage::Hangs => effect.waits_for_broker(),
        };
        if waits {
            self.hung.push(effect);
            return;
        }
        match effect {
            PlannedEffect::Up(Up::Land(flight)) => self.land(flight),
            PlannedEffect::Up(Up::Ack(flight)) => self.take_ack(flight),
            PlannedEffect::Up(Up::HandBack { link, entry }) => self.take_back(link, entry),
            PlannedEffect::Down(link, down) => self.come_down(link, down),
            PlannedEffect::Flush(session) => self.flush(session),
            PlannedEffect::GiveUp { session, sequence } => self.give_up(session, sequence),
            PlannedEffect::Fail { link, error } => self.fail_silent(link, error),
            PlannedEffect::Reattach(link) => self.reattach(link),
            PlannedEffect::Closed(session) => self.forget(session),
            PlannedEffect::Redeliver { partition, subscription, entry } => {
                self.redeliver_early(partition, &subscription, entry);
            }
            PlannedEffect::StoreMarkDelete { partition, subscription } => {
                self.store_mark_delete(partition, &subscription);
            }
            PlannedEffect::Compact(partition) => self.compact(partition, None),
            PlannedEffect::Feed(partition) => self.feed_all(partition),
            PlannedEffect::Lose(link) => self.lose_drawn(link),
            PlannedEffect::KeepAlive { connection, freeze } => {
                self.keep_alive_over(connection, freeze)
            }
            PlannedEffect::Resume { connection, freeze } => self.resume_after(connection, freeze),
            PlannedEffect::Restore(connection) => self.restore(connection),
            PlannedEffect::Back { outage } => self.back(outage),
            PlannedEffect::HangNoticed { outage } => self.hang_noticed(outage),
            PlannedEffect::Chaos { kind, plan } => self.chaos(kind, plan),
        }
    }

    /// Passes a message to a client, unless its session has changed or its connection is frozen.
    fn come_down(&mut self, link: SessionAttachment, down: Down) {
        let Some(session) = self.sessions.get(&link.session) else { return };
        if session.link(link.session) != link {
            return;
        }
        let connection = self.connections.get_mut(&session.connection);
        if let Some(connection) = connection.filter(|connection| connection.frozen) {
            connection.held.push(PlannedEffect::Down(link, down));
            return;
        }
        match down {
            Down::Receipt { sequence, answer } => self.answer(link.session, sequence, &answer),
            Down::AckReceipt(receipt) => drop(receipt.send(Ok(()))),
            Down::Arrive(messages) => self.arrive(link, messages),
        }
    }

    /// Sends a message to the broker at this moment, or as soon as the connection thaws.
    pub(super) fn send_up(&mut self, connection: ConnectionId, at: Moment, up: Up) {
        let effect = PlannedEffect::Up(up);
        match self.connections.get_mut(&connection) {
            Some(connection) if connection.frozen => connection.held.push(effect),
            _ => self.at(at, effect),
        }
    }

    /// Sends a message to a client, behind earlier ones.
    pub(super) fn send_down(&mut self, link: SessionAttachment, delay: Duration, down: Down) {
        let at = self.now() + delay;
        let session = self.sessions.get_mut(&link.session);
        let at = session.map_or(at, |session| session.inbound_at(at));
        self.at(at, PlannedEffect::Down(link, down));
    }

    pub(super) fn chance(&mut self, rate: f64) -> bool {
        rate > 0.0 && self.rng.f64() < rate
    }

    pub(super) fn draw(&mut self, span: DurationRange) -> Duration {
        span.draw(&mut self.rng)
    }

    /// Draws an index below `count`; `None` when there is none.
    pub(super) fn pick(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.rng.usize(..count))
    }

    pub(super) fn find(&self, at: &TopicPartition) -> Option<PartitionId> {
        let live = |partition: &&MemoryPartition| !partition.deleted && partition.at == *at;
        let (id, _) = self.partitions.iter().find(|(_, partition)| live(partition))?;
        Some(*id)
    }

    pub(super) fn name(&self, partition: PartitionId) -> Arc<str> {
        self.partitions
            .get(&partition)
            .map_or_else(|| Arc::from(""), |partition| Arc::clone(&partition.name))
    }

    pub(super) fn attached(&self, matches: impl Fn(&MemorySession) -> bool) -> Vec<SessionId> {
        let attached = self.sessions.iter().filter(|(_, session)| session.attached);
        attached.filter(|(_, session)| matches(session)).map(|(id, _)| *id).collect()
    }
}

impl MemoryPartition {
    pub(super) fn new(at: TopicPartition, ledger: u64) -> Self {
        Self {
            name: Arc::from(at.to_string()),
            at,
            deleted: false,
            log: PartitionLog::new(ledger),
            subscriptions: BTreeMap::new(),
            followers: BTreeSet::new(),
            sequences: BTreeMap::new(),
            undecodable: BTreeSet::new(),
            unavailable_until: Moment::default(),
            stalled_until: Moment::default(),
            silent_until: Moment::default(),
            forbidden: false,
            next_fates: VecDeque::new(),
            next_errors: 0,
            next_lost_acks: 0,
        }
    }

    /// Takes one of the planned faults of a test.
    pub(super) const fn take_one(planned: &mut u32) -> bool {
        let any = *planned > 0;
        *planned = planned.saturating_sub(1);
        any
    }
}

/// An error with an address.
pub(super) fn error(kind: TransportErrorKind, at: &str, cause: &str) -> TransportError {
    TransportError { kind, address: format!("memory: {at}"), cause: cause.to_owned() }
}

/// The error for a lost connection.
pub(super) fn lost(at: &str, cause: &str) -> TransportError {
    error(TransportErrorKind::Unreachable, at, cause)
}
