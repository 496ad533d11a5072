//! Checks the output of the broker.

use super::model::ModelTopic;
use super::world::{
    ConsumerId, Expected, ExpectedDelivery, ExpectedOutcome, SimulatedSubscription, SimulatedWorld,
    What,
};
use crate::machine::dispatcher::DispatchMode;
use crate::machine::effect::{MachineEffect, MessageSource};
use crate::state::entries::EntryPosition;
use crate::state::entry::EntryHead;
use bytes::Bytes;
use longhaul_wire::batch::Singles;
use longhaul_wire::messages::{Command, CommandMessage, MessageIdData};
use longhaul_wire::payload::Payload;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

const NONE: EntryPosition = EntryPosition { ledger: u64::MAX, entry: u64::MAX };

fn id_of(id: &MessageIdData) -> EntryPosition {
    EntryPosition { ledger: id.ledger_id, entry: id.entry_id }
}

impl SimulatedWorld {
    /// Adds an effect to the digest, and checks it.
    pub(super) fn observe(&mut self, effect: MachineEffect) {
        self.digest(&effect);
        match effect {
            MachineEffect::Send(conn, command) => self.answered(conn, &command),
            MachineEffect::Deliver { conn, command, source, bytes } => {
                self.delivering(conn, &command, source, bytes);
            }
            MachineEffect::Close(conn) => {
                panic!("seed {}: connection {conn} was refused", self.seed)
            }
            MachineEffect::Reply(ticket) => {
                let needs = self.calls.remove(&ticket).expect("one answer for each call");
                assert!(needs <= self.node.durable, "seed {}: a call ended early", self.seed);
            }
            MachineEffect::Window(..) | MachineEffect::Inform(_) | MachineEffect::Warn(_) => {}
            MachineEffect::Copy(survivors) => {
                self.has_cleaned = true;
                self.node.copies.push_back(survivors);
            }
            MachineEffect::Compact(job) => {
                self.check_backoff(job.topic);
                let topic = &self.model.topics[&job.topic];
                let from = topic.horizon().max(topic.first);
                let ordinals: Vec<u64> = job.entries.iter().map(|(ordinal, ..)| ordinal).collect();
                let gone = topic.gone.clone();
                let seed = self.seed;
                assert_eq!(job.horizon, self.readable(job.topic), "seed {seed}");
                let expected: Vec<u64> =
                    (from..job.horizon).filter(|ordinal| !gone.contains(ordinal)).collect();
                assert_eq!(ordinals, expected, "seed {seed}");
                self.node.compactions.push_back(job);
            }
            MachineEffect::RemoveCompacted(name) => {
                let durable = &self.history.front().unwrap().2;
                let is_used = durable
                    .topics()
                    .any(|(_, kept)| kept.compacted.as_ref().is_some_and(|view| view.file == name));
                assert!(!is_used, "seed {}: {name} is still needed after a crash", self.seed);
                self.node.remove_compacted(&name);
            }
            MachineEffect::Checkpoint { at, image } => {
                self.check_checkpoint(at, &image);
                self.node.set_checkpoint(at, image);
            }
            MachineEffect::RemoveSegments(segments) => {
                self.check_removal(&segments);
                self.node.remove_segments(&segments);
            }
        }
    }

    /// Entries in these segments are not needed after a crash: they are acknowledged, or stored
    /// elsewhere.
    fn check_removal(&self, segments: &[u32]) {
        let (_, model, state) = self.history.front().unwrap();
        for (id, kept) in state.topics() {
            for (ordinal, slot) in
                kept.entries.iter().filter(|(_, slot)| segments.contains(&slot.location.segment))
            {
                let topic = &model.topics[&id];
                let cursors = &topic.cursors;
                let now = self
                    .node
                    .machine
                    .state()
                    .topic(id)
                    .and_then(|current| current.entries.get(ordinal));
                let is_copied = now.is_some_and(|now| now.location != slot.location);
                let is_dead =
                    !cursors.is_empty() && cursors.values().all(|cursor| cursor.is_acked(ordinal));
                let what = format!("seed {}: {ordinal} of {}", self.seed, topic.name);
                assert!(is_copied || is_dead, "{what} is needed after a crash");
            }
        }
    }

