//! A producer: its queue, its unconfirmed entries, and their receipts.
//!
//! Batches need no timer: while a few entries are unconfirmed, new messages wait and share the next
//! entry. A single message goes out at once and alone, and batches grow with the load.

use super::call::{ConnectionEvent, Publication};
use super::requests::RequestKind;
use super::{ConnectionMachine, error};
use bytes::{Bytes, BytesMut};
use longhaul_transport::{Batching, Outgoing, PublishError, TransportError};
use longhaul_types::Position;
use longhaul_types::moment::Moment;
use longhaul_wire::batch::BatchBuilder;
use longhaul_wire::frame;
use longhaul_wire::messages::{
    CommandCloseProducer, CommandProducerSuccess, CommandSend, CommandSendError,
    CommandSendReceipt, KeyValue, MessageIdData, MessageMetadata, ServerError,
    SingleMessageMetadata,
};
use prost::Message as _;
use std::collections::VecDeque;

/// Unconfirmed entries of a batching producer while the next batch fills. With one, the broker's
/// disk idles; more than four make batches smaller without a gain in speed.
const BATCHES_IN_FLIGHT_MAX: usize = 4;
/// Limits of a batch, the same as in Pulsar's own clients.
const BATCH_MESSAGES_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 128 * 1024;
/// Assumed overhead of a message in a batch besides its body, key and properties, and of each
/// property besides its text.
const SINGLE_OVERHEAD_BYTES: usize = 64;
const PROPERTY_OVERHEAD_BYTES: usize = 16;
/// Keeps a message from being replicated to other clusters, where its position has no meaning.
const LOCAL_ONLY: &str = "__local__";

/// One producer.
#[derive(Debug)]
pub(super) struct ConnectionProducer<P> {
    topic: String,
    batching: Batching,
    /// `None` until the broker has opened it.
    open: Option<OpenProducer>,
    queue: VecDeque<(Publication, P)>,
    in_flight: VecDeque<UnconfirmedEntry<P>>,
    /// Close the producer as soon as everything is stored.
    closing: bool,
    /// It is queued for its turn to write.
    scheduled: bool,
}

#[derive(Debug)]
struct OpenProducer {
    next_sequence: u64,
    /// Metadata common to all messages: the producer's name, and the schema version if a schema was
    /// declared.
    common: MessageMetadata,
}

/// An entry that was written and has no receipt.
#[derive(Debug)]
struct UnconfirmedEntry<P> {
    sequence_id: u64,
    deadline: Moment,
    /// Whether the positions of its messages have batch indices.
    batched: bool,
    tokens: Vec<P>,
}

impl<P> UnconfirmedEntry<P> {
    /// Whether one of the entry's messages has this sequence id. Brokers identify a refused batch
    /// by its last message.
    fn holds(&self, sequence_id: u64) -> bool {
        sequence_id.checked_sub(self.sequence_id).is_some_and(|at| at < self.tokens.len() as u64)
    }
}

/// Result of a turn to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteTurn {
    /// There is more to write.
    Again,
    /// There is nothing to write now.
    Over,
    /// Everything is stored, and the producer is to be closed.
    Close,
}

/// The result of a message that no producer accepted.
pub(super) fn over() -> PublishError {
    PublishError::NotStored("the producer is closed".to_owned())
}

