//! Messages: as they are stored on a topic, and as they are published.

use crate::{Position, Properties};
use bytes::Bytes;
use std::sync::Arc;

/// A message as stored on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Position; orders the messages of one partition.
    pub position: Position,
    /// `None` for a message outside a batch; otherwise the number of unacknowledged messages of its
    /// entry, including this one.
    pub batch_size: Option<u32>,
    /// Partition key as text.
    pub key: Option<String>,
    /// The key by which a Key_Shared subscription distributes the message.
    pub order_key: OrderKey,
    /// User properties.
    pub properties: Properties,
    /// Body, decompressed; empty for a tombstone.
    pub payload: Bytes,
    /// Why the body cannot be read, if it cannot. Key and properties may be missing too.
    pub undecodable: Option<Arc<str>>,
    /// The message is a tombstone: it carries the `null_value` flag.
    pub null: bool,
    /// Publish time by the producer's wall clock, in ms since the epoch.
    pub publish_time_ms: u64,
    /// The cluster that the message was published in, if it was replicated from another one.
    pub replicated_from: Option<String>,
    /// Number of earlier deliveries, as far as the broker remembers. The count is lost when the
    /// broker restarts or a consumer dies.
    pub redelivery_count: u32,
}

impl Message {
    /// An empty message at this position.
    #[must_use]
    pub const fn at(position: Position) -> Self {
        Self {
            position,
            batch_size: None,
            key: None,
            order_key: OrderKey::OfMessage,
            properties: Properties::new(),
            payload: Bytes::new(),
            undecodable: None,
            null: false,
            publish_time_ms: 0,
            replicated_from: None,
            redelivery_count: 0,
        }
    }
}

/// A message to publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Partition key.
    pub key: Option<String>,
    /// User properties.
    pub properties: Properties,
    /// Body.
    pub payload: Bytes,
    /// The message is a tombstone: readers see a null, and compaction removes the key. The body is
    /// empty.
    pub null: bool,
    /// When the event of the message happened, in ms since the epoch.
    pub event_time_ms: Option<u64>,
    /// Earliest delivery, in ms since the epoch. A message with this field gets an entry of its
    /// own.
    pub deliver_at_ms: Option<u64>,
}

/// The key by which a Key_Shared subscription distributes a message: that of its entry. See
/// [`Message::order_key`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum OrderKey {
    /// The message's own partition key, if it has one.
    #[default]
    OfMessage,
    /// Another key: the ordering key, or the key of the message's batch.
    Other(Bytes),
    /// No key, even if the message has one in its batch.
    None,
}

impl Message {
    /// The key whose messages a Key_Shared subscription keeps in order; `None` when there is none.
    #[must_use]
    pub fn order_key(&self) -> Option<&[u8]> {
        match &self.order_key {
            OrderKey::OfMessage => self.key.as_deref().map(str::as_bytes),
            OrderKey::Other(key) => Some(key),
            OrderKey::None => None,
        }
    }
}