    fn digest(&mut self, effect: &MachineEffect) {
        let text = match effect {
            // The pieces of a checkpoint have no fixed order.
            MachineEffect::Checkpoint { at, .. } => format!("{at:?}"),
            other => format!("{other:?}"),
        };
        let mut hasher = DefaultHasher::new();
        (self.trace, text).hash(&mut hasher);
        self.trace = hasher.finish();
    }

    fn answered(&mut self, conn: u64, command: &Command) {
        if !self.conns.contains_key(&conn) {
            return;
        }
        match command {
            Command::SendReceipt(receipt) => {
                let id = receipt.message_id.as_ref().map(id_of).unwrap();
                let outcome = if id == NONE {
                    ExpectedOutcome::Unstored { is_duplicate: true }
                } else {
                    ExpectedOutcome::Stored(id)
                };
                self.published(conn, receipt.producer_id, receipt.sequence_id, Some(&outcome));
            }
            Command::SendError(error) => {
                self.published(conn, error.producer_id, error.sequence_id, None);
            }
            Command::Connected(_) => self.settle(conn, 0, false, None),
            Command::Success(success) => self.settle(conn, success.request_id, true, None),
            Command::ProducerSuccess(success) => {
                let waits = success.producer_ready == Some(false);
                self.settle_producer(conn, success.request_id, waits);
            }
            Command::AckResponse(response) => {
                self.settle(conn, response.request_id.unwrap(), response.error.is_none(), None);
            }
            Command::PartitionedMetadataResponse(response) => {
                self.settle(conn, response.request_id, response.error.is_none(), None);
            }
            Command::GetLastMessageIdResponse(response) => {
                self.settle(
                    conn,
                    response.request_id,
                    true,
                    Some(id_of(&response.last_message_id)),
                );
            }
            Command::Error(error) => self.settle(conn, error.request_id, false, None),
            Command::CloseConsumer(close) => {
                let consumer =
                    self.conns.get_mut(&conn).unwrap().consumers.remove(&close.consumer_id);
                assert!(consumer.is_none_or(|consumer| consumer.is_detached), "seed {}", self.seed);
            }
            Command::CloseProducer(close) => {
                let producers = &mut self.conns.get_mut(&conn).unwrap().producers;
                if let Some(producer) = producers.get_mut(&close.producer_id) {
                    producer.is_closed = true;
                }
            }
            Command::Ping(_) | Command::Pong(_) | Command::ActiveConsumerChange(_) => {}
            other => panic!("seed {}: unexpected {other:?}", self.seed),
        }
    }

    fn settle_producer(&mut self, conn: u64, request_id: u64, is_waiting: bool) {
        let Some(conn_) = self.conns.get_mut(&conn) else { return };
        if is_waiting {
            conn_.pending.get_mut(&request_id).unwrap().what = What::Producer { waits: true };
            return;
        }
        if let Some(pending) = conn_.pending.get_mut(&request_id)
            && matches!(pending.what, What::Producer { waits: true })
        {
            // The producer was admitted later than it asked.
            pending.needs = self.node.durable;
        }
        self.settle(conn, request_id, true, None);
    }

    /// A request got its answer: exactly one, and a positive one only when everything is on disk.
    fn settle(&mut self, conn: u64, request_id: u64, is_good: bool, last: Option<EntryPosition>) {
        let seed = self.seed;
        let pending = self.conns.get_mut(&conn).unwrap().pending.remove(&request_id);
        let pending = pending.unwrap_or_else(|| panic!("seed {seed}: a second answer"));
        if is_good {
            assert!(pending.needs <= self.node.durable, "seed {seed}: an answer came early");
        }
        if let What::LastId(expected) = pending.what
            && is_good
        {
            assert_eq!(last, Some(expected.unwrap_or(NONE)), "seed {seed}: the last id");
        }
    }

