//! A broker, its clients and a failing disk, driven by one seed.

use super::model::{Model, ModelCursor, ModelEntry, ModelTopic, Part};
use super::node::{Pinned, SimulatedBroker};
use crate::log::spoiled::Former;
use crate::log::{LogPosition, SimulatedStorage};
use crate::machine::BrokerMachine;
use crate::machine::dispatcher::DispatchMode;
use crate::machine::effect::{ClientRequest, MachineEffect};
use crate::state::BrokerState;
use crate::state::entries::EntryPosition;
use fastrand::Rng;
use longhaul_wire::messages::{Command, CommandPong};
use longhaul_wire::payload::Payload;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Topics of the clients, which are created on use. Partitions only exist after the admin interface
/// created them.
pub(super) const TOPICS: [&str; 5] = [
    "persistent://public/default/plain",
    "persistent://public/default/tasks-ledger",
    "persistent://public/default/latest",
    "persistent://public/default/parts-partition-0",
    "persistent://public/default/parts-partition-1",
];

/// The wall clock is turned back by less than an hour.
pub(super) const TURN_BACK_MS: u64 = 3_600_000;

pub(super) type ConsumerId = (u64, u64);

/// The log is idle when nothing was logged for this time.
const REST_MS: u64 = 100;

/// State of a simulation.
pub(super) struct SimulatedWorld {
    pub(super) seed: u64,
    pub(super) random: Rng,
    /// Whether most messages are large and short-lived, so that old segments get cleaned.
    pub(super) is_bulky: bool,
    pub(super) storage: SimulatedStorage,
    pub(super) node: SimulatedBroker,
    pub(super) model: Model,
    /// Model and state after each record that may be the last on disk. The first record is
    /// certainly on disk.
    pub(super) history: VecDeque<(LogPosition, Model, BrokerState)>,
    /// Position after the last record that the last start found.
    pub(super) start: LogPosition,
    /// Position where that start continued.
    pub(super) opened: LogPosition,
    /// The wall clock, which may be turned back.
    pub(super) now: u64,
    /// How often the wall clock was turned back.
    pub(super) turned_back: u64,
    /// The latest value of the wall clock since the last start. Everything due by then stays due.
    pub(super) latest: u64,
    /// The monotonic clock.
    up: u64,
    pub(super) conns: BTreeMap<u64, Conn>,
    /// Subscriptions with consumers, by topic and name.
    pub(super) runs: BTreeMap<(u32, String), SimulatedSubscription>,
    /// Readers that lost their consumer by SEEK, with their connection.
    pub(super) orphans: BTreeMap<(u32, String), (u64, ModelCursor)>,
    /// Admin calls, with the position that must be on disk before the answer.
    pub(super) calls: BTreeMap<u64, LogPosition>,
    /// Whether operators' calls are in progress: work that begins now was requested by them.
    pub(super) is_asked: bool,
    /// Topics whose compaction waits because an operator requested it.
    pub(super) asked: BTreeSet<u32>,
    /// Topics whose last compaction failed: the next automatic one comes no earlier than this, by
    /// the monotonic clock, with growing pauses.
    pub(super) backoffs: BTreeMap<u32, CompactionBackoff>,
    /// The last id that each producer name has tried.
    pub(super) tried: BTreeMap<String, u64>,
    pub(super) next: u64,
    /// A digest of everything that came out, to compare two runs.
    pub(super) trace: u64,
    /// Whether old segments were cleaned: locations then no longer depend on the records alone.
    pub(super) has_cleaned: bool,
    pub(super) delivered: u64,
    pub(super) receipts: u64,
    /// Number of starts that lacked a file and reported it.
    pub(super) missed: u64,
    /// Number of starts with a damaged index of a segment, and the earlier indices.
    pub(super) spoiled: u64,
    pub(super) former: Former,
    /// Number of starts on a log that had lost its confirmed end.
    pub(super) ends_lost: u64,
    /// Number of whole messages in chunks that compactions have kept.
    pub(super) chunked: u64,
    /// Stored messages of some thousand bytes, stored ones of exactly the limit, and refused ones.
    pub(super) sizes: [u64; 3],
    /// Number of compactions that succeeded after the previous one of the topic had failed.
    pub(super) retried: u64,
    /// End of what the last checkpoint covers, the state there, and whether more was recorded
    /// while it was composed.
    pub(super) checkpoint: Option<(LogPosition, Vec<String>, bool)>,
    /// Number of checkpoints that were composed while more was recorded.
    pub(super) overtaken: u64,
}

