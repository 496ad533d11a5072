//! Queues, and what was done to them.

use crate::settings::{LimitBody, SettingsBody};
use crate::values::{Instant, Length};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The queues of the gateway's namespace that the caller may use, by name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct QueueList {
    pub queues: Vec<String>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// A queue.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct QueueBody {
    pub name: String,
    /// The version of the settings: the number of their changes.
    pub version: u64,
    pub settings: SettingsBody,
    /// Whether the queue also has the levels `high` and `low`.
    pub levels: bool,
    /// The limits and their use, at most 100: first the limit of the queue, then those of limit keys, the one with the most waiting tasks first. A key without a limit of its own is listed while it uses `per_key`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitUseBody>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The use of a limit.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = LimitUse)]
pub struct LimitUseBody {
    /// The limit key; absent for the limit of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub limit: LimitBody,
    /// How many tasks hold a slot of the limit; 0 if the limit is only a rate.
    pub running: u64,
    /// How many tasks wait for the limit. A worker lets only as many tasks wait as it has free slots, and none that the rate delays for long; its other tasks are `ready`.
    pub waiting: u64,
    /// The tasks that wait first, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_waiting: Vec<String>,
    /// When the rate lets the next task begin, in ms since the epoch; absent if it may begin now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<u64>,
}

/// The current version of the settings.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct QueueVersion {
    pub version: u64,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// A queue that was created or already existed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct CreatedQueue {
    pub name: String,
    /// The changes that were made; empty if everything was already right.
    pub steps: Vec<String>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The result of a purge.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Purged)]
pub struct PurgeResultBody {
    pub deleted: u64,
    /// How many tasks ended meanwhile or could not be deleted.
    pub failed: u64,
    /// The error that stopped the purge early; the other tasks were not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The tasks to delete, and the reason.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Purge)]
pub struct PurgeBody {
    /// Up to 1,000 bytes, for the log of actions.
    pub reason: String,
    /// Selects all tasks, and excludes the fields below. A request without a selection is refused.
    pub all: bool,
    /// Selects tasks with any of these statuses.
    pub status: Vec<String>,
    /// Selects tasks with all of these tags.
    pub tag: Vec<String>,
    #[serde(rename = "type")]
    pub task_type: Option<String>,
    pub key: Option<String>,
    /// Words separated by spaces. Selects tasks that have each word in their id, key, type, tags or reason.
    pub text: Option<String>,
    /// Selects tasks that were submitted at this instant or later.
    pub created_from: Option<Instant>,
    /// Selects tasks that were submitted at this instant or earlier.
    pub created_to: Option<Instant>,
    /// Selects tasks that changed at this instant or later.
    pub changed_from: Option<Instant>,
    /// Selects tasks that have not changed since this instant.
    pub changed_to: Option<Instant>,
}

/// The properties of a queue. An omitted field leaves an existing queue as it is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewQueue {
    /// The number of partitions of its topics; a new queue has none by default. It can be raised.
    pub partitions: Option<u32>,
    /// Whether to create the topics for tasks of high and low priority as well.
    pub levels: bool,
    /// How long a finished task stays in the ledger (1 h by default).
    pub ledger_retention: Option<Length>,
    /// Settings for a queue that has none yet. A queue that has settings keeps them.
    pub defaults: Option<DefaultsBody>,
}

/// Settings for a new queue. `moab` means those of the task queue Moab: tasks expire after 14 days, have one attempt, and leave no dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[schema(as = QueueDefaults)]
pub enum DefaultsBody {
    #[serde(rename = "moab")]
    Moab,
}

/// New settings for a queue.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueUpdate {
    /// The version that you have read. If it is not current, nothing changes (`version_conflict`).
    pub expected_version: u64,
    /// The complete settings: an omitted setting is unset.
    pub settings: SettingsBody,
    /// Up to 1,000 bytes, for the log of actions.
    #[serde(default)]
    pub reason: String,
}

/// Throughput and latencies of a queue in steps of equal length, the oldest first. The last step is still in progress. Tasks count as long as they are shown.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Series {
    pub step_ms: u64,
    pub steps: Vec<SeriesStep>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The numbers of one step.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = SeriesStep)]
pub struct SeriesStep {
    /// When the step began, in ms since the epoch.
    pub at: u64,
    pub submitted: u64,
    pub completed: u64,
    /// Tasks that failed for good, were cancelled or expired.
    pub not_completed: u64,
    /// How many of the tasks in `not_completed` were cancelled.
    pub cancelled: u64,
    /// Median time from submission to end of the completed tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p50_ms: Option<u64>,
    /// 95th percentile of the time from submission to end of the completed tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p95_ms: Option<u64>,
}

impl Series {
    /// Adds the numbers of another level, with steps at the same times. Latencies of several levels
    /// have no sum: they are left out.
    pub fn add(&mut self, other: &Self) {
        for (step, more) in self.steps.iter_mut().zip(&other.steps) {
            step.submitted += more.submitted;
            step.completed += more.completed;
            step.not_completed += more.not_completed;
            step.cancelled += more.cancelled;
            (step.latency_p50_ms, step.latency_p95_ms) = (None, None);
        }
    }
}
