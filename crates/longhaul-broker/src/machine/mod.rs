//! The broker as one pure state machine: requests, commits and the time go in, [`MachineEffect`]s come
//! out.
//!
//! One machine serves all connections and topics, on one thread. The work per topic is small and
//! the log is a single sequence anyway. Code and simulations have to consider only one order of
//! events.
//!
//! The parts, in order: each uses only those above it, which a test checks. This file has their
//! common parts, and passes work that waited for the disk back to its origin.
//!
//! - [`effect`], [`invariants`], [`patience`], [`backoff`], [`dues`], [`recent`], [`figures`],
//!   [`withheld`], [`view`]: values.
//! - [`dispatcher`]: assigns entries to consumers. [`sharing`]: how consumers share a subscription.
//!   [`delivering`]: deliveries.
//! - [`permissions`]: permissions of roles. [`session`]: what is open on a connection, and its
//!   answers. [`windows`]: how connections share the room for deliveries.
//! - [`terminating`]: terminated topics. [`acking`]: acknowledgements. [`space`]: whether the disk
//!   has room. [`limits`]: how much there may be. [`topics`]: creation of topics, partitions,
//!   policies. [`schemas`]: schemas.
//! - [`room`]: whether another entry is accepted. [`probing`]: whether the holder of an exclusive
//!   place is alive.
//! - [`consuming`], [`producing`], [`publishing`]: the two sides of a topic.
//! - [`ending`]: the end of connections. [`logins`]: expiry of tokens. [`removing`]: termination
//!   and deletion of topics.
//! - [`stats`], [`measuring`], [`last_id`], [`listing`]: queries of clients, and metrics.
//!   [`unreadable`]: unreadable entries.
//! - [`commands`]: client commands and their dispatch.
//! - [`cleaning`]: old segments of the log. [`keeping`]: periodic work: trimming, expiry,
//!   compaction, checkpoints. [`inactive`]: deletion of what nobody uses. [`rounds`]: when it is
//!   done.
//! - [`admin`]: calls of the HTTP interface.
//!
//! Invariants:
//! - No output depends on a record that is not on disk, except reads of the admin interface.
//!   Answers wait in `waiting` for the commit of their record's group, in order. Consumers see
//!   entries only up to `Live::readable`.
//! - Answers to the messages of one producer are sent in the order of the messages.
//! - The pending data of a connection is limited: deliveries by its window, everything else by the
//!   driver, which stops reading.

mod acking;
mod admin;
mod backoff;
mod cleaning;
mod commands;
mod consuming;
mod delivering;
pub mod dispatcher;
mod dues;
pub mod effect;
mod ending;
mod figures;
mod inactive;
pub mod invariants;
mod keeping;
mod last_id;
mod limits;
mod listing;
mod logins;
mod measuring;
mod patience;
mod permissions;
mod probing;
mod producing;
mod publishing;
mod recent;
mod removing;
mod room;
mod rounds;
mod schemas;
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
mod windows;
pub mod withheld;

pub(crate) use recent::COPIED_BYTES_MAX;
pub(crate) use schemas::kind_by_name;
pub(crate) use topics::PARTITIONS_MAX;

use crate::auth::{AuthRefusals, Authenticator};
use crate::ids::IdMap;
use crate::log::{
    AppendError, CompactedEntry, Composer, LogStatus, RecordGroup, RecordHead, RecordKind,
};
use crate::metrics::Totals;
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

/// Entries that one subscription may process before others have their turn.
const DISPATCH_BUDGET: usize = 4096;

