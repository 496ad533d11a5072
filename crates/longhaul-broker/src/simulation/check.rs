//! Checks between the steps, after a crash, and at the end.

use super::model::{Model, ModelCursor, ModelTopic};
use super::node::{RecoveredState, SimulatedBroker, without_checkpoint};
use super::world::{
    ConsumerId, ExpectedOutcome, Outstanding, SimulatedConsumer, SimulatedSubscription,
    SimulatedWorld, TOPICS, TURN_BACK_MS, What,
};
use crate::log::{LogPosition, OpenError, ReplayedItem, Surprise};
use crate::machine::dispatcher::{DispatchMode, KeyPolicy};
use crate::state::entries::EntrySlot;
use crate::state::replay::replay;
use crate::state::{BrokerState, BrokerSubscription};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Whether a subscription's cursor equals the model's.
fn agrees(found: &BrokerSubscription, cursor: &ModelCursor, end: u64) -> bool {
    (0..end).all(|ordinal| {
        let open = found.cursor.open_in_batch(ordinal).map(|indexes| indexes[0]);
        let is_acked = found.cursor.is_acked(ordinal);
        is_acked == cursor.is_acked(ordinal)
            && (is_acked || open == cursor.open.get(&ordinal).copied())
    })
}

/// Checks that the state equals the model.
fn audit(state: &BrokerState, model: &Model, what: &str) {
    let ids: BTreeSet<u32> = state.topics().map(|(id, _)| id).collect();
    assert_eq!(ids, model.topics.keys().copied().collect(), "{what}: topics");
    let mut live: BTreeMap<u32, u64> = BTreeMap::new();
    for (id, kept) in state.topics() {
        let topic = &model.topics[&id];
        let what = format!("{what}: {}", topic.name);
        assert_eq!(
            (kept.entries.first(), kept.entries.end()),
            (topic.first, topic.end()),
            "{what}"
        );
        assert!(kept.entries.gone().eq(topic.gone.iter().copied()), "{what}: what is gone");
        for (ordinal, slot) in kept.entries.iter() {
            let entry = topic.entry(ordinal);
            assert_eq!(kept.entries.position_of(ordinal), Some(entry.id), "{what}: {ordinal}");
            assert_eq!(slot.messages(), entry.messages(), "{what}: {ordinal}");
            assert_eq!(kept.entries.deliver_at(ordinal), entry.deliver_at, "{what}: {ordinal}");
            *live.entry(slot.location.segment).or_default() += u64::from(slot.location.size);
        }
        let bytes: u64 = kept.entries.iter().map(|(_, slot)| u64::from(slot.location.size)).sum();
        assert_eq!(kept.bytes, bytes, "{what}: bytes");
        let names: BTreeSet<&String> =
            kept.durable().map(|subscription| &subscription.name).collect();
        assert_eq!(names, topic.cursors.keys().collect(), "{what}: subscriptions");
        for subscription in kept.durable() {
            let cursor = &topic.cursors[&subscription.name];
            let found = &subscription.cursor;
            assert!(
                agrees(subscription, cursor, topic.end()),
                "{what}: {found:?} is not {cursor:?}"
            );
            assert!(found.mark() <= topic.end(), "{what}: {found:?} is beyond the end");
        }
        for (producer, &highest) in &topic.sequences {
            assert_eq!(kept.highest_sequence(producer), Some(highest), "{what}: {producer}");
        }
        let horizon = kept.compacted.as_ref().map(|view| view.horizon);
        assert_eq!(horizon, topic.view.as_ref().map(|view| view.horizon), "{what}: horizon");
    }
    assert_eq!(state.live(), &live, "{what}: bytes in segments");
}

