//! Messages of the client crate, as the seam shows them.

use crate::task::Position;
use crate::transport::Message;
use bytes::Bytes;
use pulsar::consumer::Message as Received;
use pulsar::proto::MessageIdData;

/// A message of the crate, as the seam shows it.
///
/// Limits of the crate: a null inside a batch has lost its flag and shows as an empty body.
pub(super) fn from_crate(received: Received<Vec<u8>>) -> Message {
    let batch_size = received.message_id.batch_size.and_then(|size| u32::try_from(size).ok());
    let position = position(&received.message_id.id, batch_size.is_some());
    let metadata = received.payload.metadata;
    Message {
        position,
        batch_size,
        key: metadata.partition_key,
        properties: metadata.properties.into_iter().map(|p| (p.key, p.value)).collect(),
        payload: Bytes::from(received.payload.data),
        null: metadata.null_value.unwrap_or(false),
        publish_time_ms: metadata.publish_time,
    }
}

/// Where an id of the wire lies. The index counts only inside a batch: clients also send -1 or 0 outside of one.
pub(super) fn position(id: &MessageIdData, batched: bool) -> Position {
    let batch_index = id.batch_index.and_then(|index| u32::try_from(index).ok());
    Position {
        ledger: id.ledger_id,
        entry: id.entry_id,
        batch_index: batch_index.filter(|_| batched),
    }
}

/// Whether no message of this entry comes after this one.
pub(super) fn ends_entry(message: &Message) -> bool {
    match (message.position.batch_index, message.batch_size) {
        (Some(index), Some(size)) => index.saturating_add(1) >= size,
        _ => true,
    }
}

/// Whether this is the empty slot that compaction leaves in a batch. The crate drops the flag that says so; in a compacted
/// view a message without key has no meaning anyway.
pub(super) fn is_compacted_slot(message: &Message) -> bool {
    message.batch_size.is_some()
        && message.key.is_none()
        && message.payload.is_empty()
        && message.properties.is_empty()
}
