//! Splits an entry, as the broker delivers it, into its messages.
//!
//! Unreadable messages are delivered too, with their position and the reason: the receiver decides
//! what to do and can acknowledge them. No message is dropped because it is malformed.

use bytes::Bytes;
use longhaul_transport::{Message, OrderKey};
use longhaul_types::{Position, Properties};
use longhaul_wire::batch::{Single, Singles};
use longhaul_wire::compression;
use longhaul_wire::head::MetadataHead;
use longhaul_wire::messages::{CommandMessage, CompressionType, KeyValue};
use longhaul_wire::payload::{Payload, PayloadDecodeError};
use std::sync::Arc;

/// Largest body after decompression.
pub(super) const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Messages of a batch that are unpacked at most.
const BATCH_MESSAGES_MAX: u32 = 100_000;
/// Number of messages that a batch may claim regardless of its size: Pulsar's clients make batches
/// of 1,000, which may be compressed to almost nothing and then encrypted.
const BATCH_MESSAGES_BELIEVED: u32 = 1_000;
/// Smallest size of a message in a batch, in bytes: the size of its metadata, and in it the size of
/// its body.
const SINGLE_BYTES_MIN: usize = 6;

/// An unpacked entry.
#[derive(Debug)]
pub(super) struct UnpackedEntry {
    /// The messages that are to be delivered. `None` if the entry is compressed and would unpack to
    /// more than the room that is left.
    pub(super) messages: Option<Vec<Message>>,
    /// Messages as the broker counts them.
    pub(super) counted: u32,
}

/// Splits an entry. `damage` says that its checksum is wrong; `room` is the largest body that may
/// be unpacked.
pub(super) fn unpack(
    command: &CommandMessage,
    payload: &Payload,
    damage: Option<&PayloadDecodeError>,
    room: usize,
) -> UnpackedEntry {
    let metadata = match (damage, payload.head()) {
        (None, Ok(metadata)) => metadata,
        (damage, metadata) => {
            let cause = damage.cloned().or_else(|| metadata.err());
            let cause = cause.map(|cause| cause.to_string()).unwrap_or_default();
            let counted = counted_of_damaged(command, payload);
            return alone(command, &MetadataHead::default(), counted, &cause);
        }
    };
    let packed = payload.body();
    if !has_room(&metadata, room) {
        let counted = counted_of_damaged(command, payload);
        return UnpackedEntry { messages: None, counted };
    }
    let body = open(&metadata, &packed);
    let bytes = body.as_ref().map_or(packed.len(), Bytes::len);
    match metadata.num_messages_in_batch {
        Some(count) => match u32::try_from(count) {
            Ok(count @ 1..=BATCH_MESSAGES_MAX) if is_believed(count, bytes) => {
                batch(command, &metadata, body, count)
            }
            _ => {
                // Brokers count the number that an entry claims, at least one.
                let counted = u32::try_from(count).unwrap_or(1).max(1);
                let cause = format!("a batch of {count} messages in {bytes} bytes");
                alone(command, &metadata, counted, &cause)
            }
        },
        None => {
            let message = message(command, metadata, body);
            UnpackedEntry { messages: Some(vec![message]), counted: 1 }
        }
    }
}

/// Whether an entry of this size may hold this many messages. Every message takes memory, readable
/// or not, so the claimed number is not trusted.
const fn is_believed(count: u32, bytes: usize) -> bool {
    count <= BATCH_MESSAGES_BELIEVED || count as usize <= bytes / SINGLE_BYTES_MIN
}

/// Whether the body may be unpacked now. A body above the general limit passes here; unpacking then
/// reports that it is too large.
fn has_room(metadata: &MetadataHead, room: usize) -> bool {
    let size = metadata.uncompressed_size.unwrap_or_default() as usize;
    let is_packed =
        compression::kind(metadata.compression).is_ok_and(|kind| kind != CompressionType::None);
    !is_packed || size <= room || size > BODY_BYTES_MAX
}

/// The unpacked body, or why it cannot be unpacked.
fn open(metadata: &MetadataHead, body: &Bytes) -> Result<Bytes, Arc<str>> {
    if metadata.is_encrypted {
        return Err("it is encrypted".into());
    }
    if let Some(chunks) = metadata.num_chunks_from_msg.filter(|chunks| *chunks > 1) {
        let bytes = metadata.total_chunk_msg_size.unwrap_or_default();
        let cause = format!(
            "it is one of {chunks} chunks of a message of {bytes} bytes: put large data into a store, \
             and publish a reference to it"
        );
        return Err(cause.into());
    }
    let size = metadata.uncompressed_size.unwrap_or_default();
    compression::kind(metadata.compression)
        .and_then(|kind| compression::unpack(kind, body, size, BODY_BYTES_MAX))
        .map_err(|cause| cause.to_string().into())
}

/// Number of messages that the broker has counted for a damaged entry: the number in its metadata,
/// if plausible. The broker reads the same number, and damage is more likely in the larger body.
pub(super) fn counted_of_damaged(command: &CommandMessage, payload: &Payload) -> u32 {
    let claimed = payload.head().map_or(1, |head| head.num_messages_in_batch.unwrap_or(1));
    match u32::try_from(claimed) {
        Ok(count @ 1..=BATCH_MESSAGES_MAX) => counted(command, count),
        _ => 1,
    }
}

/// Messages that the broker counts for a batch: those not yet acknowledged.
fn counted(command: &CommandMessage, count: u32) -> u32 {
    let open = (0..count).filter(|index| is_open(&command.ack_set, *index)).count();
    u32::try_from(open).unwrap_or(u32::MAX)
}