/// Checks that two states that result from the same records are equal.
pub(super) fn same(left: &BrokerState, right: &BrokerState, has_cleaned: bool, what: &str) {
    let parts = |state: &BrokerState| {
        let mut changes = BTreeSet::from_iter(state.described());
        for (id, topic) in state.topics() {
            let delay = |ordinal| topic.entries.deliver_at(ordinal);
            // Entries that were cleaned on one side may still exist on the other, which only knows
            // the log.
            let is_here = |state: &BrokerState, at: u64| {
                state.topic(id).and_then(|kept| kept.entries.get(at)).is_some()
            };
            let counts = |at: u64| !has_cleaned || (is_here(left, at) && is_here(right, at));
            let entries = topic.entries.iter().filter(|(at, _)| counts(*at));
            let location = |slot: &EntrySlot| (!has_cleaned).then_some(slot.location);
            changes.extend(entries.map(|(at, slot)| {
                let what = (slot.publish_time, slot.key_hash, location(&slot));
                format!("{id} {at} {what:?} {:?}", delay(at))
            }));
        }
        changes
    };
    let (left_parts, right_parts) = (parts(left), parts(right));
    let differ: Vec<_> = left_parts.symmetric_difference(&right_parts).collect();
    assert!(differ.is_empty(), "{what}: {differ:#?}");
    assert!(has_cleaned || left.live() == right.live(), "{what}: bytes in segments");
}

impl SimulatedWorld {
    pub(super) fn audit(&self) {
        let what = format!("seed {}", self.seed);
        audit(self.node.machine.state(), &self.model, &what);
        for (id, topic) in &self.model.topics {
            let readable = self.node.machine.readable(*id);
            assert_eq!(readable, self.readable(*id), "{what}: {} readable", topic.name);
        }
    }

    /// Ends the process or the machine, and starts the broker again.
    pub(super) fn crash(&mut self) {
        if !self.node.is_dead && self.random.bool() {
            self.hostile_calls();
        }
        let has_removed = self.node.has_removed;
        self.conns.clear();
        self.runs.clear();
        self.orphans.clear();
        self.calls.clear();
        self.backoffs.clear();
        self.asked.clear();
        // The former process releases the directory before the next one locks it.
        if self.random.u8(0..3) == 0 && !self.storage.has_lost_power() {
            self.storage.kill()
        } else {
            self.storage.crash()
        }
        self.storage.no_surprises();
        self.storage.set_bytes_max(None);
        if self.random.u8(0..4) == 0 {
            let surprise = if self.random.bool() { Surprise::PowerCut } else { Surprise::Broken };
            self.storage.surprise(self.storage.operations() + self.random.u64(0..8), surprise);
        }
        let mut opened = SimulatedBroker::open(&self.storage, self.now, has_removed);
        // A start may continue without the failed operation, but never without power.
        if matches!(opened, Err(OpenError::Io { .. })) || self.storage.has_lost_power() {
            self.storage.no_surprises();
            self.storage.crash();
            opened = SimulatedBroker::open(&self.storage, self.now, has_removed);
        }
        self.storage.no_surprises();
        let seed = self.seed;
        let (node, found) = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        self.node = node;
        self.latest = self.now;
        self.model = self.recovered(&found);
        self.checkpoint = None;
        (self.start, self.opened) = (found.end, self.node.durable);
        if !has_removed && self.random.u8(0..3) == 0 {
            let mut alone = without_checkpoint(&self.storage);
            alone.close_ledgers();
            let what = format!("seed {seed}: the checkpoint");
            same(&alone, &found.state, self.has_cleaned, &what);
        }
        if self.random.u8(0..4) == 0 {
            self.lose_a_file(&found.state);
        }
        if self.random.bool() {
            self.spoil_an_index(&found.state);
        }
        if self.random.bool() {
            self.lose_the_end();
        }
        self.history = VecDeque::from([(self.node.durable, self.model.clone(), found.state)]);
        self.follow_cleaning();
        let effects = self.act(|_| {});
        self.finish(effects);
        self.audit();
        self.read_everything();
    }

    /// Notes the state that a new checkpoint covers: the broker composes it while that changes.
    pub(super) fn follow_checkpoint(&mut self) {
        let machine = &self.node.machine;
        let (covers, end) = (machine.checkpoint_covers(), machine.recorded());
        match &mut self.checkpoint {
            Some((at, _, is_overtaken)) if covers == Some(*at) => {
                *is_overtaken |= machine.state().has_image() && end > *at;
            }
            _ if covers == Some(end) => {
                self.checkpoint = Some((end, machine.state().described(), false));
            }
            _ => {}
        }
    }

    /// A checkpoint is the state at the position that it names.
    pub(super) fn check_checkpoint(&mut self, position: LogPosition, image: &[Bytes]) {
        let known = self.checkpoint.as_ref().filter(|(at, ..)| *at == position);
        let Some((_, expected, is_overtaken)) = known else { return };
        let mut state = BrokerState::default();
        for piece in image {
            replay(&mut state, ReplayedItem::Checkpoint(piece)).unwrap();
        }
        let seed = self.seed;
        assert_eq!(state.described(), *expected, "seed {seed}: the checkpoint of {position:?}");
        self.overtaken += u64::from(*is_overtaken);
    }

