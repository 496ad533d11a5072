//! The broker as one pure state machine: requests, commits and the time go in, [`MachineEffect`]s come
//! out.
//!
//! One machine serves all connections and topics, on one thread. A topic is little work, the log is
//! one sequence anyway, and whoever reads the code, or a simulation that replays it, has one order
//! of events to think about.
//!
//! The parts, in their order: each of them knows and calls only those above it, which a test
//! checks. This file holds what all of them have, and hands what waited for the disk back to where
//! it came from.
//!
//! - [`effect`], [`invariants`], [`dues`], [`recent`], [`figures`], [`withheld`], [`view`]: values.
//! - [`dispatcher`]: who gets which entry. [`sharing`]: how consumers are to share, as they say it.
//!   [`delivering`]: what each is sent.
//! - [`permissions`]: what a role may do. [`session`]: what a connection has open, and what is said
//!   to it.
//! - [`terminating`]: topics that have ended. [`acking`]: what is acknowledged. [`topics`]: topics
//!   that come, partitions, policies, schemas.
//! - [`space`], [`room`]: whether another entry may come. [`probing`]: whether the holder of an
//!   exclusive place still lives.
//! - [`consuming`], [`producing`], [`publishing`]: the two sides of a topic.
//! - [`ending`]: connections that end. [`logins`]: those whose tokens do.
//! - [`stats`], [`last_id`], [`listing`]: what clients ask. [`unreadable`]: entries that the disk
//!   does not give back.
//! - [`commands`]: what clients ask for, and which command goes where.
//! - [`cleaning`]: old segments of the log. [`keeping`]: what happens with time: trimming, expiry,
//!   compaction, checkpoints.
//! - [`removing`]: topics that go. [`admin`]: calls of the HTTP interface.
//!
//! Invariants:
//! - Nothing leaves the machine that rests on a record which is not on disk: answers wait in
//!   `waiting` for the commit of the group that their record is in, in order; entries are shown to
//!   consumers up to `Live::readable` only.
//! - Answers to the messages of one producer leave in the order in which the messages came.
//! - What a connection has under way is limited: deliveries by its window, everything else by the
//!   driver, which stops reading.

mod acking;
mod admin;
mod cleaning;
mod commands;
mod consuming;
mod delivering;
pub mod dispatcher;
mod dues;
pub mod effect;
mod ending;
mod figures;
pub mod invariants;
mod keeping;
mod last_id;
mod listing;
mod logins;
mod permissions;
mod probing;
mod producing;
mod publishing;
mod recent;
mod removing;
mod room;
mod session;
mod sharing;
mod space;
mod stats;
mod terminating;
#[cfg(test)]
mod tests;
mod topics;
pub mod unreadable;
pub mod view;
pub mod withheld;

pub(crate) use topics::PARTITIONS_MAX;

use crate::auth::{AuthRefusals, Authenticator};
use crate::ids::IdMap;
use crate::log::{
    AppendError, CompactedSlot, Composer, LogStatus, RecordGroup, RecordHead, RecordKind,
};
use crate::state::BrokerState;
use crate::state::change::StateChange;
use dispatcher::{ConsumerKey, Dispatcher};
use effect::{MachineEffect, PendingCommit, RequestRefusal};
use figures::TopicCounters;
use invariants::Invariant;
use longhaul_wire::messages::{Command, ServerError};
use producing::Producers;
use recent::Recent;
use session::ClientSession;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Entries that one subscription may look at before others have their turn.
const DISPATCH_BUDGET: usize = 4096;

/// How the machine behaves.
#[derive(Clone, Debug)]
pub struct MachineSettings {
    /// Largest message, without metadata.
    pub message_bytes_max: usize,
    /// `pulsar://host:port`, as clients reach the broker.
    pub service_url: String,
    /// `pulsar+ssl://host:port`, where there is TLS.
    pub service_url_tls: Option<String>,
    /// Producers and consumers of one connection, each.
    pub handles_per_connection: usize,
    /// Bytes of the entries that are kept in memory for consumers that keep up.
    pub recent_bytes: usize,
    /// Bytes of deliveries that a connection may have under way.
    pub window_bytes: u64,
    /// Bytes that the log may take on disk; publishes beyond it are refused.
    pub disk_bytes_max: Option<u64>,
    /// What topics get by their names, where no policy says otherwise.
    pub topic_defaults: Vec<crate::defaults::TopicDefaults>,
    /// Bytes of the log after which a checkpoint is written.
    pub checkpoint_bytes: u64,
}

