//! The changes of state that the log records, as Protocol Buffers.
//!
//! A checkpoint is also a list of changes: those that lead from the empty state to its state. Every
//! newer version reads the changes of an older one; fields are only ever added.

use bytes::Bytes;
use longhaul_wire::messages::Schema;
use std::collections::BTreeMap;

/// A log record that is not an entry.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChangeRecord {
    #[prost(
        oneof = "StateChange",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21"
    )]
    pub change: Option<StateChange>,
}

/// A change. Topics and subscriptions are identified by id, entries by ordinal.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StateChange {
    #[prost(message, tag = "1")]
    CreateTopic(CreateTopic),
    #[prost(message, tag = "2")]
    DeleteTopic(DeleteTopic),
    #[prost(message, tag = "3")]
    OpenLedger(OpenLedger),
    #[prost(message, tag = "4")]
    CreateSubscription(CreateSubscription),
    #[prost(message, tag = "5")]
    DeleteSubscription(DeleteSubscription),
    #[prost(message, tag = "6")]
    Ack(Ack),
    #[prost(message, tag = "7")]
    ResetCursor(ResetCursor),
    #[prost(message, tag = "8")]
    AddSchema(AddSchema),
    #[prost(message, tag = "9")]
    DeleteSchemas(DeleteSchemas),
    #[prost(message, tag = "10")]
    Trim(Trim),
    #[prost(message, tag = "11")]
    Compacted(Compacted),
    #[prost(message, tag = "12")]
    SetPolicies(SetPolicies),
    #[prost(message, tag = "13")]
    SetPartitions(SetPartitions),
    #[prost(message, tag = "14")]
    CreateNamespace(CreateNamespace),
    #[prost(message, tag = "15")]
    DeleteNamespace(DeleteNamespace),
    #[prost(message, tag = "16")]
    Sequence(Sequence),
    #[prost(message, tag = "17")]
    TopicEpoch(TopicEpoch),
    #[prost(message, tag = "18")]
    TopicEnd(TopicEnd),
    #[prost(message, tag = "19")]
    Numbers(Numbers),
    #[prost(message, tag = "20")]
    Terminate(Terminate),
    #[prost(message, tag = "21")]
    NoteSubscription(NoteSubscription),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateTopic {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(string, tag = "2")]
    pub name: String,
    /// Wall clock, in ms since the epoch.
    #[prost(uint64, tag = "3")]
    pub created_at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteTopic {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct OpenLedger {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(uint64, tag = "2")]
    pub ledger: u64,
    /// Ordinal of the ledger's entry 0.
    #[prost(uint64, tag = "3")]
    pub first: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateSubscription {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(uint32, tag = "2")]
    pub subscription: u32,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(uint64, tag = "4")]
    pub mark: u64,
    /// Properties from the creator.
    #[prost(btree_map = "string, string", tag = "5")]
    pub properties: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteSubscription {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(uint32, tag = "2")]
    pub subscription: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ack {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(uint32, tag = "2")]
    pub subscription: u32,
    /// Everything before this ordinal is acknowledged.
    #[prost(uint64, optional, tag = "3")]
    pub before: Option<u64>,
    /// Single entries.
    #[prost(uint64, repeated, tag = "4")]
    pub entries: Vec<u64>,
    /// Alternating starts and exclusive ends.
    #[prost(uint64, repeated, tag = "5")]
    pub ranges: Vec<u64>,
    #[prost(message, repeated, tag = "6")]
    pub batches: Vec<BatchAck>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BatchAck {
    #[prost(uint64, tag = "1")]
    pub ordinal: u64,
    /// A set bit is an unacknowledged message, the lowest bit first.
    #[prost(fixed64, repeated, tag = "2")]
    pub open: Vec<u64>,
    /// Number of messages in the batch.
    #[prost(uint32, tag = "3")]
    pub messages: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ResetCursor {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(uint32, tag = "2")]
    pub subscription: u32,
    #[prost(uint64, tag = "3")]
    pub mark: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AddSchema {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub schema: Option<Schema>,
    /// Wall clock, in ms since the epoch.
    #[prost(uint64, tag = "3")]
    pub added_at: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteSchemas {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Trim {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    /// The first entry that is kept.
    #[prost(uint64, tag = "2")]
    pub first: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Compacted {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    /// The first entry that was not compacted.
    #[prost(uint64, tag = "2")]
    pub horizon: u64,
    #[prost(string, tag = "3")]
    pub file: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetPolicies {
    /// Name of a topic or a namespace.
    #[prost(string, tag = "1")]
    pub scope: String,
    /// JSON; empty removes the settings.
    #[prost(bytes = "bytes", tag = "2")]
    pub policies: Bytes,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetPartitions {
    #[prost(string, tag = "1")]
    pub name: String,
    /// 0 means no longer a partitioned topic.
    #[prost(uint32, tag = "2")]
    pub partitions: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateNamespace {
    /// `tenant`, or `tenant/namespace`.
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteNamespace {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Highest sequence id of a producer, on a topic with deduplication.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sequence {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(string, tag = "2")]
    pub producer: String,
    #[prost(uint64, tag = "3")]
    pub highest: u64,
    /// Number of the producer's last publish: a later one is higher.
    #[prost(uint64, tag = "4")]
    pub last_use: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TopicEpoch {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
}

/// The ordinal of the next entry. Only in checkpoints, for topics whose last entries were removed.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TopicEnd {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(uint64, tag = "2")]
    pub end: u64,
}

/// The next free ids. Only in checkpoints: an id is never used twice.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Numbers {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(uint64, tag = "2")]
    pub ledger: u64,
}

/// Nothing more is published to the topic.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Terminate {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
}

/// Replaces the properties of a subscription.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NoteSubscription {
    #[prost(uint32, tag = "1")]
    pub topic: u32,
    #[prost(uint32, tag = "2")]
    pub subscription: u32,
    #[prost(btree_map = "string, string", tag = "3")]
    pub properties: BTreeMap<String, String>,
}

/// Conversions from each change's type to the enum.
macro_rules! from_change {
    ($($name:ident),* $(,)?) => {$(
        impl From<$name> for StateChange {
            fn from(change: $name) -> Self {
                Self::$name(change)
            }
        }
    )*};
}

from_change! {
    CreateTopic, DeleteTopic, OpenLedger, CreateSubscription, DeleteSubscription, Ack, ResetCursor, AddSchema, DeleteSchemas,
    Trim, Compacted, SetPolicies, SetPartitions, CreateNamespace, DeleteNamespace, Sequence, TopicEpoch, TopicEnd, Numbers,
    Terminate, NoteSubscription,
}