impl<P> ConnectionProducer<P> {
    pub(super) const fn new(batching: Batching, topic: String) -> Self {
        Self {
            topic,
            batching,
            open: None,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            closing: false,
            scheduled: false,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// Queues a message. Returns whether the producer needs a turn.
    pub(super) fn push(&mut self, publication: Publication, token: P) -> bool {
        self.queue.push_back((publication, token));
        self.schedule()
    }

    /// Returns whether the producer needs a turn.
    pub(super) fn close(&mut self) -> bool {
        self.closing = true;
        self.schedule()
    }

    /// Deadline of the oldest receipt.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.in_flight.front().map(|entry| entry.deadline)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    fn schedule(&mut self) -> bool {
        let waits = self.open.is_none() || self.has_to_wait();
        let idle = self.queue.is_empty() && !(self.closing && self.in_flight.is_empty());
        !waits && !idle && !std::mem::replace(&mut self.scheduled, true)
    }

    fn has_to_wait(&self) -> bool {
        self.batching == Batching::On && self.in_flight.len() >= BATCHES_IN_FLIGHT_MAX
    }

    /// Writes one entry.
    fn write<A>(
        &mut self,
        id: u64,
        message_bytes_max: usize,
        out: &mut BytesMut,
        events: &mut VecDeque<ConnectionEvent<A, P>>,
        deadline: Moment,
    ) -> WriteTurn {
        self.scheduled = false;
        let Some(open) = &mut self.open else { return WriteTurn::Over };
        let mates = match self.batching {
            Batching::On => companions(&self.queue, message_bytes_max),
            Batching::Off => 1,
        };
        let sequence_id = open.next_sequence;
        if mates > 1 {
            let mut tokens = Vec::with_capacity(mates);
            let mut batch = PublishBatch::default();
            for (publication, token) in self.queue.drain(..mates) {
                batch.push(publication, open.next_sequence);
                open.next_sequence += 1;
                tokens.push(token);
            }
            let (metadata, body) = batch.finish(open, sequence_id);
            write_entry(id, metadata, &body, out);
            self.in_flight.push_back(UnconfirmedEntry {
                sequence_id,
                deadline,
                batched: true,
                tokens,
            });
        } else if let Some((publication, token)) = self.queue.pop_front() {
            let (metadata, body) = single(publication, open, sequence_id);
            let bytes = metadata.encoded_len() + body.len();
            if bytes > message_bytes_max {
                let refused = PublishError::TooLarge { bytes, bytes_max: message_bytes_max };
                events.push_back(ConnectionEvent::Published(token, Err(refused)));
            } else {
                write_entry(id, metadata, &body, out);
                open.next_sequence += 1;
                // Frees the memory: the next message may come much later.
                open.common.properties = Vec::new();
                open.common.partition_key = None;
                let tokens = vec![token];
                self.in_flight.push_back(UnconfirmedEntry {
                    sequence_id,
                    deadline,
                    batched: false,
                    tokens,
                });
            }
        }
        if self.closing && self.is_quiet() {
            WriteTurn::Close
        } else if self.schedule() {
            WriteTurn::Again
        } else {
            WriteTurn::Over
        }
    }

    /// Ends the producer. The fate of its written messages is unknown.
    fn end<A>(self, cause: &TransportError, events: &mut VecDeque<ConnectionEvent<A, P>>) {
        for token in self.in_flight.into_iter().flat_map(|entry| entry.tokens) {
            let unknown = PublishError::Unknown(cause.to_string());
            events.push_back(ConnectionEvent::Published(token, Err(unknown)));
        }
        for (_, token) in self.queue {
            let not_stored = PublishError::NotStored(cause.to_string());
            events.push_back(ConnectionEvent::Published(token, Err(not_stored)));
        }
    }
}

/// Number of queued messages that may share an entry, at least one.
fn companions<P>(queue: &VecDeque<(Publication, P)>, message_bytes_max: usize) -> usize {
    let limit = BATCH_BYTES_MAX.min(message_bytes_max / 2);
    let (mut count, mut bytes) = (0, 0);
    for (Publication { message, .. }, _) in queue.iter().take(BATCH_MESSAGES_MAX) {
        bytes += weight(message);
        // The delivery time applies to the whole entry.
        if bytes > limit || message.deliver_at_ms.is_some() {
            break;
        }
        count += 1;
    }
    count.max(1)
}

/// Upper bound of a message's size in a batch, in bytes.
pub(crate) fn weight(message: &Outgoing) -> usize {
    let key = message.key.as_ref().map_or(0, String::len);
    let properties =
        message.properties.bytes() + message.properties.len() * PROPERTY_OVERHEAD_BYTES;
    SINGLE_OVERHEAD_BYTES + key + properties + message.payload.len()
}

fn write_entry(producer_id: u64, metadata: &MessageMetadata, body: &[u8], out: &mut BytesMut) {
    let send = CommandSend {
        producer_id,
        sequence_id: metadata.sequence_id,
        num_messages: Some(metadata.num_messages_in_batch()),
        highest_sequence_id: metadata.highest_sequence_id,
        ..CommandSend::default()
    };
    frame::encode_message(send, metadata, body, out);
}

fn properties(message: &mut Outgoing) -> Vec<KeyValue> {
    let properties = std::mem::take(&mut message.properties);
    properties.into_bytes().into_iter().map(|(key, value)| KeyValue { key, value }).collect()
}

fn size(body: &[u8]) -> u32 {
    u32::try_from(body.len()).unwrap_or(u32::MAX)
}

/// Encodes a message as an entry of its own. Readers check `null_value`, and the compaction of
/// brokers from 2025 checks `uncompressed_size`: a tombstone has both.
fn single(
    publication: Publication,
    open: &mut OpenProducer,
    sequence_id: u64,
) -> (&MessageMetadata, Bytes) {
    let Publication { mut message, publish_time_ms } = publication;
    let metadata = &mut open.common;
    metadata.sequence_id = sequence_id;
    metadata.publish_time = publish_time_ms;
    metadata.properties = properties(&mut message);
    metadata.partition_key = message.key;
    metadata.uncompressed_size = Some(size(&message.payload));
    metadata.num_messages_in_batch = None;
    metadata.event_time = message.event_time_ms;
    metadata.deliver_at_time = message.deliver_at_ms.and_then(|at| i64::try_from(at).ok());
    metadata.highest_sequence_id = Some(sequence_id);
    metadata.null_value = message.null.then_some(true);
    (metadata, message.payload)
}

#[derive(Default)]
struct PublishBatch {
    builder: BatchBuilder,
    publish_time_ms: u64,
}

impl PublishBatch {
    fn push(&mut self, publication: Publication, sequence_id: u64) {
        let Publication { mut message, publish_time_ms } = publication;
        self.publish_time_ms = publish_time_ms;
        let metadata = SingleMessageMetadata {
            properties: properties(&mut message),
            partition_key: message.key,
            event_time: message.event_time_ms,
            sequence_id: Some(sequence_id),
            null_value: message.null.then_some(true),
            ..SingleMessageMetadata::default()
        };
        self.builder.push(metadata, &message.payload);
    }

