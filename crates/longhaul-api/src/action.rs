//! What operators have done, and why.

#![expect(
    missing_docs,
    reason = "the OpenAPI document has these texts: a text that repeats a name helps nobody"
)]

use crate::values::{Instant, Length};
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

/// When a waiting task is to begin: `delay` or `at`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Reschedule)]
pub struct RescheduleBody {
    /// So long from now, up to 100 years, which holds it; `0s`: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Length>,
    /// At this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Instant>,
    /// Up to 1,000 bytes.
    pub reason: String,
}

/// Operators' actions on the queue, its tasks, workers and schedules, the oldest first.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ActionList {
    pub actions: Vec<ActionBody>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// What an operator did to a task, a worker, a schedule or the queue.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Action)]
pub struct ActionBody {
    pub at: u64,
    /// The task. Without `task`, `worker` and `schedule` the action was on the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The worker that was drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The schedule, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    pub operator: String,
    /// `delete`, `force-fail`, `force-release`, `reschedule`, `supersede`, `cancel` or `kill`; of its dead letter `replay`, `purge` or `expire`; of a worker `drain`; of a schedule `create`, `set`, `update`, `pause`, `resume`, `trigger` or `delete`; of the queue `update` (of its settings), `repair`, `pause` or `resume`.
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

impl ActionBody {
    /// Whether it was done to the queue itself.
    #[must_use]
    pub const fn is_on_queue(&self) -> bool {
        self.task.is_none() && self.worker.is_none() && self.schedule.is_none()
    }
}