    /// The model after the last record on disk.
    fn recovered(&self, found: &RecoveredState) -> Model {
        let what = format!("seed {}: after the crash", self.seed);
        let first = self.history.front().unwrap();
        let is_first = first.0 == self.opened && found.end == self.start;
        let at = self
            .history
            .iter()
            .position(|(end, ..)| *end == found.end)
            .or_else(|| is_first.then_some(0));
        if let Some((_, model, state)) = at.and_then(|at| self.history.get(at)) {
            same(&found.state, state, self.has_cleaned, &what);
            return model.clone();
        }
        // A request may have led to several records, of which some are on disk.
        assert!(found.end > first.0, "{what}: records that were on disk are lost");
        let after = self.history.iter().position(|(end, ..)| *end > found.end);
        let after = after.unwrap_or_else(|| panic!("{what}: records that nobody wrote"));
        let (lower, upper) = (&self.history[after - 1].1, &self.history[after].1);
        let model = between(&found.state, lower, upper);
        audit(&found.state, &model, &what);
        model
    }

    /// Checks that every existing entry is readable and unchanged.
    fn read_everything(&self) {
        let reader = self.node.log.reader();
        for (id, kept) in self.node.machine.state().topics() {
            for (ordinal, slot) in kept.entries.iter() {
                let mut body = reader.read(slot.location).unwrap();
                crate::state::entry::EntryHead::decode(&mut body).unwrap();
                let entry = self.model.topics[&id].entry(ordinal);
                assert_eq!(body, entry.payload, "seed {}: {ordinal}", self.seed);
            }
        }
    }

    /// Completes all pending work, and checks that no consumer waits for an available entry.
    pub(super) fn pump(&mut self) {
        self.storage.set_bytes_max(None);
        self.storage.set_exhausted(false);
        for _ in 0..1000 {
            let before = (self.node.durable, self.delivered, self.trace);
            self.write();
            self.node.write_checkpoint();
            self.dispatch();
            let conns: Vec<u64> = self.conns.keys().copied().collect();
            let mut is_sent = true;
            for conn in conns {
                is_sent &=
                    self.conns.get(&conn).is_none_or(|connection| connection.outbox.is_empty());
                while self.conns.get(&conn).is_some_and(|connection| !connection.outbox.is_empty())
                {
                    self.send_one(conn);
                }
            }
            if self.node.is_dead {
                return;
            }
            let is_written = is_sent && self.node.durable == self.node.machine.recorded();
            if is_written && before == (self.node.durable, self.delivered, self.trace) {
                self.audit();
                self.check_nobody_waits();
                return;
            }
        }
        panic!("seed {}: no end", self.seed);
    }

    /// Checks that, when all consumers want entries, an entry only waits for another one of its key
    /// that a consumer holds.
    fn check_no_key_waits(
        &self,
        id: u32,
        run: &SimulatedSubscription,
        cursor: &ModelCursor,
        what: &str,
    ) {
        let topic = &self.model.topics[&id];
        let held = |consumer: ConsumerId| {
            let mine = run.pending.iter().filter(move |(_, holder)| **holder == consumer);
            mine.map(|(&ordinal, _)| u64::from(topic.entry(ordinal).messages())).sum::<u64>()
        };
        let limit = topic.unacked_limit;
        let wants = |consumer: &ConsumerId| {
            let permits = self.conns[&consumer.0].consumers[&consumer.1].permits;
            permits > 0 && (limit == 0 || held(*consumer) < limit)
        };
        if !matches!(run.kind, DispatchMode::KeyShared(_)) || !run.consumers.iter().all(wants) {
            return;
        }
        let busy: BTreeSet<u16> =
            run.pending.keys().map(|&ordinal| topic.entry(ordinal).key_hash).collect();
        let left = topic.visible(None, self.readable(id)).into_iter().find(|&ordinal| {
            let entry = topic.entry(ordinal);
            let is_due = entry.deliver_at.is_none_or(|at| at <= self.now);
            is_due && !cursor.is_acked(ordinal) && !busy.contains(&entry.key_hash)
        });
        assert_eq!(left, None, "{what}: waits for nothing");
    }

