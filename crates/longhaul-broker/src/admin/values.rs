//! What calls of the admin interface take and give, and why they are refused.
//!
//! The calls are methods of the machine. Names are valid when they get there; whether there is what
//! they name is for the machine to say. A *topic* may be one without partitions, one partition
//! (`…-partition-N`), or, where a method says so, the whole of a partitioned topic.

use crate::log::RecordLocation;
use longhaul_wire::payload::Payload;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What somebody notes on a topic or a subscription.
pub(crate) type ResourceProperties = BTreeMap<String, String>;

/// Who administers a tenant, and in which clusters it may be, in the JSON of Pulsar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tenant {
    /// Roles that may do everything in its namespaces.
    pub(crate) admin_roles: BTreeSet<String>,
    /// There is one.
    pub(crate) allowed_clusters: BTreeSet<String>,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            admin_roles: BTreeSet::new(),
            allowed_clusters: BTreeSet::from([super::CLUSTER.to_owned()]),
        }
    }
}

/// How many partitions a topic has, in the JSON of Pulsar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PartitionedTopicMetadata {
    /// 0 for a topic without.
    pub(crate) partitions: u32,
    /// Always false: what is deleted is gone.
    deleted: bool,
    /// What is noted on the whole topic.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) properties: ResourceProperties,
}

impl PartitionedTopicMetadata {
    /// So many, of a topic on which this is noted.
    pub(crate) const fn new(partitions: u32, properties: ResourceProperties) -> Self {
        Self { partitions, deleted: false, properties }
    }
}

/// An entry's place. [`AdminPosition::NONE`] stands before all entries of a topic that never had one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AdminPosition {
    /// Ledger.
    pub(crate) ledger: i64,
    /// Entry in it; -1 before the first.
    pub(crate) entry: i64,
}

impl AdminPosition {
    /// No entry.
    pub(crate) const NONE: Self = Self { ledger: -1, entry: -1 };
}

impl fmt::Display for AdminPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ledger, self.entry)
    }
}

/// Where a subscription starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionStart {
    /// At the first entry that is still there.
    Earliest,
    /// Behind the last entry.
    Latest,
    /// At this entry, or the next that exists.
    At(AdminPosition),
    /// Behind this entry.
    After(AdminPosition),
}

/// A schema to be stored, in the JSON of Pulsar.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct NewSchema {
    /// `JSON`, `AVRO`, `STRING`, …
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Its definition. Older tools send it as `data`.
    #[serde(rename = "schema", alias = "data", default)]
    pub(crate) data: String,
    /// What its creator notes.
    #[serde(default)]
    pub(crate) properties: ResourceProperties,
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
    pub(crate) properties: ResourceProperties,
}

/// How far a compaction has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CompactionRunStatus {
    /// Where it stands.
    pub(crate) status: CompactionRunState,
    /// Why the last one failed; empty otherwise.
    #[serde(rename = "lastError")]
    pub(crate) last_error: String,
}

/// States of a compaction, since the topic was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum CompactionRunState {
    /// None was asked for.
    NotRun,
    /// One is under way.
    Running,
    /// The last one ended well.
    Success,
    /// The last one failed.
    Error,
}

/// Where an entry lies that is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredEntryLocation {
    /// Its id.
    pub(crate) position: AdminPosition,
    /// Its place in the log.
    pub(crate) place: RecordLocation,
}

/// A stored entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredMessage {
    /// Where it lies.
    pub(crate) position: AdminPosition,
    /// As its producer sent it.
    pub(crate) payload: Payload,
}

/// Why a call was refused. The texts reach whoever called, as `reason`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdminCallError {
    /// 400: it asks for what cannot be.
    #[error("{0}")]
    BadRequest(String),
    /// 403: the caller may not.
    #[error("{0}")]
    Forbidden(String),
    /// 404: it does not exist.
    #[error("{0}")]
    NotFound(String),
    /// 405: it makes no sense for what is named.
    #[error("{0}")]
    MethodNotAllowed(String),
    /// 406: so few or so many there cannot be.
    #[error("{0}")]
    NotAcceptable(String),
    /// 409: it exists, or is busy.
    #[error("{0}")]
    Conflict(String),
    /// 412: something else has to be so first.
    #[error("{0}")]
    PreconditionFailed(String),
    /// 422: it asks for less than there is.
    #[error("{0}")]
    Unprocessable(String),
    /// 500: a defect.
    #[error("{0}")]
    Internal(String),
    /// 503: not now; the disk is full or the log is poisoned, the broker starts or ends, or too
    /// much is asked at once.
    #[error("{0}")]
    Unavailable(String),
}