    fn finish(self, open: &mut OpenProducer, sequence_id: u64) -> (&MessageMetadata, Bytes) {
        let count = self.builder.count();
        let body = self.builder.finish();
        let highest = open.next_sequence - 1;
        let metadata = &mut open.common;
        metadata.sequence_id = sequence_id;
        metadata.publish_time = self.publish_time_ms;
        metadata.properties = Vec::new();
        metadata.partition_key = None;
        metadata.uncompressed_size = Some(size(&body));
        metadata.num_messages_in_batch = i32::try_from(count).ok();
        metadata.event_time = None;
        metadata.deliver_at_time = None;
        metadata.highest_sequence_id = Some(highest);
        metadata.null_value = None;
        (metadata, body)
    }
}

/// The broker returns no message id for a message that it dropped as a duplicate.
fn entry_of(id: Option<&MessageIdData>) -> Result<Position, PublishError> {
    match id.filter(|id| id.ledger_id != u64::MAX && id.entry_id != u64::MAX) {
        Some(id) => Ok(Position { ledger: id.ledger_id, entry: id.entry_id, batch_index: None }),
        None => Err(PublishError::Unknown("the receipt names no message".to_owned())),
    }
}

impl<A, P> ConnectionMachine<A, P> {
    /// The broker has opened a producer.
    pub(super) fn producer_opened(&mut self, id: u64, success: CommandProducerSuccess) {
        let last = success.last_sequence_id();
        let Some(producer) = self.producers.get_mut(&id) else { return };
        producer.open = Some(OpenProducer {
            next_sequence: u64::try_from(last.saturating_add(1)).unwrap_or_default(),
            common: MessageMetadata {
                producer_name: success.producer_name,
                replicate_to: vec![LOCAL_ONLY.to_owned()],
                schema_version: success.schema_version.filter(|version| !version.is_empty()),
                ..MessageMetadata::default()
            },
        });
        if producer.schedule() {
            self.writable.push_back(id);
        }
    }

