//! Arguments, results and errors of the admin interface's calls.
//!
//! The calls are methods of the machine. Their names are syntactically valid; the machine checks
//! whether the named objects exist. A *topic* may be an unpartitioned topic, one partition
//! (`…-partition-N`), or, where a method says so, a whole partitioned topic.

use crate::log::RecordLocation;
use crate::policies::ResourceProperties;
use hyper::StatusCode;
use longhaul_wire::payload::Payload;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Number of partitions of a topic, in Pulsar's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PartitionedTopicMetadata {
    /// 0 for an unpartitioned topic.
    pub(crate) partitions: u32,
    /// Always false: deleted topics are not shown.
    deleted: bool,
}

impl PartitionedTopicMetadata {
    /// Metadata of a topic.
    pub(crate) const fn new(partitions: u32) -> Self {
        Self { partitions, deleted: false }
    }
}

/// Id of an entry. [`AdminPosition::NONE`] is before all entries, on a topic that never had one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AdminPosition {
    /// Ledger.
    pub(crate) ledger: i64,
    /// Entry in the ledger; -1 before the first.
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

/// Start of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionStart {
    /// At the first existing entry.
    Earliest,
    /// After the last entry.
    Latest,
    /// At this entry, or the next that exists.
    At(AdminPosition),
    /// After this entry.
    After(AdminPosition),
}

/// A schema to be stored, in the JSON of Pulsar.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct NewSchema {
    /// `JSON`, `AVRO`, `STRING`, …
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Definition of the schema. Older tools send it as `data`.
    #[serde(rename = "schema", alias = "data", default)]
    pub(crate) data: String,
    /// Properties from its creator. Some tools send `null`.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) properties: ResourceProperties,
}

fn or_default<'de, D: Deserializer<'de>>(from: D) -> Result<ResourceProperties, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A stored schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StoredSchema {
    /// Version, from 0.
    pub(crate) version: u64,
    /// Type as in Pulsar's JSON: `JSON`, `AVRO`, `STRING`, …
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// When the schema was stored, in milliseconds since 1970.
    pub(crate) timestamp: u64,
    /// Definition of the schema.
    pub(crate) data: String,
    /// Properties from its creator.
    pub(crate) properties: ResourceProperties,
}

/// Progress of a compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CompactionRunStatus {
    /// Status.
    pub(crate) status: RunState,
    /// Error of the last compaction; empty otherwise.
    #[serde(rename = "lastError")]
    pub(crate) last_error: String,
}

/// States of a compaction since the topic was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum RunState {
    /// There was none.
    NotRun,
    /// One is running.
    Running,
    /// The last one succeeded.
    Success,
    /// The last one failed.
    Error,
}

/// Location of an entry to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredEntryLocation {
    /// Id of the entry.
    pub(crate) position: AdminPosition,
    /// Location in the log.
    pub(crate) location: RecordLocation,
}

/// A stored entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredMessage {
    /// Id of the entry.
    pub(crate) position: AdminPosition,
    /// The bytes that the producer sent.
    pub(crate) payload: Payload,
}

/// Why a call was refused. The client gets the text as `reason`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdminCallError {
    /// 400: the request is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// 403: the client lacks the permission.
    #[error("{0}")]
    Forbidden(String),
    /// 404: the object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// 405: the call does not apply to the named object.
    #[error("{0}")]
    MethodNotAllowed(String),
    /// 406: an invalid number.
    #[error("{0}")]
    NotAcceptable(String),
    /// 409: the object exists, or is busy.
    #[error("{0}")]
    Conflict(String),
    /// 412: a precondition is not met.
    #[error("{0}")]
    PreconditionFailed(String),
    /// 422: the number is lower than the current one.
    #[error("{0}")]
    Unprocessable(String),
    /// 500: a defect.
    #[error("{0}")]
    Internal(String),
    /// 503: temporarily unavailable. The disk is full or the log is closed for writes, the broker
    /// starts or stops, or there are too many requests.
    #[error("{0}")]
    Unavailable(String),
}

impl AdminCallError {
    /// The status of the answer.
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable(_) => StatusCode::NOT_ACCEPTABLE,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// `"properties": null`, as some tools send it, was refused.
#[test]
fn a_schema_may_have_null_for_its_properties() {
    for properties in ["", r#", "properties": null"#, r#", "properties": {}"#] {
        let text = format!(r#"{{"type": "JSON", "schema": "a"{properties}}}"#);
        let schema: NewSchema = serde_json::from_str(&text).unwrap();
        assert!(schema.properties.is_empty(), "{text}");
    }
}