/// A topic while the broker runs.
#[derive(Debug, Default)]
struct Live {
    /// The first ordinal that is not on disk yet.
    readable: u64,
    producers: Producers,
    dispatchers: BTreeMap<u32, Dispatcher>,
    /// Subscriptions of readers that lost their consumers by SEEK, with the connection that will
    /// come back to them.
    orphans: BTreeMap<u32, u64>,
    figures: TopicCounters,
    compaction: keeping::TopicCompaction,
    /// Where to go on looking for entries that can be forgotten.
    forgotten_to: u64,
    /// The last entry that had no room on the disk.
    refused: Option<room::RefusedEntry>,
    /// What cannot be read.
    withheld: withheld::Withheld,
    /// Topic, namespace and broker together; renewed when one of them changes.
    policies: Arc<crate::admin::policies::Policies>,
    /// In message ids; -1 for none.
    partition: i32,
    /// What its producers send twice is dropped.
    deduplicates: bool,
}

/// The broker, without I/O.
#[derive(Debug)]
pub struct BrokerMachine {
    settings: MachineSettings,
    auth: Option<Arc<Authenticator>>,
    /// What the log was told of clients that were not let in, or may not do what they asked for.
    refused: AuthRefusals,
    state: BrokerState,
    space: space::Space,
    composer: Composer,
    sessions: IdMap<u64, ClientSession>,
    live: IdMap<u32, Live>,
    /// The group that is composed, and the last one that is on disk.
    composing: u64,
    committed: u64,
    /// The number in the log of the group that is being written.
    writing: Option<u64>,
    waiting: VecDeque<(u64, PendingCommit)>,
    watchers: listing::Watchers,
    /// Newcomers that wait until it is known whether somebody else lives.
    probes: Vec<probing::Probe>,
    /// What newcomers had asked for whose wait is over.
    freed: VecDeque<(u64, Command)>,
    /// Topics with new entries, which all their subscriptions may get.
    shown: BTreeSet<u32>,
    /// Topics and subscriptions whose consumers may get something.
    dirty: BTreeSet<dues::SubscriptionKey>,
    /// Delayed entries.
    dues: dues::Dues,
    /// Subscriptions that were looked at.
    #[cfg(test)]
    visits: u64,
    effects: Vec<MachineEffect>,
    /// Records are put together here.
    scratch: Vec<u8>,
    /// Empty, and kept for its memory.
    assigned: Vec<dispatcher::Assignment>,
    recent: Recent,
    /// The compacted views that are in use, by the names of their files.
    compacted: HashMap<String, Arc<[CompactedSlot]>>,
    keeper: keeping::MaintenanceState,
    /// What the log said of itself last.
    log: LogStatus,
    cleaner: cleaning::Cleaner,
    /// What the log was told of entries that cannot be read.
    said: unreadable::UnreadableWarnings,
    invariants: invariants::Invariants,
    totals: figures::Totals,
    next_name: u64,
    /// Wall clock, in ms since the epoch, at the current event: for what messages, delays and
    /// policies say.
    now: u64,
    /// A clock in ms that never goes back, at the current event: for what is done now and then. The
    /// wall clock may be set back.
    up: u64,
    /// The same clock, finer, for how long publishes take.
    moment: figures::MachineTime,
}

