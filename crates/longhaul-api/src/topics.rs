//! The topics of a queue, as the broker keeps them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The topics of a queue, their stored bytes, and their faults.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Topics)]
pub struct TopicsBody {
    pub topics: Vec<TopicBody>,
    /// What the task protocol needs and the topics lack, the worst first.
    pub findings: Vec<FindingBody>,
    /// The version of the broker; absent if the broker does not report it to this gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_version: Option<String>,
    /// The version of this gateway.
    pub gateway_version: String,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// A topic.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Topic)]
pub struct TopicBody {
    pub name: String,
    /// Absent for a topic without partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// Bytes of the entries and the compacted view in all partitions. The broker counts one copy.
    pub stored_bytes: u64,
    /// How long, and up to what size, entries are kept that all subscriptions have acknowledged, such as `60 min, unlimited in size`.
    pub retention: String,
    /// Whether the broker compacts the topic when it reaches a size.
    pub compacted: bool,
}

/// A requirement of the task protocol that a topic does not meet.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = TopicFinding)]
pub struct FindingBody {
    pub topic: String,
    /// `error`: tasks may run twice, get lost or stop. `warning`: the queue works less well, or not for ever.
    pub severity: String,
    /// The state of the topic, and the state that is needed.
    pub what: String,
    pub risk: String,
    pub remedy: String,
}