/// Failed compactions of a topic.
#[derive(Default)]
pub(super) struct CompactionBackoff {
    failures: u32,
    not_before: u64,
}

/// A client's connection.
#[derive(Default)]
pub(super) struct Conn {
    pub(super) producers: BTreeMap<u64, SimulatedProducer>,
    pub(super) consumers: BTreeMap<u64, SimulatedConsumer>,
    pub(super) pending: BTreeMap<u64, PendingReply>,
    /// Deliveries that were not sent yet.
    pub(super) outbox: VecDeque<ExpectedDelivery>,
}

pub(super) struct ExpectedDelivery {
    pub(super) pinned: Pinned,
    pub(super) bytes: u32,
    /// The expected message: as published, or as compaction left it.
    pub(super) expected: Expected,
}

pub(super) enum Expected {
    Whole(bytes::Bytes),
    Bodies(Vec<(Option<u8>, String)>),
}

/// An answer that the broker owes.
pub(super) struct PendingReply {
    pub(super) what: What,
    /// Position that must be on disk before the answer.
    pub(super) needs: LogPosition,
}

pub(super) enum What {
    Connected,
    Producer {
        waits: bool,
    },
    Success,
    Ack,
    Metadata,
    /// The expected id.
    LastId(Option<EntryPosition>),
}

pub(super) struct SimulatedProducer {
    pub(super) topic: u32,
    pub(super) name: String,
    pub(super) is_closed: bool,
    pub(super) sequence: u64,
    pub(super) outstanding: VecDeque<Outstanding>,
    /// The last message that was sent in chunks, and the number of its chunks that were sent.
    pub(super) chunks: (Vec<SimulatedMessage>, usize),
}

/// A message, or a chunk of one, that a producer sends.
#[derive(Clone)]
pub(super) struct SimulatedMessage {
    pub(super) sequence: u64,
    pub(super) payload: Payload,
    pub(super) parts: Vec<Part>,
}

/// A message without receipt.
pub(super) struct Outstanding {
    pub(super) sequence: u64,
    pub(super) outcome: ExpectedOutcome,
    pub(super) needs: LogPosition,
}

#[derive(Debug, PartialEq)]
pub(super) enum ExpectedOutcome {
    Stored(EntryPosition),
    Unstored { is_duplicate: bool },
}

pub(super) struct SimulatedConsumer {
    pub(super) topic: u32,
    pub(super) subscription: String,
    pub(super) reads_compacted: bool,
    pub(super) priority: i32,
    pub(super) name: String,
    pub(super) permits: i64,
    /// For exclusive consumers: the last entry since the subscription was reset.
    pub(super) last: Option<u64>,
    /// Ordinals that were sent to it.
    pub(super) held: Vec<u64>,
    /// The last entry that it was sent of each key, without chunks of unfinished messages.
    pub(super) seen: BTreeMap<u8, u64>,
    /// Whether the broker has detached it; the client may not know yet.
    pub(super) is_detached: bool,
}

/// A subscription with consumers.
pub(super) struct SimulatedSubscription {
    pub(super) kind: DispatchMode,
    /// In order of arrival.
    pub(super) consumers: Vec<ConsumerId>,
    pub(super) pending: BTreeMap<u64, ConsumerId>,
    pub(super) redeliveries: BTreeMap<u64, u32>,
    /// The consumers that got the earlier chunks of messages, by uuid.
    pub(super) owners: BTreeMap<String, ConsumerId>,
    /// Cursor of a reader.
    pub(super) cursor: Option<ModelCursor>,
    /// Horizon of the compacted view when the first entry was delivered.
    pub(super) pinned: Option<u64>,
    /// Whether entries that it had yet to read were removed: by an operator, or on a full disk.
    pub(super) has_lost: bool,
}

impl SimulatedSubscription {
    /// The consumer that must get an entry, as it got the earlier chunks of the message.
    pub(super) fn owner(&self, entry: &ModelEntry) -> Option<ConsumerId> {
        let chunk = entry.chunk.as_ref().filter(|_| self.kind == DispatchMode::Shared)?;
        self.owners.get(&chunk.uuid).filter(|owner| self.consumers.contains(owner)).copied()
    }
}

