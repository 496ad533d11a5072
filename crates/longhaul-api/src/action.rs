//! What operators have done, and why.

#![expect(
    missing_docs,
    reason = "the OpenAPI document has these texts: a text that repeats a name helps nobody"
)]

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why something is done.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reason)]
pub struct ReasonBody {
    /// Up to 1,000 bytes; it is logged, and shown where the task shows why it ended.
    #[serde(default)]
    pub reason: String,
}

/// Why, and in which epoch of the task.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForceReason {
    /// Up to 1,000 bytes.
    pub reason: String,
    /// The epoch that was seen; in another one nothing is done (`stale_epoch`). Without it: whichever it is in.
    pub epoch: Option<u32>,
}

/// Who has acted upon tasks and workers, the oldest action first.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ActionList {
    pub actions: Vec<ActionBody>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// What somebody has done to a task, or to a worker.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Action)]
pub struct ActionBody {
    pub at: u64,
    /// Absent where it was done to a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The worker that was drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    pub operator: String,
    /// `delete`, `force-fail`, `force-release`, `supersede`, `cancel` or `kill`; of its dead letter `replay`, `purge` or `expire`; of a worker `drain`.
    pub action: String,
    pub reason: String,
    /// The task that came of a replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
}

impl ReasonBody {
    /// This reason.
    #[must_use]
    pub fn of(reason: &str) -> Self {
        Self { reason: reason.to_owned() }
    }
}
