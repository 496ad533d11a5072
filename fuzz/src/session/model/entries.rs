//! What an entry holds, by the rules of Pulsar.

use bytes::Bytes;
use longhaul_transport::Position;
use longhaul_wire::batch::Singles;
use longhaul_wire::compression;
use longhaul_wire::messages::{CommandMessage, MessageMetadata};
use longhaul_wire::payload::Payload;

/// Batches that say they are larger are not taken apart.
const BATCH_MESSAGES_MAX: i32 = 100_000;
/// Those up to here are believed to be what they say, larger ones must have the bytes for it.
const BATCH_MESSAGES_BELIEVED: i32 = 1_000;
const SINGLE_BYTES_MIN: usize = 6;
/// Largest body that is unpacked.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

pub(super) struct Entry {
    /// Messages that the broker has counted.
    pub(super) counted: i64,
    pub(super) places: Vec<Place>,
}

/// A message that is to be delivered.
pub(super) struct Place {
    pub(super) position: Position,
    pub(super) body: Body,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    Of(Bytes),
    Unreadable,
    /// It is compressed, and may even hide that the message is not there any more.
    Unknown,
}

/// What is to be delivered of an entry.
pub(super) fn expected(command: &CommandMessage, payload: &Payload) -> Entry {
    let id = &command.message_id;
    let position = |batch_index| Position { ledger: id.ledger_id, entry: id.entry_id, batch_index };
    let alone = |counted, body| Entry {
        counted: i64::from(counted),
        places: vec![Place { position: position(None), body }],
    };
    let metadata = payload.metadata();
    if payload.verify().is_err() || metadata.is_err() {
        let claimed = metadata.map_or(1, |it| it.num_messages_in_batch());
        let is_sane = (1..=BATCH_MESSAGES_MAX).contains(&claimed);
        let counted = if is_sane { size(open(command, claimed)) } else { 1 };
        return Entry { counted, ..alone(1, Body::Unreadable) };
    }
    let metadata = metadata.unwrap_or_default();
    match metadata.num_messages_in_batch {
        None => alone(1, body(&metadata, payload.body())),
        Some(count @ 1..=BATCH_MESSAGES_MAX) if is_believed(count, &metadata, &payload.body()) => {
            let bodies = bodies(&metadata, payload.body(), count);
            let indices: Vec<u32> = open(command, count).collect();
            let counted = size(indices.iter());
            let mut bodies = bodies.into_iter();
            let mut places = Vec::new();
            let mut at = 0;
            for index in indices {
                let found = bodies.nth((index - at) as usize).unwrap_or(Some(Body::Unreadable));
                at = index + 1;
                // Compaction has removed those without a body.
                if let Some(body) = found {
                    places.push(Place { position: position(Some(index)), body });
                }
            }
            Entry { counted, places }
        }
        Some(count) => alone(count.max(1), Body::Unreadable),
    }
}

/// Whether a batch has the bytes for so many messages.
fn is_believed(count: i32, metadata: &MessageMetadata, packed: &Bytes) -> bool {
    let size = metadata.uncompressed_size();
    let unpacked = compression::kind(metadata.compression)
        .and_then(|kind| compression::unpack(kind, packed, size, BODY_BYTES_MAX));
    let bytes = match unpacked {
        Ok(body) if is_readable(metadata) => body.len(),
        _ => packed.len(),
    };
    count <= BATCH_MESSAGES_BELIEVED || count.unsigned_abs() as usize <= bytes / SINGLE_BYTES_MIN
}

/// Messages of a batch that are not acknowledged yet: their bits are set, or there are none.
fn open(command: &CommandMessage, count: i32) -> impl Iterator<Item = u32> {
    (0..count.unsigned_abs()).filter(|index| {
        let word = command.ack_set.get(*index as usize / 64);
        command.ack_set.is_empty() || word.is_some_and(|it| it & (1 << (index % 64)) != 0)
    })
}

fn size(of: impl Iterator) -> i64 {
    i64::try_from(of.count()).expect("a count")
}

fn is_readable(metadata: &MessageMetadata) -> bool {
    metadata.encryption_keys.is_empty() && metadata.num_chunks_from_msg.is_none_or(|it| it <= 1)
}

fn body(metadata: &MessageMetadata, body: Bytes) -> Body {
    if !is_readable(metadata) {
        Body::Unreadable
    } else if metadata.compression.unwrap_or_default() == 0 {
        Body::Of(body)
    } else {
        Body::Unknown
    }
}

/// The messages of a batch as far as they can be read; `None` for what compaction has removed.
fn bodies(metadata: &MessageMetadata, whole: Bytes, count: i32) -> Vec<Option<Body>> {
    match body(metadata, whole) {
        Body::Of(whole) => {
            let singles = Singles::new(whole, count.unsigned_abs() as usize);
            let readable = singles.filter_map(Result::ok);
            let body = |it: longhaul_wire::batch::Single| {
                (!it.metadata.compacted_out()).then_some(Body::Of(it.body))
            };
            readable.map(body).collect()
        }
        Body::Unreadable => Vec::new(),
        Body::Unknown => (0..count).map(|_| Some(Body::Unknown)).collect(),
    }
}