    pub(super) fn write_producer(&mut self, id: u64, out: &mut BytesMut, now: Moment) {
        let Some(producer) = self.producers.get_mut(&id) else { return };
        let deadline = now + self.times.answer;
        match producer.write(id, self.message_bytes_max, out, &mut self.events, deadline) {
            WriteTurn::Again => self.writable.push_back(id),
            WriteTurn::Over => {}
            WriteTurn::Close => {
                let cause = error::unreachable(&self.address, "closed");
                self.abandon_producer(id, &cause, now);
            }
        }
    }

    /// Tells the broker to close the producer.
    pub(super) fn close_producer(&mut self, producer_id: u64, now: Moment) {
        let request_id = self.begin(RequestKind::Done, Vec::new(), now);
        self.control.push_back(CommandCloseProducer::new(producer_id, request_id).into());
    }

    pub(super) fn handle_receipt(&mut self, receipt: &CommandSendReceipt) {
        let (id, sequence_id) = (receipt.producer_id, receipt.sequence_id);
        let Some(producer) = self.producers.get_mut(&id) else { return };
        let Some(entry) = producer.in_flight.pop_front() else { return };
        if entry.sequence_id != sequence_id {
            let expected = entry.sequence_id;
            producer.in_flight.push_front(entry);
            // A missing receipt means a message of unknown fate, and all later receipts are off by
            // one.
            let cause = format_args!("expected receipt {expected}, got {sequence_id}");
            return self.fail(error::unreachable(&self.address, cause));
        }
        let stored = entry_of(receipt.message_id.as_ref());
        for (index, token) in (0_u32..).zip(entry.tokens) {
            let batch_index = entry.batched.then_some(index);
            let place = stored.clone().map(|position| Position { batch_index, ..position });
            self.events.push_back(ConnectionEvent::Published(token, place));
        }
        if producer.schedule() {
            self.writable.push_back(id);
        }
    }

    /// The broker has not stored an entry. A refusal of the content is final. Any other error ends
    /// the producer, because later entries may be stored out of order.
    ///
    /// For a batch the broker does not say which message it refuses, or it refuses the batch as a
    /// whole. None is stored, and from then on each message goes alone, so that only the offending
    /// message is refused.
    pub(super) fn handle_send_error(&mut self, refusal: &CommandSendError) {
        let (id, sequence_id) = (refusal.producer_id, refusal.sequence_id);
        // A producer that is being opened has sent nothing.
        let open = self.producers.get_mut(&id).filter(|producer| producer.is_open());
        let Some(producer) = open else { return };
        let cause = error::server(&self.address, refusal.error, &refusal.message);
        if refusal.error != ServerError::NotAllowedError as i32 {
            let now = self.heard;
            return self.abandon_producer(id, &cause, now);
        }
        let place = producer.in_flight.iter().position(|entry| entry.holds(sequence_id));
        let Some(entry) = place.and_then(|at| producer.in_flight.remove(at)) else { return };
        let fate = if entry.batched { PublishError::NotStored } else { PublishError::Refused };
        if entry.batched {
            producer.batching = Batching::Off;
        }
        for token in entry.tokens {
            self.events
                .push_back(ConnectionEvent::Published(token, Err(fate(cause.cause.clone()))));
        }
        if producer.schedule() {
            self.writable.push_back(id);
        }
    }

    /// The broker has closed a producer; if it was being opened, the open fails.
    pub(super) fn producer_closed(&mut self, id: u64, cause: &TransportError, now: Moment) {
        self.end_producer(id, cause);
        for request in self.requests.take_of(|kind| kind == RequestKind::Producer(id)) {
            self.give_up(request, cause, now);
        }
    }

    /// Ends a producer.
    pub(super) fn end_producer(&mut self, id: u64, cause: &TransportError) {
        let Some(producer) = self.producers.remove(&id) else { return };
        self.end_of_producer(id, producer, cause);
    }

    /// Ends a producer and tells the broker.
    pub(super) fn abandon_producer(&mut self, id: u64, cause: &TransportError, now: Moment) {
        self.end_producer(id, cause);
        self.close_producer(id, now);
    }

    pub(super) fn end_of_producer(
        &mut self,
        id: u64,
        producer: ConnectionProducer<P>,
        cause: &TransportError,
    ) {
        producer.end(cause, &mut self.events);
        self.events.push_back(ConnectionEvent::ProducerEnded(id, cause.clone()));
    }
}
