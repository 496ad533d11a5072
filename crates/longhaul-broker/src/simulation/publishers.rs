//! Behaviour of the simulated producers.

use super::model::{ModelEntry, ModelTopic, Part};
use super::world::{ExpectedOutcome, Outstanding, SimulatedProducer, SimulatedWorld, What};
use crate::key_hash;
use crate::machine::effect::ClientRequest;
use crate::server::requests::verified;
use longhaul_wire::batch::BatchBuilder;
use longhaul_wire::messages::{
    CommandCloseProducer, CommandProducer, CommandSend, MessageMetadata, SingleMessageMetadata,
};
use longhaul_wire::payload::Payload;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

impl SimulatedWorld {
    pub(super) fn produce(&mut self, conn: u64) {
        let topic = self.topic_name();
        self.produce_to(conn, &topic);
    }

    pub(super) fn produce_to(&mut self, conn: u64, topic: &str) {
        let (id, request_id) = (self.number(), self.number());
        let name = format!("p{}", self.random.u8(0..3));
        let mode = if self.random.u8(0..8) == 0 { self.random.i32(0..4) } else { 0 };
        let producer = CommandProducer {
            topic: topic.to_owned(),
            producer_id: id,
            request_id,
            producer_name: Some(name.clone()),
            producer_access_mode: Some(mode),
            ..CommandProducer::default()
        };
        let (effects, is_refused) = self.ask(conn, request_id, producer);
        if let Some(topic) = self.node.machine.state().topic_id(topic).filter(|_| !is_refused) {
            let producer = SimulatedProducer {
                topic,
                name,
                is_closed: false,
                sequence: 0,
                outstanding: VecDeque::new(),
            };
            self.conns.get_mut(&conn).unwrap().producers.insert(id, producer);
        }
        self.owe(conn, request_id, What::Producer { waits: false }, effects);
    }

    pub(super) fn close_producer(&mut self, conn: u64) {
        let open = self.conns[&conn].producers.iter().filter(|(_, producer)| !producer.is_closed);
        let open: Vec<u64> = open.map(|(id, _)| *id).collect();
        let Some(&producer_id) = self.random.choice(&open) else { return };
        let request_id = self.number();
        let (effects, _) =
            self.ask(conn, request_id, CommandCloseProducer::new(producer_id, request_id));
        let conn_ = self.conns.get_mut(&conn).unwrap();
        conn_.producers.get_mut(&producer_id).unwrap().is_closed = true;
        self.owe(conn, request_id, What::Success, effects);
    }

    fn message(&mut self, name: &str, sequence: u64) -> (Payload, Vec<Part>, Option<u64>) {
        let count = if self.random.u8(0..3) == 0 { self.random.usize(1..5) } else { 0 };
        let is_large = self.random.u8(0..10) < if self.is_bulky { 6 } else { 1 };
        let filler = if is_large { 700 } else { self.random.usize(0..30) };
        let mut parts = Vec::new();
        for _ in 0..count.max(1) {
            let key = (self.random.u8(0..4) > 0).then(|| b'a' + self.random.u8(0..5));
            let is_tombstone = key.is_some() && self.random.u8(0..5) == 0;
            let body = format!("m{}{}", self.number(), "x".repeat(filler));
            let body = if is_tombstone { String::new() } else { body };
            parts.push(Part { key, body, is_tombstone });
        }
        let late = self.random.u8(0..8) == 0;
        let deliver_at = late.then(|| self.now + self.random.u64(1..4000));
        let mut metadata = MessageMetadata {
            producer_name: name.to_owned(),
            sequence_id: sequence,
            publish_time: self.clock_of_a_publisher(),
            deliver_at_time: deliver_at.map(u64::cast_signed),
            ..MessageMetadata::default()
        };
        let text = |key: Option<u8>| key.map(|letter| char::from(letter).to_string());
        // A batch has the key of its first message.
        metadata.partition_key = text(parts[0].key);
        if count == 0 {
            // Compaction only checks this size, and not all clients send it.
            if self.random.bool() {
                metadata.uncompressed_size = u32::try_from(parts[0].body.len()).ok();
            } else {
                parts[0].is_tombstone = false;
            }
            return (Payload::new(&metadata, parts[0].body.as_bytes()), parts, deliver_at);
        }
        let mut batch = BatchBuilder::default();
        for part in &parts {
            let partition_key = text(part.key);
            let single =
                SingleMessageMetadata { partition_key, ..SingleMessageMetadata::default() };
            batch.push(single, part.body.as_bytes());
        }
        metadata.num_messages_in_batch = i32::try_from(count).ok();
        let body = batch.finish();
        metadata.uncompressed_size = u32::try_from(body.len()).ok();
        (Payload::new(&metadata, &body), parts, deliver_at)
    }