/// Settings of the machine.
#[derive(Clone, Debug)]
pub struct MachineSettings {
    /// Largest message in bytes, without metadata.
    pub message_bytes_max: usize,
    /// Address of the broker for clients: `pulsar://host:port`.
    pub service_url: String,
    /// Address with TLS, if enabled: `pulsar+ssl://host:port`.
    pub service_url_tls: Option<String>,
    /// Maximum number of producers, and of consumers, per connection.
    pub handles_per_connection: usize,
    /// Bytes of entries that are kept in memory for consumers that keep up.
    pub recent_bytes: usize,
    /// Bytes of unsent deliveries per connection.
    pub window_bytes: u64,
    /// Bytes of unsent deliveries of all connections, as far as each has a 64th of its window.
    pub unsent_bytes_max: u64,
    /// Limit of the log's size on disk in bytes; publishes above it are refused.
    pub disk_bytes_max: Option<u64>,
    /// Defaults of topics by name, where no policy applies.
    pub topic_defaults: Vec<crate::defaults::TopicDefaults>,
    /// Bytes of the log between two checkpoints.
    pub checkpoint_bytes: u64,
    /// Bytes of a checkpoint's topics that are composed at once, while clients wait.
    pub piece_bytes: usize,
}

/// A topic in a running broker.
#[derive(Debug, Default)]
struct Live {
    /// The first ordinal that is not on disk yet.
    readable: u64,
    producers: Producers,
    /// In boxes: a node of the map has room for eleven, and most topics have one.
    dispatchers: BTreeMap<u32, Box<Dispatcher>>,
    /// Subscriptions of readers that lost their consumers by SEEK, with the connection that will
    /// reattach.
    orphans: BTreeMap<u32, u64>,
    figures: TopicCounters,
    compaction: keeping::TopicCompaction,
    inactivity: inactive::Inactivity,
    /// Where the search for forgettable entries continues.
    forgotten_to: u64,
    /// The last entry that had no room on the disk.
    refused: Option<room::RefusedEntry>,
    /// Unreadable entries.
    withheld: withheld::Withheld,
    /// The effective policies of topic, namespace and broker; updated when one of them changes.
    policies: Arc<crate::policies::Policies>,
    /// Partition index in message ids; -1 for none.
    partition: i32,
}

impl Live {
    /// Whether the broker drops duplicates of its producers.
    fn deduplicates(&self) -> bool {
        self.policies.deduplication.unwrap_or_default()
    }

    /// Whether anybody uses the topic.
    fn is_used(&self) -> bool {
        self.producers.count() > 0
            || !self.dispatchers.is_empty()
            || !self.orphans.is_empty()
            || self.compaction.is_pending
    }
}

/// The broker, without I/O.
#[derive(Debug)]
pub struct BrokerMachine {
    settings: MachineSettings,
    auth: Option<Arc<Authenticator>>,
    /// Logged refusals of logins and requests.
    refused: AuthRefusals,
    state: BrokerState,
    space: space::Space,
    composer: Composer,
    sessions: IdMap<u64, ClientSession>,
    live: IdMap<u32, Live>,
    /// Number of the composed group, and of the last group on disk.
    composing: u64,
    committed: u64,
    /// Number of the log group that is being written, and when it was taken, in ms since the start.
    writing: Option<(u64, u64)>,
    waiting: VecDeque<(u64, PendingCommit)>,
    watchers: listing::Watchers,
    /// Newcomers that wait for the answer of a holder.
    probes: Vec<probing::Probe>,
    /// Newcomers of subscriptions, and when they are told whether they are active.
    untold: VecDeque<(u64, ConsumerKey)>,
    /// Requests of newcomers whose wait is over.
    freed: VecDeque<(u64, Command)>,
    /// Topics with new entries for their subscriptions.
    shown: BTreeSet<u32>,
    /// Subscriptions whose consumers may get entries.
    dirty: BTreeSet<dues::SubscriptionKey>,
    /// Delayed entries.
    dues: dues::Dues,
    /// Counts the turns in which a subscription was assigned entries.
    turn: u64,
    /// Number of processed subscriptions.
    #[cfg(test)]
    visits: u64,
    effects: Vec<MachineEffect>,
    /// Buffer for encoding records.
    scratch: Vec<u8>,
    /// Empty; kept for its memory.
    assigned: Vec<dispatcher::Assignment>,
    recent: Recent,
    /// The compacted views in use, by file name.
    compacted: HashMap<String, Arc<[CompactedEntry]>>,
    compactions: keeping::CompactionQueue,
    keeper: keeping::MaintenanceState,
    /// The last status of the log.
    log: LogStatus,
    cleaner: cleaning::Cleaner,
    /// Logged warnings about unreadable entries.
    said: unreadable::UnreadableWarnings,
    /// When refused acknowledgements may be logged again.
    next_ack_warning: u64,
    invariants: invariants::Invariants,
    totals: Totals,
    next_name: u64,
    /// Wall clock at the current event, in ms since the epoch: for the times in messages, delays
    /// and policies.
    now: u64,
    /// Monotonic clock at the current event, in ms: for periodic work. The wall clock may be set
    /// back.
    up: u64,
    /// The clock for the answers of clients.
    heard: patience::HeardClock,
    /// The monotonic clock with a finer resolution, for the duration of publishes.
    moment: figures::MachineTime,
}