impl BrokerMachine {
    /// A broker that goes on from a state, and from a log of which this is known.
    #[must_use]
    pub fn new(
        settings: MachineSettings,
        auth: Option<Arc<Authenticator>>,
        mut state: BrokerState,
        (composer, log): (Composer, LogStatus),
        compacted: HashMap<String, Arc<[CompactedSlot]>>,
        now: u64,
    ) -> Self {
        state.close_ledgers();
        let recent = Recent::new(settings.recent_bytes);
        let keeper = keeping::MaintenanceState::default();
        let mut machine = Self {
            settings,
            auth,
            refused: AuthRefusals::default(),
            state,
            space: space::Space::default(),
            composer,
            sessions: IdMap::default(),
            live: IdMap::default(),
            composing: 1,
            committed: 0,
            writing: None,
            waiting: VecDeque::new(),
            watchers: listing::Watchers::default(),
            probes: Vec::new(),
            freed: VecDeque::new(),
            shown: BTreeSet::new(),
            dirty: BTreeSet::new(),
            dues: dues::Dues::default(),
            #[cfg(test)]
            visits: 0,
            effects: Vec::new(),
            scratch: Vec::new(),
            assigned: Vec::new(),
            recent,
            compacted,
            keeper,
            log,
            cleaner: cleaning::Cleaner::default(),
            said: unreadable::UnreadableWarnings::default(),
            invariants: invariants::Invariants::default(),
            totals: figures::Totals::default(),
            // Names of producers differ from those of earlier runs.
            next_name: now.wrapping_mul(1000),
            now,
            up: 0,
            moment: figures::MachineTime::default(),
        };
        let topics: Vec<u32> = machine.state.topics().map(|(id, _)| id).collect();
        topics.into_iter().for_each(|id| machine.enliven(id));
        machine
    }

    /// Tells the time: the wall clock, in ms since the epoch, and a clock in ms that never goes
    /// back.
    pub fn set_time(&mut self, now: u64, up: u64) {
        (self.now, self.up) = (now, up);
    }

    /// Tells the finer time, in µs of a clock that never goes back: now, and when the requests that
    /// come next were received.
    pub const fn set_moment(&mut self, now: u64, received: u64) {
        self.moment = figures::MachineTime { now, received };
    }

    /// What is to be done since the last call.
    pub fn take_effects(&mut self) -> Vec<MachineEffect> {
        let mut effects = Vec::new();
        self.swap_effects(&mut effects);
        effects
    }

    /// The same, for who gives an empty list back to be filled again.
    pub fn swap_effects(&mut self, with: &mut Vec<MachineEffect>) {
        if self.fatal().is_some() {
            self.effects.clear();
        }
        std::mem::swap(&mut self.effects, with);
    }

    /// What was composed since the last group, to be written as one. At most one group may be under
    /// way.
    pub fn take_group(&mut self) -> Option<RecordGroup> {
        if self.fatal().is_some() {
            return None;
        }
        let group = self.composer.take()?;
        if let Some(writing) = self.writing.replace(group.number()) {
            let found = || format!("group {} is taken while {writing} is written", group.number());
            self.invariants.fail(Invariant::GroupOrder, found);
            return None;
        }
        self.composing += 1;
        Some(group)
    }