    /// Checks that a reader of the compacted view that has caught up knows the last message of each
    /// key that it has seen, even if compaction has removed it.
    fn check_nothing_missed(
        &self,
        run: &SimulatedSubscription,
        reader: &SimulatedConsumer,
        cursor: &ModelCursor,
        what: &str,
    ) {
        if !reader.reads_compacted || run.has_lost {
            return;
        }
        let newest = self.model.topics[&reader.topic].newest(self.readable(reader.topic));
        for (key, seen) in &reader.seen {
            let later = newest.get(key).filter(|&later| later > seen && !cursor.is_acked(*later));
            assert_eq!(later, None, "{what}: of key {key} it knows {seen} alone");
        }
    }

    fn check_nobody_waits(&self) {
        let seed = self.seed;
        for (key, run) in &self.runs {
            let topic = &self.model.topics[&key.0];
            let cursor = self.cursor(key.0, &key.1).unwrap();
            let what = format!("seed {seed}: {} of {}", key.1, topic.name);
            self.check_no_key_waits(key.0, run, cursor, &what);
            for &(conn, id) in &run.consumers {
                let consumer = &self.conns[&conn].consumers[&id];
                let open = topic.visible(self.horizon(consumer), self.readable(key.0));
                let mut open = open.into_iter().filter(|&ordinal| !cursor.is_acked(ordinal));
                if consumer.permits <= 0 {
                    continue;
                }
                if run.kind.is_shared() {
                    let mine = run.pending.iter().filter(|(_, holder)| **holder == (conn, id));
                    let held: u64 =
                        mine.map(|(ordinal, _)| u64::from(topic.entry(*ordinal).messages())).sum();
                    let is_due = |ordinal: u64| {
                        topic.entry(ordinal).deliver_at.is_none_or(|at| at <= self.now)
                    };
                    if topic.unacked_limit == 0 || held < topic.unacked_limit {
                        let is_mine = |ordinal: u64| {
                            run.owner(topic.entry(ordinal)).is_none_or(|owner| owner == (conn, id))
                        };
                        let left = open.find(|&ordinal| {
                            !run.pending.contains_key(&ordinal)
                                && is_due(ordinal)
                                && is_mine(ordinal)
                        });
                        let left = left.filter(|_| !matches!(run.kind, DispatchMode::KeyShared(_)));
                        assert_eq!(left, None, "{what}: waits for nothing");
                    }
                } else if self.active(run) == Some((conn, id)) {
                    let left =
                        open.find(|&ordinal| consumer.last.is_none_or(|last| ordinal > last));
                    assert_eq!(left, None, "{what}: waits for nothing");
                    self.check_nothing_missed(run, consumer, cursor, &what);
                }
            }
        }
        for conn in self.conns.values() {
            let owed = |request: &&super::world::PendingReply| {
                !matches!(request.what, What::Producer { waits: true })
            };
            assert_eq!(conn.pending.values().filter(owed).count(), 0, "seed {seed}: no answer");
            // Messages to a producer that the broker has closed get no answer.
            let is_stored = |sent: &Outstanding| matches!(sent.outcome, ExpectedOutcome::Stored(_));
            let owed = conn.producers.values().any(|producer| {
                producer.outstanding.iter().any(is_stored)
                    || (!producer.is_closed && !producer.outstanding.is_empty())
            });
            assert!(!owed, "seed {seed}: no receipt");
        }
        assert!(self.calls.is_empty(), "seed {seed}: a call has no answer");
    }

