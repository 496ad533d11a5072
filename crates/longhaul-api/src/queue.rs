//! Queues, and what was done to them.

#![expect(
    missing_docs,
    reason = "the OpenAPI document has these texts: a text that repeats a name helps nobody"
)]

use crate::settings::{LimitBody, SettingsBody};
use crate::values::{Instant, Length};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The queues of the gateway's namespace that the caller may use, by name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct QueueList {
    pub queues: Vec<String>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// A queue.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct QueueBody {
    pub name: String,
    /// Counts the changes of its settings.
    pub version: u64,
    pub settings: SettingsBody,
    /// It has tasks of high and of low priority as well.
    pub levels: bool,
    /// Its limits, and who uses them: first that of the queue, then those of keys, the one at which most tasks wait first. At most 100. Keys that share the limit of all keys are listed while they use it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitUseBody>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// The use of a limit.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = LimitUse)]
pub struct LimitUseBody {
    /// The key whose tasks it limits; absent for the limit of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub limit: LimitBody,
    /// Tasks that have one of the slots; 0 if the limit is only a rate.
    pub running: u64,
    /// Tasks in its line. A worker lines up for as many tasks as it has free slots, and for none that a rate lets begin much later: the other ones are ready.
    pub waiting: u64,
    /// The first of them, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_waiting: Vec<String>,
    /// When the rate lets the next task begin, in ms since the epoch; absent if it may begin now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<u64>,
}

/// The version of the settings that stands.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct QueueVersion {
    pub version: u64,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// A queue that was made, or was there.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct CreatedQueue {
    pub name: String,
    /// What was done; empty if everything was right already.
    pub steps: Vec<String>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// What became of a purge.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Purged)]
pub struct PurgeResultBody {
    pub deleted: u64,
    /// Tasks that ended meanwhile, or could not be deleted.
    pub failed: u64,
    /// The error that has ended it early: the others were not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// Which tasks are to be deleted, and why.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Purge)]
pub struct PurgeBody {
    /// Up to 1,000 bytes.
    pub reason: String,
    /// All of the queue, where nothing else says which: a request that says nothing is refused.
    pub all: bool,
    /// Statuses: tasks with any of them.
    pub status: Vec<String>,
    /// Tags: tasks with all of them.
    pub tag: Vec<String>,
    #[serde(rename = "type")]
    pub task_type: Option<String>,
    pub key: Option<String>,
    /// Words, with blanks between them: tasks that have each of them in their id, key, type, tags or reason.
    pub text: Option<String>,
    /// Submitted at this instant or later.
    pub created_from: Option<Instant>,
    /// Submitted at this instant or earlier.
    pub created_to: Option<Instant>,
    /// Changed at this instant or later.
    pub changed_from: Option<Instant>,
    /// Not changed since this instant.
    pub changed_to: Option<Instant>,
}

/// How a queue is to be made. What it does not say is left as it is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewQueue {
    /// Partitions of its topics; a new queue has none if it is not said. They can be raised.
    pub partitions: Option<u32>,
    /// With topics for tasks of high and of low priority.
    pub levels: bool,
    /// How long a finished task stays in the ledger; an hour if it is not said.
    pub ledger_retention: Option<Length>,
    /// Settings that are written, where the queue has none yet; a queue that has settings keeps them.
    pub defaults: Option<DefaultsBody>,
}

/// Settings for a new queue. `004`: those of document 004, by which tasks expire after 14 days, have one attempt, and leave no dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[schema(as = QueueDefaults)]
pub enum DefaultsBody {
    #[serde(rename = "004")]
    Document004,
}

/// Other settings for a queue.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueUpdate {
    /// The version that was seen; if another one stands nothing is changed (`version_conflict`).
    pub expected_version: u64,
    /// All of them: what is missing is not set any more.
    pub settings: SettingsBody,
    /// Up to 1,000 bytes, for the log of actions.
    #[serde(default)]
    pub reason: String,
}

/// How a queue fared, by steps of equal length, the oldest first. The last one is the current one, which is not over yet. Tasks count as long as they are shown.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Series {
    pub step_ms: u64,
    pub steps: Vec<SeriesStep>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// What happened in the time of a step.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = SeriesStep)]
pub struct SeriesStep {
    /// When it began, in ms since the epoch.
    pub at: u64,
    pub submitted: u64,
    pub completed: u64,
    /// Failed for good, cancelled or expired.
    pub not_completed: u64,
    /// How many of these were cancelled.
    pub cancelled: u64,
    /// From submission to end, of half of those that completed at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p50_ms: Option<u64>,
    /// The same for 95 of 100.
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
