//! The topics of a queue, as the broker keeps them.

#![expect(
    missing_docs,
    reason = "the OpenAPI document has these texts: a text that repeats a name helps nobody"
)]

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The topics of a queue, what is stored of them, and what is wrong with them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Topics)]
pub struct TopicsBody {
    pub topics: Vec<TopicBody>,
    /// What the task protocol needs and the topics do not have, the worst first.
    pub findings: Vec<FindingBody>,
    /// The version of the broker; absent if it does not tell this gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_version: Option<String>,
    /// The version of this gateway.
    pub gateway_version: String,
    /// Now, by the gateway's clock.
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
    /// Entries and compacted view, over all partitions: one copy, as the broker counts it.
    pub stored_bytes: u64,
    /// How long and how much of it is kept after all subscriptions have acknowledged it, such as `60 min, unlimited in size`.
    pub retention: String,
    /// The broker compacts it at a size.
    pub compacted: bool,
}

/// What a topic does not have.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = TopicFinding)]
pub struct FindingBody {
    pub topic: String,
    /// `error`: tasks may run twice, get lost or stop. `warning`: it works less well, or not for ever.
    pub severity: String,
    /// What was found, and what is needed.
    pub what: String,
    pub risk: String,
    pub remedy: String,
}
