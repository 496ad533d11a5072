//! Messages: as they are stored on a topic, and as they are published.

use crate::{Position, Properties};
use bytes::Bytes;
use std::sync::Arc;

/// A message as it lies on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where it lies; orders the messages of one partition.
    pub position: Position,
    /// `None` when it came alone; otherwise how many messages of its entry are still to be
    /// acknowledged, itself included.
    pub batch_size: Option<u32>,
    /// Partition key as text.
    pub key: Option<String>,
    /// By which key a Key_Shared subscription deals the message.
    pub order_key: OrderKey,
    /// User properties.
    pub properties: Properties,
    /// Body, decompressed; empty for a tombstone.
    pub payload: Bytes,
    /// Why the body cannot be read, where it cannot. Key and properties may be missing too.
    pub undecodable: Option<Arc<str>>,
    /// The message is a tombstone: it carries the `null_value` flag.
    pub null: bool,
    /// Publish time by the producer's wall clock, in ms since the epoch.
    pub publish_time_ms: u64,
    /// The cluster that it was published in, where it was replicated from another one.
    pub replicated_from: Option<String>,
    /// How often the broker has delivered it before, as far as it remembers: not over its restarts,
    /// nor after a consumer died.
    pub redelivery_count: u32,
}

impl Message {
    /// One that lies here, and has nothing else.
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
    /// It is a tombstone: readers see a null, and compaction removes the key. The body is empty.
    pub null: bool,
    /// When what it tells of happened, in ms since the epoch.
    pub event_time_ms: Option<u64>,
    /// Not delivered before this time, in ms since the epoch. It then has an entry of its own.
    pub deliver_at_ms: Option<u64>,
}

/// By which key a Key_Shared subscription deals a message: that of its entry. See
/// [`Message::order_key`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum OrderKey {
    /// By the message's own partition key, if it has one.
    #[default]
    OfMessage,
    /// By another one: the ordering key, or the key of the batch that the message came in.
    Other(Bytes),
    /// By none, whatever key the message has in its batch.
    None,
}

impl Message {
    /// The key whose messages a Key_Shared subscription keeps in order; `None` when it has none.
    #[must_use]
    pub fn order_key(&self) -> Option<&[u8]> {
        match &self.order_key {
            OrderKey::OfMessage => self.key.as_deref().map(str::as_bytes),
            OrderKey::Other(key) => Some(key),
            OrderKey::None => None,
        }
    }
}
