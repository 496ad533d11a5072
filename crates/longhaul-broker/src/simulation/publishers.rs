//! Behaviour of the simulated producers.

use super::model::{ModelChunk, ModelEntry, ModelTopic, Part};
use super::node::MESSAGE_BYTES_MAX;
use super::world::{
    ExpectedOutcome, Outstanding, SimulatedMessage, SimulatedProducer, SimulatedWorld, What,
};
use crate::key_hash;
use crate::machine::effect::{ClientRequest, MachineEffect};
use crate::server::requests::requests;
use crate::state::entries::EntryPosition;
use bytes::BytesMut;
use longhaul_wire::batch::BatchBuilder;
use longhaul_wire::frame::{self, FRAME_ALLOWANCE};
use longhaul_wire::messages::{
    CommandCloseProducer, CommandProducer, CommandSend, MessageMetadata, SingleMessageMetadata,
};
use longhaul_wire::payload::Payload;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Largest frame that the server accepts, without its size.
const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + FRAME_ALLOWANCE;

fn text(key: Option<u8>) -> Option<String> {
    key.map(|letter| char::from(letter).to_string())
}

impl SimulatedMessage {
    fn new(metadata: &MessageMetadata, body: &[u8], parts: Vec<Part>) -> Self {
        Self { sequence: metadata.sequence_id, payload: Payload::new(metadata, body), parts }
    }

    fn frame(&self, producer_id: u64) -> BytesMut {
        let sequence_id = self.sequence;
        let send = CommandSend { producer_id, sequence_id, ..CommandSend::default() };
        let mut frame = BytesMut::new();
        frame::encode_with(send, &self.payload, &mut frame);
        frame
    }
}

