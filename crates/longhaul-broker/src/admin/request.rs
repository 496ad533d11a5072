//! What the admin interface asks of the broker's core, and what the core answers.
//!
//! Names are valid when they arrive here: topics in full, `persistent://tenant/namespace/name`, namespaces as
//! `tenant/namespace`. Whether they exist is for the core to say. A *topic* may be one without partitions, one partition
//! (`…-partition-N`), or, where a call says so, the whole of a partitioned topic.

use super::policies::{Action, Grants, Policies, Policy, PolicyLevels};
use super::stats::{InternalStats, TopicStats};
use crate::auth::Role;
use crate::metrics::MetricsSnapshot;
use longhaul_wire::payload::Payload;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AdminRequest {
    /// Whether it publishes and reads: [`AdminReply::Done`], or [`AdminError::Unavailable`].
    Health,
    /// Figures for Prometheus: [`AdminReply::Metrics`].
    Metrics {
        /// Who is shown no more than the topics that it may use; `None` for who may see everything.
        viewer: Option<Role>,
    },
    /// Figures of the topics, of the first 1,000 by name: [`AdminReply::AllStats`].
    AllStats,
    /// All tenants: [`AdminReply::Names`].
    Tenants,
    /// Creates a tenant; [`AdminError::Conflict`] when it exists.
    CreateTenant(String),
    /// Deletes a tenant; [`AdminError::Conflict`] while it has namespaces.
    DeleteTenant(String),
    /// The namespaces of a tenant, as `tenant/namespace`: [`AdminReply::Names`].
    Namespaces {
        /// Its name.
        tenant: String,
    },
    /// Something about one namespace.
    Namespace {
        /// As `tenant/namespace`.
        namespace: String,
        /// What.
        call: NamespaceCall,
    },
    /// Something about one topic.
    Topic {
        /// Its full name.
        topic: String,
        /// What.
        call: TopicCall,
    },
    /// Something about one subscription of a topic. On the whole of a partitioned topic it is done for each partition.
    Subscription {
        /// The topic's full name.
        topic: String,
        /// Its name.
        subscription: String,
        /// What.
        call: SubscriptionCall,
    },
}

/// Calls about a namespace. But for [`Create`](Self::Create), one that does not exist is [`AdminError::NotFound`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NamespaceCall {
    /// [`AdminError::Conflict`] when it exists, [`AdminError::NotFound`] when its tenant does not.
    Create {
        /// What it starts with; mostly empty.
        policies: Vec<Policy>,
    },
    /// [`AdminError::Conflict`] while it has topics, unless forced.
    Delete {
        /// Deletes its topics, too.
        force: bool,
    },
    /// Full names of topics without partitions, and of partitions: [`AdminReply::Names`].
    Topics,
    /// Full names of partitioned topics: [`AdminReply::Names`].
    PartitionedTopics,
    /// Closes all producers and consumers of all its topics, and starts new ledgers.
    Unload,
    /// What is set on it: [`AdminReply::Policies`].
    Policies,
    /// Changes one policy.
    SetPolicy(Policy),
    /// Who may use its topics: [`AdminReply::Grants`].
    Grants,
    /// Lets a role do these and nothing else. From then on, only who was granted something may use the namespace.
    Grant {
        /// Subject of its tokens.
        role: String,
        /// All that it may do.
        actions: Vec<Action>,
    },
    /// Takes all grants from a role. The namespace stays closed to who has none.
    Revoke {
        /// Subject of its tokens.
        role: String,
    },
}