impl BrokerMachine {
    /// Creates a machine that continues from this state and this status of the log.
    #[must_use]
    pub fn new(
        settings: MachineSettings,
        auth: Option<Arc<Authenticator>>,
        mut state: BrokerState,
        (composer, log): (Composer, LogStatus),
        compacted: HashMap<String, Arc<[CompactedEntry]>>,
        now: u64,
    ) -> Self {
        state.close_ledgers();
        let recent = Recent::new(settings.recent_bytes);
        let keeper = keeping::MaintenanceState::default();
        let mut space = space::Space::default();
        space.note_segments(&log);
        let mut machine = Self {
            settings,
            auth,
            refused: AuthRefusals::default(),
            state,
            space,
            composer,
            sessions: IdMap::default(),
            live: IdMap::default(),
            composing: 1,
            committed: 0,
            writing: None,
            waiting: VecDeque::new(),
            watchers: listing::Watchers::default(),
            probes: Vec::new(),
            untold: VecDeque::new(),
            freed: VecDeque::new(),
            shown: BTreeSet::new(),
            dirty: BTreeSet::new(),
            dues: dues::Dues::default(),
            turn: 0,
            #[cfg(test)]
            visits: 0,
            effects: Vec::new(),
            scratch: Vec::new(),
            assigned: Vec::new(),
            recent,
            compacted,
            compactions: keeping::CompactionQueue::default(),
            keeper,
            log,
            cleaner: cleaning::Cleaner::default(),
            said: unreadable::UnreadableWarnings::default(),
            next_ack_warning: 0,
            invariants: invariants::Invariants::default(),
            totals: Totals::default(),
            // Names of producers differ from those of earlier runs.
            next_name: now.wrapping_mul(1000),
            now,
            up: 0,
            heard: patience::HeardClock::default(),
            moment: figures::MachineTime::default(),
        };
        let topics: Vec<u32> = machine.state.topics().map(|(id, _)| id).collect();
        topics.into_iter().for_each(|id| machine.enliven(id));
        machine
    }

    /// Tells the time: the wall clock, in ms since the epoch, and a clock in ms that never goes
    /// back.
    pub fn set_time(&mut self, now: u64, up: u64) {
        self.heard.pass(up.saturating_sub(self.up));
        (self.now, self.up) = (now, up);
    }

    /// Tells whether requests of clients are taken from now on. Other times do not count for the
    /// wait for their answers.
    pub const fn set_listening(&mut self, is_listening: bool) {
        self.heard.set_stopped(!is_listening);
    }

    /// Tells the finer time, in µs of a clock that never goes back: now, and when the requests that
    /// come next were received.
    pub const fn set_moment(&mut self, now: u64, received: u64) {
        self.moment = figures::MachineTime { now, received };
    }

    /// Notes how long the requests that come next have waited for the machine.
    pub fn note_wait(&mut self) {
        self.totals.request_waits.note(self.moment.since(self.moment.received));
    }

    /// The actions since the last call.
    pub fn take_effects(&mut self) -> Vec<MachineEffect> {
        let mut effects = Vec::new();
        self.swap_effects(&mut effects);
        effects
    }

