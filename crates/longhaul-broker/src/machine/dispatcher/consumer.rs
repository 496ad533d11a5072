//! A consumer of a subscription, as the dispatcher sees it.

use super::owners::HashRange;

/// A consumer, by its connection and the id that it has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey {
    /// Its connection.
    pub conn: u64,
    /// What its client calls it.
    pub id: u64,
}

/// How consumers share a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchMode {
    /// One alone.
    Exclusive,
    /// All, in turn.
    Shared,
    /// One at a time, the others wait.
    Failover,
    /// All, each the messages of its keys.
    KeyShared(KeyPolicy),
}

impl DispatchMode {
    /// Whether several consumers get entries at a time, each of which is acknowledged by itself.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::KeyShared(_))
    }
}

/// How keys are shared. All consumers of a subscription have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyPolicy {
    /// Consumers say which hashes they want.
    pub is_sticky: bool,
    /// A key that moves to another consumer does not wait for the former one.
    pub allows_disorder: bool,
}

/// A consumer of a subscription.
#[derive(Clone, Debug)]
pub struct DispatcherConsumer {
    /// Who it is.
    pub key: ConsumerKey,
    /// What it calls itself.
    pub name: String,
    /// Lower ones are served first.
    pub priority: i32,
    /// Messages that it may still be sent; negative after a batch.
    pub permits: i64,
    /// Messages that it has not acknowledged.
    pub unacked: u64,
    /// Bytes that its connection takes before it must have sent some.
    pub room: u64,
    /// In which turn of dispatching the room was looked up.
    pub(super) room_of: u64,
    /// The hashes of keys that it wants, when it is sticky.
    pub ranges: Vec<HashRange>,
    /// Reads the compacted view.
    pub reads_compacted: bool,
    /// The answer to its SUBSCRIBE was sent.
    pub(in crate::machine) is_subscribed: bool,
    /// It was told that the topic has ended.
    pub(super) knows_end: bool,
    /// Wall clock, in ms since the epoch.
    pub since: u64,
    /// Entries that it was sent.
    pub entries_out: u64,
    /// Messages that it was sent.
    pub messages_out: u64,
    /// Bytes that it was sent.
    pub bytes_out: u64,
}

impl DispatcherConsumer {
    /// A consumer without permits.
    #[must_use]
    pub fn new(key: ConsumerKey, name: String, priority: i32, since: u64) -> Self {
        Self {
            key,
            name,
            priority,
            permits: 0,
            unacked: 0,
            room: u64::MAX,
            room_of: 0,
            ranges: Vec::new(),
            reads_compacted: false,
            is_subscribed: false,
            knows_end: false,
            since,
            entries_out: 0,
            messages_out: 0,
            bytes_out: 0,
        }
    }
}

/// How much may be unacknowledged; 0 is without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnackedLimits {
    /// Messages of one consumer.
    pub per_consumer: u64,
    /// Messages of all.
    pub per_subscription: u64,
}