/// Calls about a topic. But for creating one, a topic that does not exist is [`AdminError::NotFound`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TopicCall {
    /// Creates one without partitions, or a single partition; [`AdminError::Conflict`] when a topic of that name exists,
    /// partitioned or not.
    Create,
    /// Deletes it with its subscriptions; [`AdminError::PreconditionFailed`] while it has producers or consumers, unless forced.
    Delete {
        /// Closes producers and consumers, too.
        force: bool,
    },
    /// Creates a partitioned topic and its partitions; [`AdminError::Conflict`] when a topic of that name exists.
    CreatePartitioned {
        /// At least 1.
        partitions: u32,
    },
    /// Raises the number of partitions. The subscriptions of partition 0 come into being on the new ones.
    GrowPartitioned {
        /// [`AdminError::Conflict`] unless more than there are.
        partitions: u32,
    },
    /// Creates the partitions that are counted but not there. Existing ones are left alone.
    CreateMissingPartitions,
    /// Deletes a partitioned topic with its partitions.
    DeletePartitioned {
        /// As for [`Delete`](Self::Delete).
        force: bool,
    },
    /// How many partitions: [`AdminReply::Partitions`], 0 for an existing topic that has none.
    Partitions {
        /// Answers 0 for a topic that does not exist, when the broker would create it on first use.
        allow_auto_creation: bool,
    },
    /// [`AdminReply::Stats`]; [`AdminError::NotFound`] for a partitioned topic.
    Stats,
    /// [`AdminReply::PartitionedStats`]; [`AdminError::NotFound`] for one without partitions.
    PartitionedStats,
    /// [`AdminReply::InternalStats`]; [`AdminError::NotFound`] for a partitioned topic.
    InternalStats,
    /// The durable subscriptions; of a partitioned topic those of any of its partitions: [`AdminReply::Names`].
    /// The cursors that Pulsar has for itself, `__compaction` and `pulsar.dedup`, are not among them.
    Subscriptions,
    /// Starts a compaction, of a partitioned topic on all its partitions; [`AdminError::Conflict`] while one is under way.
    Compact,
    /// [`AdminReply::Compaction`]; [`AdminError::NotFound`] for a partitioned topic.
    Compaction,
    /// The last entry of the whole log: [`AdminReply::MessageId`], -1:-1 when it never had one.
    LastMessageId,
    /// [`AdminReply::Schema`]; [`AdminError::NotFound`] when there is none.
    Schema {
        /// The latest when absent.
        version: Option<u64>,
    },
    /// All versions: [`AdminReply::Schemas`], the oldest first.
    Schemas,
    /// Stores a schema, or finds the version of an equal one: [`AdminReply::SchemaVersion`]. The topic need not exist.
    CreateSchema(NewSchema),
    /// Forgets all versions: [`AdminReply::SchemaVersion`] of the last.
    DeleteSchema,
    /// Closes all producers and consumers and starts a new ledger; of a partitioned topic on all its partitions.
    Unload,
    /// Moves all subscriptions behind the last message, and deletes what is then needed no more whatever the retention. Pulsar
    /// keeps the entries of its current ledger; nobody may count on that.
    Truncate,
    /// Acknowledges for all subscriptions what was published at least this long ago.
    ExpireMessages {
        /// In seconds.
        age_s: u64,
    },
    /// [`AdminReply::Message`]; [`AdminError::NotFound`] when it is not, or no longer, there.
    Message(Position),
    /// Ends it: nothing more can be published. [`AdminReply::MessageId`] of the last message.
    Terminate,
    /// The same of all partitions: [`AdminReply::MessageIds`]; [`AdminError::NotFound`] for a topic without partitions.
    TerminatePartitions,
    /// The first message that was published then or later: [`AdminReply::MessageId`], where the next one will be if there is none.
    MessageIdAt {
        /// Milliseconds since 1970.
        timestamp_ms: u64,
    },
    /// The n-th message: [`AdminReply::Message`], or [`AdminError::NotFound`].
    Examine {
        /// Counts from the last one backwards.
        from_last: bool,
        /// From 1.
        nth: u64,
    },
    /// What its operators note about it: [`AdminReply::Properties`]. Also of a partitioned topic.
    Properties,
    /// Adds to that.
    SetProperties(BTreeMap<String, String>),
    /// Takes something of it away.
    RemoveProperty(String),
    /// Who may use it, by grants for the namespace and for the topic alone: [`AdminReply::Grants`]. The topic need not exist.
    Grants,
    /// Lets a role do these with the topic, besides what it may do in the namespace.
    Grant {
        /// Subject of its tokens.
        role: String,
        /// All that it may do.
        actions: Vec<Action>,
    },
    /// Takes the grants for the topic from a role.
    Revoke {
        /// Subject of its tokens.
        role: String,
    },
    /// The policies of all levels: [`AdminReply::PolicyLevels`]. Also of a partitioned topic;
    /// [`AdminError::PreconditionFailed`] for one of its partitions.
    Policies,
    /// Changes one policy of a topic, or of all partitions; otherwise as [`Policies`](Self::Policies). It is in force, and the
    /// broker has it on disk, before the answer is given.
    SetPolicy(Policy),
}

/// Calls about a subscription. But for creating one, a topic or subscription that does not exist is [`AdminError::NotFound`].
/// `__compaction` is none here: what is asked of it is [`AdminError::PreconditionFailed`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SubscriptionCall {
    /// Creates a durable one, and the topic where those come into being by use; [`AdminError::Conflict`] when it exists.
    Create {
        /// Where it starts.
        at: Start,
        /// What its creator notes.
        properties: BTreeMap<String, String>,
    },
    /// [`AdminError::PreconditionFailed`] while it has consumers, unless forced.
    Delete {
        /// Closes its consumers, too.
        force: bool,
    },
    /// Acknowledges everything that is there.
    SkipAll,
    /// Acknowledges the next entries.
    Skip {
        /// How many.
        entries: u64,
    },
    /// Moves it to the first entry published at this moment or later, and closes its consumers.
    ResetToTime {
        /// Milliseconds since 1970.
        timestamp_ms: u64,
    },
    /// Moves it, and closes its consumers, which subscribe again.
    Reset {
        /// Where to.
        to: Start,
    },
    /// Acknowledges what was published at least this long ago.
    ExpireMessages {
        /// In seconds.
        age_s: u64,
    },
    /// The n-th entry, from 1, that is not acknowledged: [`AdminReply::Message`]; [`AdminError::NotFound`] beyond the last.
    Peek {
        /// From 1.
        nth: u64,
    },
}