    /// Like [`take_effects`](Self::take_effects), but swaps with an empty list, whose memory is
    /// reused.
    pub fn swap_effects(&mut self, with: &mut Vec<MachineEffect>) {
        if self.fatal().is_some() {
            self.effects.clear();
        }
        std::mem::swap(&mut self.effects, with);
    }

    /// Everything that was composed since the last group, to be written as one group. At most one
    /// group may be in flight.
    pub fn take_group(&mut self) -> Option<RecordGroup> {
        if self.fatal().is_some() {
            return None;
        }
        let group = self.composer.take()?;
        if let Some((writing, _)) = self.writing.replace((group.number(), self.up)) {
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

    /// Number of answers that wait for the disk.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Notes that the group is on disk.
    #[expect(clippy::wildcard_enum_match_arm, reason = "entries alone need the group")]
    pub fn committed(&mut self, group: &RecordGroup) {
        let writing = self.writing.take().map(|(number, _)| number);
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
                PendingCommit::Published { topic, ordinal, location, conn, receipt } => {
                    match group.body(location) {
                        Some(body) => self.show(topic, ordinal, body),
                        None => self.invariants.fail(Invariant::EntryInGroup, || {
                            format!("no record of group {} lies at {location:?}", group.number())
                        }),
                    }
                    self.send_receipt(conn, receipt);
                }
                other => self.settle(other),
            }
        }
        self.recent.end_group(group.bytes());
    }

    /// Performs work that has waited for the disk.
    fn settle(&mut self, waiting: PendingCommit) {
        match waiting {
            // Its entries were already shown, by their group.
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
            PendingCommit::Copied { survivor, ordinal, location } => {
                self.copied(survivor, ordinal, location)
            }
        }
    }

    /// Performs work as soon as everything recorded so far is on disk, possibly at once.
    fn after_commit(&mut self, waiting: PendingCommit) {
        let number =
            if self.composer.pending_bytes() > 0 { self.composing } else { self.composing - 1 };
        if number <= self.committed {
            self.settle(waiting);
        } else {
            self.waiting.push_back((number, waiting));
        }
    }

    /// Applies a change and records it. A change that does not apply is not recorded, because no
    /// start could read it.
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

    /// Assigns entries to consumers. Call it after all current events were handled. Returns whether
    /// there is more to do. The subscription that has waited longest comes first: in a fixed order,
    /// the first ones would use up the window of a slow connection each time.
    pub fn dispatch(&mut self) -> bool {
        if self.watchers.has_news() {
            self.tell_watchers();
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        for topic in std::mem::take(&mut self.shown) {
            // The topic may have been deleted since.
            let Some(live) = self.live.get(&topic) else { continue };
            dirty.extend(live.dispatchers.keys().map(|&subscription| (topic, subscription)));
        }
        let last_turn = |key: &dues::SubscriptionKey| {
            let live = self.live.get(&key.0);
            live.and_then(|live| live.dispatchers.get(&key.1)).map_or(0, |it| it.last_turn)
        };
        let mut turns: Vec<_> = dirty.into_iter().map(|key| (last_turn(&key), key)).collect();
        turns.sort_unstable();
        for (_, key) in turns {
            if self.dispatch_one(key) {
                self.dirty.insert(key);
            }
        }
        self.has_dirty()
    }

    /// Whether [`BrokerMachine::dispatch`] has something to do.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.shown.is_empty() || self.watchers.has_news()
    }

    /// The state, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const fn state(&self) -> &BrokerState {
        &self.state
    }

    /// The position after everything that was recorded, on disk or not.
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
        Some(self.live.get_mut(&topic)?.dispatchers.get_mut(&subscription)?)
    }

    /// The topic and the subscription of a consumer.
    fn subscription_of(&self, key: ConsumerKey) -> Option<(u32, u32)> {
        let consumer = self.sessions.get(&key.conn)?.consumers.get(&key.id)?;
        Some((consumer.topic, consumer.subscription))
    }
}