    /// Publishers have clocks of their own: some are ahead, and some behind.
    fn clock_of_a_publisher(&mut self) -> u64 {
        match self.random.u8(0..6) {
            0 => self.now + self.random.u64(1..100_000_000),
            1 => self.now - self.random.u64(1..100_000),
            _ => self.now,
        }
    }

    pub(super) fn publish(&mut self, conn: u64) {
        let ids: Vec<u64> = self.conns[&conn].producers.keys().copied().collect();
        let Some(&producer_id) = self.random.choice(&ids) else { return };
        for _ in 0..self.random.usize(1..4) {
            self.publish_one(conn, producer_id);
        }
    }

    fn publish_one(&mut self, conn: u64, producer_id: u64) {
        let producer = &self.conns[&conn].producers[&producer_id];
        let (topic, name, own) = (producer.topic, producer.name.clone(), producer.sequence);
        // Consecutive connections share names: some ids are repeated.
        let tried = self.tried.get(&name).copied().unwrap_or_default().max(own);
        let sequence = (tried + 1).saturating_sub(u64::from(self.random.u8(0..4) == 0) * 2);
        self.tried.insert(name.clone(), tried.max(sequence));
        let (payload, parts, deliver_at) = self.message(&name, sequence);
        let is_batch = payload.metadata().unwrap().num_messages_in_batch.is_some();
        let send = CommandSend { producer_id, sequence_id: sequence, ..CommandSend::default() };
        let key = key_hash::of(&payload.summary().unwrap());
        let publish_time = payload.metadata().unwrap().publish_time.min(self.now);
        let bytes = payload.bytes().clone();
        let ends = |world: &Self| {
            let topics = world.node.machine.state().topics();
            topics.map(|(id, kept)| (id, kept.entries.end())).collect::<BTreeMap<_, _>>()
        };
        let before = ends(self);
        let effects = self
            .act(|machine| machine.request(conn, ClientRequest::Publish(send, verified(payload))));
        let after = ends(self);
        let is_stored = before != after;
        let known = self.model.topics.get(&topic);
        let is_duplicate = known.is_some_and(|known| {
            known.deduplicates
                && known.sequences.get(&name).is_some_and(|&highest| sequence <= highest)
        });
        let outcome = if is_stored {
            assert_eq!(before[&topic] + 1, after[&topic], "seed {}", self.seed);
            assert!(!is_duplicate, "seed {}: a duplicate was stored", self.seed);
            let kept = self.node.machine.state().topic(topic).unwrap();
            let id = kept.entries.position_of(before[&topic]).unwrap();
            let entry = ModelEntry {
                id,
                payload: bytes,
                parts,
                is_batch,
                deliver_at,
                key_hash: if key > 0 { key } else { key_hash::of_none(before[&topic]) },
                publish_time,
                producer: name.clone(),
                sequence,
            };
            self.stored(topic, entry);
            ExpectedOutcome::Stored(id)
        } else {
            // A waiting or closed producer is always refused.
            ExpectedOutcome::Unstored { is_duplicate }
        };
        let needs = self.node.machine.recorded();
        let producer = self.conns.get_mut(&conn).unwrap().producers.get_mut(&producer_id).unwrap();
        producer.outstanding.push_back(Outstanding { sequence, outcome, needs });
        producer.sequence = sequence;
        self.finish(effects);
    }

    fn stored(&mut self, topic: u32, entry: ModelEntry) {
        let (seed, id) = (self.seed, entry.id);
        let used = |other: &Arc<ModelTopic>| other.ordinal(id).is_some();
        assert!(!self.model.topics.values().any(used), "seed {seed}: {id:?} was used before");
        let topic = self.model.topic(topic);
        let last = topic.entries.last().map(|last| last.id);
        assert!(last.is_none_or(|last| last < id), "seed {seed}: ids grow");
        if topic.deduplicates {
            topic.sequences.insert(entry.producer.clone(), entry.sequence);
        }
        topic.entries.push(Arc::new(entry));
    }
}
