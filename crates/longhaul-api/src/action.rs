//! Actions of operators on tasks, and the log of all their actions.

use crate::values::{Instant, Length};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// An operator action on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAction {
    /// Request its cancellation.
    Cancel,
    /// End it without waiting for its processor.
    Kill,
    /// Close it in any state.
    Delete,
    /// Close it as failed for good, if it is in this epoch; `None` for any.
    ForceFail(Option<u32>),
    /// Take it from its worker, with the same condition.
    ForceRelease(Option<u32>),
    /// Have it begin after this time.
    Reschedule(Duration),
}

/// The reason for an action.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reason)]
pub struct ReasonBody {
    /// Up to 1,000 bytes. It is logged, and a task that the action ends shows it.
    #[serde(default)]
    pub reason: String,
}

/// The reason for an action on a task, and the epoch in which the action applies.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForceReason {
    /// Up to 1,000 bytes, for the log of actions.
    pub reason: String,
    /// The epoch that you have seen. If the task is in another one, nothing is done (`stale_epoch`). If omitted, any epoch fits.
    pub epoch: Option<u32>,
}

/// The new start of a waiting task: set `delay` or `at`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Reschedule)]
pub struct RescheduleBody {
    /// Time from now: `0s` starts the task at once; 100 years, the maximum, hold it.
    pub delay: Option<Length>,
    /// The instant of the start.
    pub at: Option<Instant>,
    /// Up to 1,000 bytes, for the log of actions.
    pub reason: String,
}

/// Operators' actions on the queue, its tasks, workers and schedules, the oldest first.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ActionList {
    pub actions: Vec<ActionBody>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// An operator's action on a task, a worker, a schedule or the queue.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Action)]
pub struct ActionBody {
    pub at: u64,
    /// The task. Without `task`, `worker` and `schedule`, the action was on the queue itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The worker that was drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The name of the schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    pub operator: String,
    /// On a task: `delete`, `force-fail`, `force-release`, `reschedule`, `supersede`, `cancel` or `kill`. On its dead letter: `replay`, `purge` or `expire`. On a worker: `drain`. On a schedule: `create`, `set`, `update`, `pause`, `resume`, `trigger` or `delete`. On the queue: `update` (of its settings), `repair`, `pause` or `resume`.
    pub action: String,
    pub reason: String,
    /// The new task that the replay submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
}

impl TaskAction {
    /// The action in log lines, and in the path of its route if it has one of its own.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Kill => "kill",
            Self::Delete => "delete",
            Self::ForceFail(_) => "force-fail",
            Self::ForceRelease(_) => "force-release",
            Self::Reschedule(_) => "reschedule",
        }
    }
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