impl SimulatedWorld {
    pub(super) fn new(seed: u64) -> Self {
        let storage = SimulatedStorage::new(seed);
        let now = 1_700_000_000_000;
        let (node, found) = SimulatedBroker::open(&storage, now, false).unwrap();
        let opened = node.durable;
        let history = VecDeque::from([(opened, Model::default(), found.state)]);
        Self {
            seed,
            random: Rng::with_seed(seed),
            is_bulky: seed.is_multiple_of(4),
            storage,
            node,
            model: Model::default(),
            history,
            start: found.end,
            opened,
            now,
            up: 0,
            turned_back: 0,
            latest: now,
            conns: BTreeMap::new(),
            runs: BTreeMap::new(),
            orphans: BTreeMap::new(),
            calls: BTreeMap::new(),
            is_asked: false,
            asked: BTreeSet::new(),
            backoffs: BTreeMap::new(),
            tried: BTreeMap::new(),
            next: 0,
            trace: 0,
            has_cleaned: false,
            delivered: 0,
            receipts: 0,
            missed: 0,
            spoiled: 0,
            ends_lost: 0,
            chunked: 0,
            sizes: [0; 3],
            retried: 0,
            checkpoint: None,
            overtaken: 0,
            former: Former::new(),
        }
    }

    /// Advances the time.
    pub(super) fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.up += ms;
        self.latest = self.latest.max(self.now);
        // Nothing is logged meanwhile.
        if ms >= REST_MS && !self.node.is_dead {
            self.node.log.rest();
        }
    }

    /// Turns the wall clock back by up to an hour.
    pub(super) fn turn_back(&mut self) {
        self.now -= self.random.u64(0..TURN_BACK_MS);
        self.turned_back += 1;
    }

    /// A compaction has ended.
    pub(super) fn record_compaction(&mut self, topic: u32, is_done: bool) {
        if is_done {
            self.retried += u64::from(self.backoffs.remove(&topic).is_some());
            return;
        }
        let backoff = self.backoffs.entry(topic).or_default();
        backoff.failures += 1;
        backoff.not_before = self.up + 1000 * 2_u64.pow(backoff.failures).min(600);
    }

    /// Checks that a compaction may begin: a failed one was once retried each second, for ever.
    pub(super) fn check_backoff(&mut self, topic: u32) {
        let is_asked = self.asked.remove(&topic) || self.is_asked;
        let not_before = self.backoffs.get(&topic).map_or(0, |backoff| backoff.not_before);
        let (seed, now) = (self.seed, self.up);
        let may_begin = is_asked || now >= not_before;
        assert!(may_begin, "seed {seed}: {topic} is compacted again at {now}, before {not_before}");
    }

    /// A new id.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn tell_time(&mut self) {
        self.node.machine.set_time(self.now, self.up);
    }

    /// Runs the machine, and returns its effects.
    pub(super) fn act(&mut self, act: impl FnOnce(&mut BrokerMachine)) -> Vec<MachineEffect> {
        self.tell_time();
        act(&mut self.node.machine);
        let broken = self.node.machine.broken_invariants();
        assert!(broken.is_empty(), "seed {}: broken invariants: {broken:?}", self.seed);
        self.learn();
        self.follow_checkpoint();
        self.node.machine.take_effects()
    }

    /// Sends a request. Returns the effects, and whether the request was refused at once.
    pub(super) fn ask(
        &mut self,
        conn: u64,
        request_id: u64,
        command: impl Into<Command>,
    ) -> (Vec<MachineEffect>, bool) {
        let command = command.into();
        let mut effects =
            self.act(|machine| machine.request(conn, ClientRequest::Command(command)));
        // Holders of places answer pings at once.
        let pinged = effects.iter().filter_map(|effect| match effect {
            MachineEffect::Send(holder, Command::Ping(_)) => Some(*holder),
            _ => None,
        });
        for holder in pinged.collect::<Vec<_>>() {
            let pong = Command::Pong(CommandPong {});
            effects
                .extend(self.act(|machine| machine.request(holder, ClientRequest::Command(pong))));
        }
        let is_refused = effects.iter().any(|effect| {
            matches!(effect, MachineEffect::Send(to, Command::Error(error))
                if *to == conn && error.request_id == request_id)
        });
        (effects, is_refused)
    }

    /// Notes an owed answer, and checks the effects.
    pub(super) fn owe(
        &mut self,
        conn: u64,
        request_id: u64,
        what: What,
        effects: Vec<MachineEffect>,
    ) {
        let needs = self.node.machine.recorded();
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.pending.insert(request_id, PendingReply { what, needs });
        }
        self.finish(effects);
    }

    /// Notes the state that the log must lead to, and checks the effects.
    pub(super) fn finish(&mut self, effects: Vec<MachineEffect>) {
        let end = self.node.machine.recorded();
        let last = self.history.back().unwrap();
        if last.0 == end {
            for (id, topic) in &self.model.topics {
                let same = last.1.topics.get(id).is_some_and(|recorded| {
                    Arc::ptr_eq(recorded, topic)
                        || (recorded.entries.len(), &recorded.cursors)
                            == (topic.entries.len(), &topic.cursors)
                });
                assert!(same, "seed {}: {} changed without a record", self.seed, topic.name);
            }
        } else {
            let state = self.node.machine.state().clone();
            self.history.push_back((end, self.model.clone(), state));
        }
        effects.into_iter().for_each(|effect| self.observe(effect));
    }

    /// Notes topics that were created on use, and trims.
    fn learn(&mut self) {
        let state = self.node.machine.state();
        for (id, topic) in state.topics() {
            let name = topic.name.as_str();
            let deduplicates = name.ends_with("-ledger");
            self.model.topics.entry(id).or_insert_with(|| {
                Arc::new(ModelTopic {
                    name: name.to_owned(),
                    deduplicates,
                    ..ModelTopic::default()
                })
            });
        }
    }

    /// Notes removed entries, which must not be needed.
    pub(super) fn follow_cleaning(&mut self) {
        let ids: Vec<u32> = self.model.topics.keys().copied().collect();
        for id in ids {
            let Some(kept) = self.node.machine.state().topic(id) else { continue };
            let gone: BTreeSet<u64> = kept.entries.gone().collect();
            let topic = &self.model.topics[&id];
            if gone == topic.gone {
                continue;
            }
            for &ordinal in gone.difference(&topic.gone) {
                let mut cursors = topic.cursors.values();
                let is_dead = cursors.len() > 0 && cursors.all(|cursor| cursor.is_acked(ordinal));
                assert!(is_dead, "seed {}: {} lost {ordinal}", self.seed, topic.name);
            }
            self.has_cleaned = true;
            self.model.topic(id).gone = gone;
        }
    }

    /// Applies the broker's trims to the model; trimmed entries must not be needed.
    pub(super) fn follow_trims(&mut self, is_truncated: bool) {
        let ids: Vec<u32> = self.model.topics.keys().copied().collect();
        for id in ids {
            let Some(kept) = self.node.machine.state().topic(id) else { continue };
            let (first, topic) = (kept.entries.first(), &self.model.topics[&id]);
            if first == topic.first {
                continue;
            }
            let horizon = topic.view.as_ref().map(|view| view.horizon);
            for ordinal in topic.first..first {
                // A subscription that was created later has not acknowledged removed entries.
                let is_acked = topic.gone.contains(&ordinal)
                    || topic.cursors.values().all(|cursor| cursor.is_acked(ordinal));
                let is_needed = match horizon {
                    Some(horizon) => ordinal >= horizon,
                    None => topic.cursors.is_empty() || topic.compacts,
                };
                let seed = self.seed;
                assert!(
                    is_acked && (is_truncated || !is_needed),
                    "seed {seed}: {} lost {ordinal}",
                    topic.name
                );
            }
            self.follow_losses(id, first, is_truncated);
            let topic = self.model.topic(id);
            topic.lost.extend(topic.first.max(topic.horizon())..first);
            topic.first = first;
        }
    }

    /// Checks that a trim removes nothing that a reader of the compacted view has yet to read,
    /// unless the disk is full or an operator truncates the topic.
    fn follow_losses(&mut self, id: u32, first: u64, is_truncated: bool) {
        let is_allowed = is_truncated || self.node.machine.is_disk_full();
        let horizon = self.model.topics[&id].horizon();
        let seed = self.seed;
        let keys: Vec<_> = self.runs.keys().filter(|key| key.0 == id).cloned().collect();
        for key in keys {
            let (run, cursor) = (&self.runs[&key], self.cursor(id, &key.1).unwrap());
            let readers =
                run.consumers.iter().map(|reader| &self.conns[&reader.0].consumers[&reader.1]);
            let next = readers.filter(|reader| reader.reads_compacted);
            let next = next.map(|reader| reader.last.map_or(0, |last| last + 1)).max();
            let Some(from) = next.zip(run.pinned).map(|(next, pinned)| next.max(pinned)) else {
                continue;
            };
            let trimmed = from.max(self.model.topics[&id].first)..first.min(horizon);
            if trimmed.into_iter().any(|ordinal| !cursor.is_acked(ordinal)) {
                assert!(is_allowed, "seed {seed}: {} has yet to read what was trimmed", key.1);
                self.runs.get_mut(&key).unwrap().has_lost = true;
            }
        }
    }

    /// The part of a topic that is on disk and may be delivered.
    pub(super) fn readable(&self, topic: u32) -> u64 {
        let durable = &self.history.front().unwrap().1;
        durable.topics.get(&topic).map_or(0, |known| known.end())
    }

    /// Drops the history before the last record on disk.
    pub(super) fn forget_history(&mut self) {
        while self.history.get(1).is_some_and(|(end, ..)| *end <= self.node.durable) {
            self.history.pop_front();
        }
    }

    pub(super) fn cursor(&self, topic: u32, subscription: &str) -> Option<&ModelCursor> {
        let run = self.runs.get(&(topic, subscription.to_owned()));
        if let Some(cursor) = run.and_then(|run| run.cursor.as_ref()) {
            return Some(cursor);
        }
        self.model.topics.get(&topic)?.cursors.get(subscription)
    }

    /// The horizon up to which a consumer reads the compacted view; `None` if it reads the log.
    pub(super) fn horizon(&self, consumer: &SimulatedConsumer) -> Option<u64> {
        let topic = self.model.topics.get(&consumer.topic).filter(|_| consumer.reads_compacted)?;
        let run = self.runs.get(&(consumer.topic, consumer.subscription.clone()));
        let cursor = self.cursor(consumer.topic, &consumer.subscription);
        let is_behind = cursor.is_some_and(|cursor| cursor.floor < topic.horizon());
        let pinned = run.and_then(|run| run.pinned).filter(|_| is_behind);
        Some(pinned.map_or(u64::MAX, |pinned| pinned.max(topic.first)).min(topic.horizon()))
    }

    /// The active consumer of an exclusive or failover subscription.
    pub(super) fn active(&self, run: &SimulatedSubscription) -> Option<ConsumerId> {
        let consumer = |id: &ConsumerId| &self.conns[&id.0].consumers[&id.1];
        let lowest = run.consumers.iter().map(|id| consumer(id).priority).min()?;
        let mut first = run.consumers.clone();
        first.retain(|id| consumer(id).priority == lowest);
        first.sort_by_key(|id| &consumer(id).name);
        // Partitions have them in turn.
        let topic = self.model.topics.get(&consumer(first.first()?).topic);
        let number = topic.and_then(|topic| topic.name.rsplit_once("-partition-")?.1.parse().ok());
        let partition: usize = number.unwrap_or_default();
        first.get(partition % first.len()).copied()
    }

    /// Notes that the broker has detached a consumer.
    pub(super) fn detach(&mut self, id: ConsumerId) -> Option<(u32, String)> {
        let consumer = self.conns.get_mut(&id.0)?.consumers.get_mut(&id.1)?;
        if std::mem::replace(&mut consumer.is_detached, true) {
            return None;
        }
        let key = (consumer.topic, consumer.subscription.clone());
        let former = self.runs.get(&key).and_then(|run| self.active(run));
        let run = self.runs.get_mut(&key)?;
        run.consumers.retain(|other| *other != id);
        run.pending.retain(|_, holder| *holder != id);
        if run.consumers.is_empty() {
            let run = self.runs.remove(&key)?;
            if let Some(cursor) = run.cursor {
                self.orphans.insert(key.clone(), (id.0, cursor));
            }
        } else if former == Some(id) {
            self.rewind(&key);
        }
        Some(key)
    }

    /// Notes that the broker has detached all consumers of a subscription.
    pub(super) fn detach_all(&mut self, topic: u32, subscription: &str) {
        let run = self.runs.get(&(topic, subscription.to_owned()));
        let consumers = run.map(|run| run.consumers.clone()).unwrap_or_default();
        for id in consumers {
            self.detach(id);
        }
    }

    /// The active consumer gets everything again that is not acknowledged.
    pub(super) fn rewind(&mut self, key: &(u32, String)) {
        let active = self.runs.get(key).and_then(|run| self.active(run));
        let Some((conn, id)) = active else { return };
        if let Some(consumer) =
            self.conns.get_mut(&conn).and_then(|connection| connection.consumers.get_mut(&id))
        {
            consumer.last = None;
        }
    }
}