    /// Checks that in the end all unacknowledged entries reach a consumer.
    pub(super) fn drain(&mut self) {
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        conns.into_iter().for_each(|conn| self.disconnect(conn));
        // Delays were set by a clock that may have been turned back since.
        self.pass(100_000 + self.turned_back * TURN_BACK_MS);
        self.pump();
        // The other topics have no publishes, and no consumers while calls delete them.
        let used =
            self.model.topics.iter().filter(|(_, topic)| TOPICS.contains(&topic.name.as_str()));
        let topics: Vec<(u32, Arc<ModelTopic>)> =
            used.map(|(&id, topic)| (id, Arc::clone(topic))).collect();
        for (id, topic) in topics {
            // A new connection, because the number of consumers per connection is limited.
            let conn = self.connect();
            for (subscription, cursor) in &topic.cursors {
                let kinds = [
                    DispatchMode::Shared,
                    DispatchMode::Exclusive,
                    DispatchMode::KeyShared(KeyPolicy::default()),
                ];
                let kind = *self.random.choice(kinds.iter()).unwrap();
                let open = topic.visible(None, topic.end());
                let open: Vec<u64> =
                    open.into_iter().filter(|&ordinal| !cursor.is_acked(ordinal)).collect();
                self.drain_one(conn, id, &topic.name, subscription, (kind, true, false), &open);
            }
            let all = topic.visible(None, topic.end());
            self.drain_one(
                conn,
                id,
                &topic.name,
                "all",
                (DispatchMode::Exclusive, false, false),
                &all,
            );
            let view = topic.visible(Some(topic.horizon()), topic.end());
            self.drain_one(
                conn,
                id,
                &topic.name,
                "view",
                (DispatchMode::Exclusive, false, true),
                &view,
            );
        }
        self.check_deduplicated();
    }

    fn drain_one(
        &mut self,
        conn: u64,
        id: u32,
        topic: &str,
        subscription: &str,
        (kind, is_durable, reads_compacted): (DispatchMode, bool, bool),
        open: &[u64],
    ) {
        let seed = self.seed;
        let earliest = longhaul_wire::messages::MessageIdData {
            ledger_id: u64::MAX,
            entry_id: u64::MAX,
            ..Default::default()
        };
        let consumer = self.subscribe_as(
            conn,
            topic,
            subscription,
            kind,
            is_durable,
            reads_compacted,
            Some(earliest),
        );
        self.pump();
        // A limit of unacknowledged messages would end this early.
        let has_limit = kind.is_shared() && self.model.topics[&id].unacked_limit > 0;
        self.grant(conn, consumer, 10_000);
        self.pump();
        if self.node.is_dead {
            return;
        }
        let mut held = self.conns[&conn].consumers[&consumer].held.clone();
        held.sort_unstable();
        if !has_limit {
            assert_eq!(held, open, "seed {seed}: {subscription} of {topic}");
        }
    }

    fn check_deduplicated(&self) {
        for topic in self.model.topics.values().filter(|topic| topic.deduplicates) {
            let mut seen = BTreeSet::new();
            for entry in topic.entries.iter().filter(|entry| entry.is_last()) {
                let is_new = seen.insert((&entry.producer, entry.sequence));
                assert!(is_new, "seed {}: {entry:?} twice", self.seed);
            }
        }
    }

    pub(super) fn durable(&self) -> LogPosition {
        self.node.durable
    }
}

/// The model of a state after some of a request's records: each part has its value from before or
/// after the request.
fn between(state: &BrokerState, lower: &Model, upper: &Model) -> Model {
    let mut model = Model::default();
    for (id, kept) in state.topics() {
        let known = [lower.topics.get(&id), upper.topics.get(&id)].into_iter().flatten();
        let known: Vec<&Arc<ModelTopic>> = known.collect();
        let longest = known.iter().max_by_key(|topic| topic.entries.len()).unwrap();
        let mut topic = ModelTopic::clone(longest);
        topic.entries.truncate(usize::try_from(kept.entries.end()).unwrap());
        topic.first = kept.entries.first();
        // A segment that was removed shortly before may exist again.
        topic.gone.retain(|&ordinal| kept.entries.get(ordinal).is_none());
        let horizon = kept.compacted.as_ref().map(|view| view.horizon);
        let view =
            known.iter().find(|topic| topic.view.as_ref().map(|view| view.horizon) == horizon);
        topic.view = view.unwrap().view.clone();
        topic.lost.extend(longest.first.max(topic.horizon())..topic.first);
        topic.cursors.clear();
        for subscription in kept.durable() {
            let cursors = known.iter().filter_map(|topic| topic.cursors.get(&subscription.name));
            let cursor =
                cursors.into_iter().find(|cursor| agrees(subscription, cursor, topic.end()));
            topic.cursors.insert(subscription.name.clone(), cursor.unwrap().clone());
        }
        topic.sequences.retain(|name, _| kept.highest_sequence(name).is_some());
        for (name, highest) in &mut topic.sequences {
            *highest = kept.highest_sequence(name).unwrap();
        }
        model.topics.insert(id, Arc::new(topic));
    }
    model
}