/// The stored entry of a message.
fn entry(
    id: EntryPosition,
    ordinal: u64,
    payload: &Payload,
    parts: Vec<Part>,
    now: u64,
) -> ModelEntry {
    let metadata = payload.metadata().unwrap();
    let number = |number: Option<i32>| usize::try_from(number.unwrap()).unwrap();
    let chunk = metadata.uuid.map(|uuid| ModelChunk {
        uuid,
        index: number(metadata.chunk_id),
        count: number(metadata.num_chunks_from_msg),
    });
    // Without a key, the chunks of a message stay together, and other messages are on their own.
    let chunk_hash = |chunk: &ModelChunk| u64::from(crc32c::crc32c(chunk.uuid.as_bytes()));
    let alone = key_hash::of_none(chunk.as_ref().map_or(ordinal, chunk_hash));
    let key = key_hash::of(&payload.summary().unwrap());
    ModelEntry {
        id,
        payload: payload.bytes().clone(),
        parts,
        is_batch: metadata.num_messages_in_batch.is_some(),
        deliver_at: metadata.deliver_at_time.map(i64::cast_unsigned),
        key_hash: if key > 0 { key } else { alone },
        publish_time: metadata.publish_time.min(now),
        producer: metadata.producer_name,
        sequence: metadata.sequence_id,
        chunk,
    }
}

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
                chunks: (Vec::new(), 0),
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

    /// Metadata of the next message of a producer, with its sequence id.
    fn metadata_of(&mut self, conn: u64, producer_id: u64) -> MessageMetadata {
        let producer = &self.conns[&conn].producers[&producer_id];
        let (name, own) = (producer.name.clone(), producer.sequence);
        // Consecutive connections share names: some ids are repeated.
        let tried = self.tried.get(&name).copied().unwrap_or_default().max(own);
        let sequence = (tried + 1).saturating_sub(u64::from(self.random.u8(0..4) == 0) * 2);
        self.tried.insert(name.clone(), tried.max(sequence));
        let late = self.random.u8(0..8) == 0;
        let deliver_at = late.then(|| self.now + self.random.u64(1..4000));
        MessageMetadata {
            producer_name: name,
            sequence_id: sequence,
            publish_time: self.clock_of_a_publisher(),
            deliver_at_time: deliver_at.map(u64::cast_signed),
            ..MessageMetadata::default()
        }
    }

    fn key(&mut self) -> Option<u8> {
        (self.random.u8(0..4) > 0).then(|| b'a' + self.random.u8(0..5))
    }

    fn message(&mut self, mut metadata: MessageMetadata) -> SimulatedMessage {
        let count = if self.random.u8(0..3) == 0 { self.random.usize(1..5) } else { 0 };
        let is_large = self.random.u8(0..10) < if self.is_bulky { 6 } else { 1 };
        let filler = if is_large { 700 } else { self.random.usize(0..30) };
        let mut parts = Vec::new();
        for _ in 0..count.max(1) {
            let key = self.key();
            let is_tombstone = key.is_some() && self.random.u8(0..5) == 0;
            let body = format!("m{}{}", self.number(), "x".repeat(filler));
            let body = if is_tombstone { String::new() } else { body };
            parts.push(Part { key, body, is_tombstone });
        }
        // A batch has the key of its first message.
        metadata.partition_key = text(parts[0].key);
        if count == 0 {
            // Compaction only checks this size, and not all clients send it.
            if self.random.bool() {
                metadata.uncompressed_size = u32::try_from(parts[0].body.len()).ok();
            } else {
                parts[0].is_tombstone = false;
            }
            return SimulatedMessage::new(&metadata, parts[0].body.clone().as_bytes(), parts);
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
        SimulatedMessage::new(&metadata, &body, parts)
    }

    /// A message of several chunks.
    fn chunks(&mut self, mut metadata: MessageMetadata) -> Vec<SimulatedMessage> {
        let (key, number, count) = (self.key(), self.number(), self.random.u8(2..5));
        let filler = "x".repeat(self.random.usize(0..200));
        let bodies = (0..count).map(|index| format!("m{number}-{index}{filler}"));
        let bodies: Vec<String> = bodies.collect();
        let total: usize = bodies.iter().map(String::len).sum();
        metadata.partition_key = text(key);
        metadata.uuid = Some(format!("{}-{number}", metadata.producer_name));
        metadata.num_chunks_from_msg = Some(i32::from(count));
        metadata.total_chunk_msg_size = i32::try_from(total).ok();
        metadata.uncompressed_size = u32::try_from(total).ok();
        let chunk = |(index, body): (i32, String)| {
            let metadata = MessageMetadata { chunk_id: Some(index), ..metadata.clone() };
            let part = Part { key, body: body.clone(), is_tombstone: false };
            SimulatedMessage::new(&metadata, body.as_bytes(), vec![part])
        };
        (0..).zip(bodies).map(chunk).collect()
    }

    /// A message of some thousand bytes, or one whose frame has the maximum size, or a byte less or
    /// more.
    fn large(&mut self, conn: u64, producer_id: u64) -> SimulatedMessage {
        let mut metadata = self.metadata_of(conn, producer_id);
        let (key, number) = (self.key(), self.number());
        metadata.partition_key = text(key);
        let message = |bytes: usize| {
            let body = format!("m{number}{}", "x".repeat(bytes));
            let part = Part { key, body: body.clone(), is_tombstone: false };
            SimulatedMessage::new(&metadata, body.as_bytes(), vec![part])
        };
        if self.random.bool() {
            return message(self.random.usize(2000..MESSAGE_BYTES_MAX));
        }
        let others = message(0).frame(producer_id).len() - 4;
        message(FRAME_BYTES_MAX - 1 - others + self.random.usize(0..3))
    }

    /// Publishers have clocks of their own: some are ahead, and some behind.
    fn clock_of_a_publisher(&mut self) -> u64 {
        match self.random.u8(0..6) {
            0 => self.now + self.random.u64(1..100_000_000),
            1 => self.now - self.random.u64(1..100_000),
            _ => self.now,
        }
    }

    fn some_producer(&mut self, conn: u64) -> Option<u64> {
        let ids: Vec<u64> = self.conns[&conn].producers.keys().copied().collect();
        self.random.choice(&ids).copied()
    }

    pub(super) fn publish(&mut self, conn: u64) {
        let Some(producer_id) = self.some_producer(conn) else { return };
        for _ in 0..self.random.usize(1..4) {
            let message = self.next_message(conn, producer_id);
            self.publish_one(conn, producer_id, message);
        }
    }

    pub(super) fn publish_large(&mut self, conn: u64) {
        let Some(producer_id) = self.some_producer(conn) else { return };
        let message = self.large(conn, producer_id);
        self.publish_one(conn, producer_id, message);
    }

    /// The next chunk of a message, or a new message.
    fn next_message(&mut self, conn: u64, producer_id: u64) -> SimulatedMessage {
        let connection = self.conns.get_mut(&conn).unwrap();
        let (chunks, sent) = &mut connection.producers.get_mut(&producer_id).unwrap().chunks;
        match self.random.u8(0..16) {
            0 => chunks.clear(),
            // A producer that reconnects sends some chunks again.
            1 => *sent = self.random.usize(0..=*sent),
            _ => {}
        }
        if let Some(chunk) = chunks.get(*sent).cloned() {
            *sent += 1;
            return chunk;
        }
        let metadata = self.metadata_of(conn, producer_id);
        if self.random.u8(0..6) > 0 {
            return self.message(metadata);
        }
        let chunks = self.chunks(metadata);
        let first = chunks[0].clone();
        let connection = self.conns.get_mut(&conn).unwrap();
        connection.producers.get_mut(&producer_id).unwrap().chunks = (chunks, 1);
        first
    }

    /// The server refuses a frame above the limit, and closes the connection.
    fn refused(&mut self, conn: u64, request: ClientRequest) {
        let mut effects = self.act(|machine| machine.request(conn, request));
        let before = effects.len();
        effects.retain(|effect| !matches!(effect, MachineEffect::Close(to) if *to == conn));
        assert_eq!(before - effects.len(), 1, "seed {}: the connection stays", self.seed);
        self.owe(conn, u64::MAX, What::Success, effects);
        self.disconnect(conn);
        self.sizes[2] += 1;
    }

    fn publish_one(&mut self, conn: u64, producer_id: u64, message: SimulatedMessage) {
        let mut frame = message.frame(producer_id);
        let frame_bytes = frame.len() - 4;
        let mut parsed = requests(&mut frame, &mut true, MESSAGE_BYTES_MAX, 1);
        let request = parsed.requests.remove(0);
        assert_eq!(parsed.is_broken, frame_bytes > FRAME_BYTES_MAX, "{frame_bytes} bytes");
        if parsed.is_broken {
            return self.refused(conn, request);
        }
        let SimulatedMessage { sequence, payload, parts } = message;
        let producer = &self.conns[&conn].producers[&producer_id];
        let (topic, name) = (producer.topic, producer.name.clone());
        let ends = |world: &Self| {
            let topics = world.node.machine.state().topics();
            topics.map(|(id, kept)| (id, kept.entries.end())).collect::<BTreeMap<_, _>>()
        };
        let before = ends(self);
        let effects = self.act(|machine| machine.request(conn, request));
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
            self.sizes[0] += u64::from(frame_bytes > 2000);
            self.sizes[1] += u64::from(frame_bytes == FRAME_BYTES_MAX);
            let entry = entry(id, before[&topic], &payload, parts, self.now);
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
        if topic.deduplicates && entry.is_last() {
            topic.sequences.insert(entry.producer.clone(), entry.sequence);
        }
        topic.entries.push(Arc::new(entry));
    }
}