    /// Bytes that were composed and not yet taken.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.composer.pending_bytes()
    }

    /// How many answers wait for the disk.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Notes that the group is on disk.
    #[expect(clippy::wildcard_enum_match_arm, reason = "entries alone need the group")]
    pub fn committed(&mut self, group: &RecordGroup) {
        let writing = self.writing.take();
        if writing != Some(group.number()) {
            let found = || format!("group {} is on disk instead of {writing:?}", group.number());
            self.invariants.fail(Invariant::GroupOrder, found);
        }
        if self.fatal().is_some() {
            return;
        }
        self.committed += 1;
        self.totals.committed(group.bytes());
        while self.waiting.front().is_some_and(|(number, _)| *number <= self.committed) {
            let Some((_, waiting)) = self.waiting.pop_front() else { break };
            match waiting {
                PendingCommit::Published { topic, ordinal, place, conn, receipt } => {
                    match group.body(place) {
                        Some(body) => self.show(topic, ordinal, body),
                        None => self.invariants.fail(Invariant::EntryInGroup, || {
                            format!("no record of group {} lies at {place:?}", group.number())
                        }),
                    }
                    self.send_receipt(conn, receipt);
                }
                other => self.settle(other),
            }
        }
        self.recent.end_group(group.bytes());
    }

    /// Does what had to wait.
    fn settle(&mut self, waiting: PendingCommit) {
        match waiting {
            // Entries are shown by the group that they were in.
            PendingCommit::Published { conn, receipt, .. }
            | PendingCommit::Receipt { conn, receipt } => {
                self.send_receipt(conn, receipt);
            }
            PendingCommit::Then(effect) => self.effects.push(*effect),
            PendingCommit::Newcomer { topic, subscription, conn, consumer, has_changed } => {
                let newcomer = ConsumerKey { conn, id: consumer };
                self.subscribed(topic, subscription, newcomer, has_changed);
            }
            PendingCommit::Compacted { former } => self.replaced(former),
            PendingCommit::Copied { survivor, ordinal, place } => {
                self.copied(survivor, ordinal, place)
            }
        }
    }

    /// Does something as soon as everything that was recorded so far is on disk: at once, when it
    /// is.
    fn after_commit(&mut self, waiting: PendingCommit) {
        let number =
            if self.composer.pending_bytes() > 0 { self.composing } else { self.composing - 1 };
        if number <= self.committed {
            self.settle(waiting);
        } else {
            self.waiting.push_back((number, waiting));
        }
    }

    /// Applies a change and records it. A change that does not apply is not recorded: no start
    /// could read it.
    fn change(&mut self, change: impl Into<StateChange>) -> Result<(), RequestRefusal> {
        let refused = |cause: AppendError| {
            RequestRefusal::new(ServerError::PersistenceError, cause.to_string())
        };
        let change = change.into();
        self.scratch.clear();
        change.encode(&mut self.scratch);
        self.composer.size_of(self.scratch.len()).map_err(refused)?;
        let head = RecordHead { kind: RecordKind::Change, topic: 0, ledger: 0, entry: 0 };
        self.check_change(&change)?;
        self.apply(&change)?;
        if let Err(cause) = self.composer.append(head, &[&self.scratch]) {
            let found = || format!("a change is applied and cannot be recorded: {cause}");
            self.invariants.fail(Invariant::Recorded, found);
            return Err(refused(cause));
        }
        self.totals.records += 1;
        Ok(())
    }

    /// Applies a change, and records nothing.
    fn apply(&mut self, change: &StateChange) -> Result<(), RequestRefusal> {
        self.state
            .apply(change)
            .map_err(|cause| RequestRefusal::new(ServerError::UnknownError, cause.to_string()))
    }

    /// Hands entries to consumers. To be called when all events that are there have been handled.
    /// Says whether there is more.
    pub fn dispatch(&mut self) -> bool {
        if self.watchers.has_news() {
            self.tell_watchers();
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        for topic in std::mem::take(&mut self.shown) {
            // It may have been deleted since.
            let Some(live) = self.live.get(&topic) else { continue };
            dirty.extend(live.dispatchers.keys().map(|&subscription| (topic, subscription)));
        }
        for place in dirty {
            if self.dispatch_one(place) {
                self.dirty.insert(place);
            }
        }
        self.has_dirty()
    }

    /// Whether [`BrokerMachine::dispatch`] has something to do.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.shown.is_empty() || self.watchers.has_news()
    }

    /// What the machine knows, for tests that look inside.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const fn state(&self) -> &BrokerState {
        &self.state
    }

    /// The position behind everything that was recorded, on disk or not.
    #[cfg(test)]
    pub(crate) fn recorded(&self) -> crate::log::LogPosition {
        self.composer.end()
    }

    /// The first entry of a topic that is not on disk yet.
    pub(crate) fn readable(&self, topic: u32) -> u64 {
        self.live.get(&topic).map_or(0, |live| live.readable)
    }

    fn session(&mut self, conn: u64) -> Option<&mut ClientSession> {
        self.sessions.get_mut(&conn)
    }

    fn dispatcher(&mut self, topic: u32, subscription: u32) -> Option<&mut Dispatcher> {
        self.live.get_mut(&topic)?.dispatchers.get_mut(&subscription)
    }

    /// The topic and the subscription of a consumer.
    fn place_of(&self, key: ConsumerKey) -> Option<(u32, u32)> {
        let consumer = self.sessions.get(&key.conn)?.consumers.get(&key.id)?;
        Some((consumer.topic, consumer.subscription))
    }
}