/// An entry of which only the position is known.
fn alone(
    command: &CommandMessage,
    metadata: &MetadataHead,
    counted: u32,
    cause: &str,
) -> UnpackedEntry {
    let message = message(command, metadata.clone(), Err(cause.into()));
    UnpackedEntry { messages: Some(vec![message]), counted }
}

fn message(
    command: &CommandMessage,
    metadata: MetadataHead,
    body: Result<Bytes, Arc<str>>,
) -> Message {
    let (payload, undecodable) = body_or_cause(body);
    Message {
        position: position(command, None),
        batch_size: None,
        key: metadata.partition_key,
        order_key: metadata.ordering_key.map_or(OrderKey::OfMessage, OrderKey::Other),
        properties: properties(metadata.properties),
        payload,
        undecodable,
        null: metadata.null_value,
        publish_time_ms: metadata.publish_time,
        replicated_from: metadata.replicated_from,
        redelivery_count: command.redelivery_count.unwrap_or_default(),
    }
}

fn batch(
    command: &CommandMessage,
    metadata: &MetadataHead,
    body: Result<Bytes, Arc<str>>,
    count: u32,
) -> UnpackedEntry {
    let open = counted(command, count);
    let (mut singles, mut cause) = match body {
        Ok(body) => (Some(Singles::new(body, count as usize)), None),
        Err(cause) => (None, Some(cause)),
    };
    let order_key = order_key_of_batch(metadata);
    let mut messages = Vec::with_capacity(open as usize);
    for index in 0..count {
        let single = match singles.as_mut().and_then(Iterator::next) {
            Some(Ok(single)) => Some(single),
            Some(Err(error)) => {
                cause = Some(error.to_string().into());
                None
            }
            None => None,
        };
        // Messages that were compacted away or already acknowledged do not exist any more.
        let removed = single.as_ref().is_some_and(|single| single.metadata.compacted_out());
        if removed || !is_open(&command.ack_set, index) {
            continue;
        }
        let order_key = order_key.clone();
        let message = member(command, metadata, index, open, single, cause.as_ref());
        messages.push(Message { order_key, ..message });
    }
    UnpackedEntry { messages: Some(messages), counted: open }
}

/// A batch is distributed as a whole, by its own key.
fn order_key_of_batch(batch: &MetadataHead) -> OrderKey {
    let of_batch =
        || batch.partition_key.as_deref().map(|key| Bytes::copy_from_slice(key.as_bytes()));
    batch.ordering_key.clone().or_else(of_batch).map_or(OrderKey::None, OrderKey::Other)
}

fn member(
    command: &CommandMessage,
    batch: &MetadataHead,
    index: u32,
    batch_size: u32,
    single: Option<Single>,
    cause: Option<&Arc<str>>,
) -> Message {
    let unreadable = || Err(cause.cloned().unwrap_or_else(|| "its batch ends before it".into()));
    let (metadata, body) = match single {
        Some(Single { metadata, body }) => (metadata, Ok(body)),
        None => (Default::default(), unreadable()),
    };
    let (payload, undecodable) = body_or_cause(body);
    Message {
        position: position(command, Some(index)),
        batch_size: Some(batch_size),
        key: metadata.partition_key,
        order_key: OrderKey::OfMessage,
        properties: properties(metadata.properties),
        payload,
        undecodable,
        null: metadata.null_value.unwrap_or(false),
        publish_time_ms: batch.publish_time,
        replicated_from: batch.replicated_from.clone(),
        redelivery_count: command.redelivery_count.unwrap_or_default(),
    }
}

fn body_or_cause(body: Result<Bytes, Arc<str>>) -> (Bytes, Option<Arc<str>>) {
    match body {
        Ok(body) => (body, None),
        Err(cause) => (Bytes::new(), Some(cause)),
    }
}

const fn position(command: &CommandMessage, batch_index: Option<u32>) -> Position {
    let id = &command.message_id;
    Position { ledger: id.ledger_id, entry: id.entry_id, batch_index }
}

fn properties(properties: Vec<KeyValue>) -> Properties {
    let pair = |KeyValue { key, value }| (key, value);
    Properties::from_bytes(properties.into_iter().map(pair).collect())
}

/// Whether the message of this index is unacknowledged. An empty set means that all are.
fn is_open(ack_set: &[i64], index: u32) -> bool {
    let word = ack_set.get(index as usize / 64);
    ack_set.is_empty() || word.is_some_and(|word| word >> (index % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_unpacked_that_fills_the_room_to_the_byte() {
        let largest = u32::try_from(BODY_BYTES_MAX).unwrap();
        for (kind, size, room, has) in [
            (CompressionType::Lz4, 10, 10, true),
            (CompressionType::Lz4, 11, 10, false),
            (CompressionType::Lz4, largest, 10, false),
            // It is delivered as too large, which needs no room.
            (CompressionType::Lz4, largest + 1, 10, true),
            (CompressionType::None, 11, 10, true),
        ] {
            let metadata = MetadataHead {
                compression: Some(kind as i32),
                uncompressed_size: Some(size),
                ..MetadataHead::default()
            };
            assert_eq!(has_room(&metadata, room), has, "{kind:?}: {size} bytes for {room}");
        }
    }

    #[test]
    fn a_message_in_one_chunk_is_whole() {
        let body = Bytes::from_static(b"body");
        for (chunks, whole) in [(None, true), (Some(1), true), (Some(2), false)] {
            let metadata = MetadataHead { num_chunks_from_msg: chunks, ..MetadataHead::default() };
            assert_eq!(open(&metadata, &body).is_ok(), whole, "{chunks:?}");
        }
    }
}