    /// A message got its receipt or its error.
    fn published(
        &mut self,
        conn: u64,
        producer: u64,
        sequence: u64,
        receipt: Option<&ExpectedOutcome>,
    ) {
        let (seed, durable) = (self.seed, self.node.durable);
        let producers = &mut self.conns.get_mut(&conn).unwrap().producers;
        let producer = producers.get_mut(&producer).expect("producers stay known");
        let first = producer.outstanding.pop_front().expect("a receipt for what was sent");
        assert_eq!(first.sequence, sequence, "seed {seed}: receipts come in order");
        let Some(outcome) = receipt else {
            let is_stored = matches!(first.outcome, ExpectedOutcome::Stored(_));
            return assert!(!is_stored, "seed {seed}: stored and refused");
        };
        assert_eq!(&first.outcome, outcome, "seed {seed}");
        assert!(first.needs <= durable, "seed {seed}: a receipt came early");
        self.receipts += 1;
    }

    fn delivering(
        &mut self,
        conn: u64,
        command: &CommandMessage,
        source: MessageSource,
        bytes: u32,
    ) {
        let seed = self.seed;
        let key = (conn, command.consumer_id);
        let consumer = &self.conns[&conn].consumers[&command.consumer_id];
        let (topic_id, subscription) = (consumer.topic, consumer.subscription.clone());
        assert!(!consumer.is_detached, "seed {seed}: {subscription} has let {key:?} go");
        let topic = &self.model.topics[&topic_id];
        let ordinal = topic.ordinal(id_of(&command.message_id));
        let ordinal = ordinal.unwrap_or_else(|| panic!("seed {seed}: {command:?} is unknown"));
        let entry = topic.entry(ordinal);
        let what = format!("seed {seed}: {ordinal} of {} to {subscription}", topic.name);
        assert!(ordinal < self.readable(topic_id), "{what}: not on disk");
        assert!(consumer.permits > 0, "{what}: no permits");
        let cursor = self.cursor(topic_id, &subscription).expect("a subscription");
        assert!(!cursor.is_acked(ordinal), "{what}: acknowledged");
        let open = cursor.open.get(&ordinal).copied();
        let ack_set: Vec<i64> = open.map(u64::cast_signed).into_iter().collect();
        assert_eq!(command.ack_set, ack_set, "{what}: open messages");
        self.check_turn(key, ordinal, command.redelivery_count.unwrap_or_default(), &what);
        let is_compacted = matches!(source, MessageSource::Compacted(..));
        let expected = expected(topic, ordinal, is_compacted);
        let bodies = topic.bodies(ordinal, is_compacted);
        let pinned = self.horizon(consumer).unwrap_or_default();
        let messages = i64::from(entry.messages());
        let entry = Arc::clone(entry);
        let source = self.node.pin(source);
        self.delivered += 1;
        let run = self.runs.get_mut(&(topic_id, subscription)).expect("consumers");
        if run.kind.is_shared() {
            run.pending.insert(ordinal, key);
            run.owners.extend(entry.chunk.iter().map(|chunk| (chunk.uuid.clone(), key)));
        }
        run.pinned.get_or_insert(pinned);
        let conn = self.conns.get_mut(&conn).expect("a connection");
        let consumer = conn.consumers.get_mut(&command.consumer_id).expect("a consumer");
        consumer.permits -= messages;
        consumer.last = Some(ordinal);
        consumer.held.push(ordinal);
        if entry.is_last() {
            consumer.seen.extend(bodies.iter().filter_map(|(key, _)| Some(((*key)?, ordinal))));
        }
        conn.outbox.push_back(ExpectedDelivery { pinned: source, bytes, expected });
    }

