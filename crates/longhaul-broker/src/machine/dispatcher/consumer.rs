//! A consumer of a subscription, in the dispatcher.

use super::owners::HashRange;

/// A consumer, by its connection and its id there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey {
    /// Id of the connection.
    pub conn: u64,
    /// Id that the client has chosen.
    pub id: u64,
}

/// How consumers share a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchMode {
    /// Only one consumer is allowed.
    Exclusive,
    /// All consumers, in turn.
    Shared,
    /// One consumer at a time; the others wait.
    Failover,
    /// All consumers; each gets the messages of its keys.
    KeyShared(KeyPolicy),
}

impl DispatchMode {
    /// Whether several consumers get entries at the same time, which are acknowledged individually.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::KeyShared(_))
    }
}

/// How keys are shared. All consumers of a subscription have the same policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyPolicy {
    /// Whether consumers choose their hashes.
    pub is_sticky: bool,
    /// Whether a key that moves to another consumer need not wait for the former one.
    pub allows_disorder: bool,
}

/// A consumer of a subscription.
#[derive(Clone, Debug)]
pub struct DispatcherConsumer {
    /// Its connection and id.
    pub key: ConsumerKey,
    /// Name that the client has chosen.
    pub name: String,
    /// Lower values are served first.
    pub priority: i32,
    /// Messages that it may still be sent; negative after a batch.
    pub permits: i64,
    /// Unacknowledged messages.
    pub unacked: u64,
    /// Bytes that its connection accepts before some must have been sent.
    pub window: u64,
    /// The turn of dispatching in which `window` was determined.
    pub(super) room_of: u64,
    /// The hashes that a sticky consumer has chosen.
    pub ranges: Vec<HashRange>,
    /// Whether it reads the compacted view.
    pub reads_compacted: bool,
    /// Whether the answer to its SUBSCRIBE was sent.
    pub(in crate::machine) is_subscribed: bool,
    /// Whether it was told whether it is active, and is told of changes.
    pub(in crate::machine) is_told: bool,
    /// Whether it was told that the topic has ended.
    pub(super) knows_end: bool,
    /// Wall clock, in ms since the epoch.
    pub since: u64,
    /// Entries sent to it.
    pub entries_out: u64,
    /// Messages sent to it.
    pub messages_out: u64,
    /// Bytes sent to it.
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
            window: u64::MAX,
            room_of: 0,
            ranges: Vec::new(),
            reads_compacted: false,
            is_subscribed: false,
            is_told: false,
            knows_end: false,
            since,
            entries_out: 0,
            messages_out: 0,
            bytes_out: 0,
        }
    }
}

/// Limits of unacknowledged messages; 0 is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnackedLimits {
    /// Per consumer.
    pub per_consumer: u64,
    /// Per subscription.
    pub per_subscription: u64,
}