/// An entry's place. [`Position::NONE`] stands before all entries of a topic that never had one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    /// Ledger.
    pub(crate) ledger: i64,
    /// Entry in it; -1 before the first.
    pub(crate) entry: i64,
}

impl Position {
    /// No entry.
    pub(crate) const NONE: Self = Self { ledger: -1, entry: -1 };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ledger, self.entry)
    }
}

/// Where a subscription starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the first entry that is still there.
    Earliest,
    /// Behind the last entry.
    Latest,
    /// At this entry, or the next that exists.
    At(Position),
    /// Behind this entry.
    After(Position),
}

/// A schema to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewSchema {
    /// As in Pulsar's JSON: `JSON`, `AVRO`, `STRING`, …
    pub(crate) kind: String,
    /// Its definition.
    pub(crate) data: String,
    /// What its creator notes.
    pub(crate) properties: BTreeMap<String, String>,
}

/// A stored schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StoredSchema {
    /// From 0.
    pub(crate) version: u64,
    /// As in Pulsar's JSON: `JSON`, `AVRO`, `STRING`, …
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// When it was stored, in milliseconds since 1970.
    pub(crate) timestamp: u64,
    /// Its definition.
    pub(crate) data: String,
    /// What its creator noted.
    pub(crate) properties: BTreeMap<String, String>,
}

/// How far a compaction has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CompactionStatus {
    /// Where it stands.
    pub(crate) status: CompactionState,
    /// Why the last one failed; empty otherwise.
    #[serde(rename = "lastError")]
    pub(crate) last_error: String,
}

/// States of a compaction, since the topic was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum CompactionState {
    /// None was asked for.
    NotRun,
    /// One is under way.
    Running,
    /// The last one ended well.
    Success,
    /// The last one failed.
    Error,
}

/// A stored entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredMessage {
    /// Where it lies.
    pub(crate) position: Position,
    /// As its producer sent it.
    pub(crate) payload: Payload,
}

/// An answer. Which one belongs to which call is said there; calls that say nothing answer [`Done`](Self::Done).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AdminReply {
    /// It is done, and on disk.
    Done,
    /// Names, in order.
    Names(Vec<String>),
    /// Number of partitions.
    Partitions(u32),
    /// Figures of one topic.
    Stats(Box<TopicStats>),
    /// Figures of each partition by its full name.
    PartitionedStats {
        /// How many there should be.
        partitions: u32,
        /// Those that are there.
        stats: BTreeMap<String, TopicStats>,
    },
    /// Ledgers and cursors.
    InternalStats(Box<InternalStats>),
    /// State of a compaction.
    Compaction(CompactionStatus),
    /// An entry's place.
    MessageId(Position),
    /// Places by partition.
    MessageIds(BTreeMap<u32, Position>),
    /// Names and values.
    Properties(BTreeMap<String, String>),
    /// Figures by the full names of topics.
    AllStats(BTreeMap<String, TopicStats>),
    /// A schema.
    Schema(StoredSchema),
    /// Schemas.
    Schemas(Vec<StoredSchema>),
    /// Version of a schema.
    SchemaVersion(u64),
    /// An entry.
    Message(StoredMessage),
    /// What is set on a namespace.
    Policies(Box<Policies>),
    /// What is set on all levels.
    PolicyLevels(Box<PolicyLevels>),
    /// Who may use a namespace.
    Grants(Grants),
    /// Figures for Prometheus.
    Metrics(Box<MetricsSnapshot>),
}

/// Why a call was refused. The texts reach whoever called, as `reason`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdminError {
    /// 400: it asks for what cannot be.
    #[error("{0}")]
    BadRequest(String),
    /// 403: the caller may not.
    #[error("{0}")]
    Forbidden(String),
    /// 404: it does not exist.
    #[error("{0}")]
    NotFound(String),
    /// 409: it exists, or is busy.
    #[error("{0}")]
    Conflict(String),
    /// 412: something else has to be so first.
    #[error("{0}")]
    PreconditionFailed(String),
    /// 500: a defect.
    #[error("{0}")]
    Internal(String),
    /// 503: not now; the disk is full or the log is poisoned, the broker starts or ends, or too much is asked at once.
    #[error("{0}")]
    Unavailable(String),
}