    /// Checks that this consumer may get this entry now.
    fn check_turn(&self, key: (u64, u64), ordinal: u64, redeliveries: u32, what: &str) {
        let consumer = &self.conns[&key.0].consumers[&key.1];
        let topic = &self.model.topics[&consumer.topic];
        let run = &self.runs[&(consumer.topic, consumer.subscription.clone())];
        if run.kind.is_shared() {
            self.check_key(run, topic, key, ordinal, what);
            assert_eq!(run.pending.get(&ordinal), None, "{what}: somebody has it");
            let owner = run.owner(topic.entry(ordinal));
            assert!(owner.is_none_or(|owner| owner == key), "{what}: {owner:?} has its chunks");
            let due = topic.entry(ordinal).deliver_at;
            assert!(due.is_none_or(|at| at <= self.latest), "{what}: too early");
            let asked = run.redeliveries.get(&ordinal).copied().unwrap_or_default();
            assert_eq!(redeliveries, asked, "{what}: redeliveries");
            let held = |id: (u64, u64)| {
                let of = run.pending.iter().filter(move |(_, holder)| **holder == id);
                of.map(|(&other, _)| u64::from(topic.entry(other).messages())).sum::<u64>()
            };
            let limit = topic.unacked_limit;
            assert!(limit == 0 || held(key) < limit, "{what}: holds enough");
            return;
        }
        assert_eq!(self.active(run), Some(key), "{what}: not active");
        let cursor = self.cursor(consumer.topic, &consumer.subscription).expect("a cursor");
        let visible = topic.visible(self.horizon(consumer), self.readable(consumer.topic));
        let next = visible.into_iter().find(|&candidate| {
            consumer.last.is_none_or(|last| candidate > last) && !cursor.is_acked(candidate)
        });
        assert_eq!(next, Some(ordinal), "{what}: out of order");
    }

    /// Checks that the entries of each key come in order, and only to one consumer at a time.
    fn check_key(
        &self,
        run: &SimulatedSubscription,
        topic: &ModelTopic,
        key: ConsumerId,
        ordinal: u64,
        what: &str,
    ) {
        let DispatchMode::KeyShared(policy) = run.kind else { return };
        let consumer = &self.conns[&key.0].consumers[&key.1];
        let cursor = self.cursor(consumer.topic, &consumer.subscription).expect("a cursor");
        let hash = |ordinal: u64| topic.entry(ordinal).key_hash;
        let visible = topic.visible(None, self.readable(consumer.topic));
        let first = visible.into_iter().find(|&candidate| {
            let is_due = topic.entry(candidate).deliver_at.is_none_or(|at| at <= self.now);
            let is_free = !cursor.is_acked(candidate) && !run.pending.contains_key(&candidate);
            is_due && is_free && hash(candidate) == hash(ordinal)
        });
        let is_first = first.is_none_or(|first| first >= ordinal);
        assert!(is_first, "{what}: {first:?} of its key comes before it");
        let other = run
            .pending
            .iter()
            .find(|(held, holder)| hash(**held) == hash(ordinal) && **holder != key);
        let is_alone = policy.allows_disorder || other.is_none();
        assert!(is_alone, "{what}: {other:?} holds an entry of its key");
    }

    /// Sends the oldest pending delivery of a connection.
    pub(super) fn send_one(&mut self, conn: u64) {
        let Some(out) =
            self.conns.get_mut(&conn).and_then(|connection| connection.outbox.pop_front())
        else {
            return;
        };
        if let Some(body) = self.node.read(&out.pinned).unwrap() {
            check_message(body, &out.expected, self.seed);
        }
        let bytes = u64::from(out.bytes);
        let effects = self.act(|machine| machine.written(conn, bytes));
        self.finish(effects);
    }
}

fn expected(topic: &ModelTopic, ordinal: u64, is_compacted: bool) -> Expected {
    if is_compacted {
        return Expected::Bodies(topic.bodies(ordinal, true));
    }
    Expected::Whole(topic.entry(ordinal).payload.clone())
}

fn check_message(mut body: Bytes, expected: &Expected, seed: u64) {
    EntryHead::decode(&mut body).expect("a head");
    let bodies = match expected {
        Expected::Whole(payload) => return assert_eq!(&body, payload, "seed {seed}"),
        Expected::Bodies(bodies) => bodies,
    };
    let payload = Payload::parse(body).unwrap();
    payload.verify().unwrap();
    let metadata = payload.metadata().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let key = |key: Option<String>| key.map(|key| key.as_bytes()[0]);
    let found: Vec<(Option<u8>, String)> = match metadata.num_messages_in_batch {
        None => vec![(key(metadata.partition_key), text(&payload.body()))],
        Some(count) => Singles::new(payload.body(), usize::try_from(count).unwrap())
            .map(Result::unwrap)
            .map(|single| (key(single.metadata.partition_key), text(&single.body)))
            .collect(),
    };
    assert_eq!(&found, bodies, "seed {seed}: the compacted message");
}
