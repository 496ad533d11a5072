//! Dead letters: tasks that failed for good.

use crate::new_task::PriorityBody;
use crate::values::{Instant, Length};
use longhaul_core::task::Priority;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A page of dead letters.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct DeadLetterList {
    pub dead_letters: Vec<DeadLetterBody>,
    /// Send this as `after` to get the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The dead letter of a task that failed for good.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub struct DeadLetterBody {
    pub task: String,
    pub queue: String,
    pub at: u64,
    pub attempts: u32,
    pub reason: String,
    /// Why the task failed, for programs: one of the causes of a task.
    pub cause: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub properties: BTreeMap<String, String>,
    pub payload_bytes: usize,
    /// The payload; omitted in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Whether the payload is hidden from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// The outcomes of replays.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ReplayList {
    pub outcomes: Vec<ReplayBody>,
    /// Why the request stopped early: an error, or the limit of 100,000 replays. Up to 64 more letters may be done; the others were not tried. You may repeat the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The outcome of a replay.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Replay)]
pub struct ReplayBody {
    pub task: String,
    /// `RESTARTED`, `RESTARTED_BEFORE` (by an earlier replay, so `changes` were not made), `NOT_FOUND`, `NOT_DEAD`, `DEDUPE_CONFLICT` or `NO_PAYLOAD`. Of two simultaneous replays, one has its `changes` made, and both get `RESTARTED`.
    pub outcome: Cow<'static, str>,
    /// The new task, or the task that holds the dedupe key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
}

/// The result of a purge.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct PurgedLetters {
    pub purged: u64,
    /// The named tasks without a dead letter: it was purged or replayed, or never existed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_found: Vec<String>,
    /// The error that stopped the request early. Up to 64 more letters may be done; the others were not tried. You may repeat the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The dead letters to replay or purge, and the reason.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeadSelection {
    /// Up to 1,000 bytes, for the log of actions.
    pub reason: String,
    /// Selects all letters, and excludes the filters below. A request without selection is refused.
    pub all: bool,
    /// Ids of up to 100 tasks. If there are any, the filters below are ignored.
    pub tasks: Vec<String>,
    /// Selects letters whose reason contains this text.
    pub failed_with: Option<String>,
    /// Selects letters with all of these tags.
    pub tag: Vec<String>,
    #[serde(rename = "type")]
    pub task_type: Option<String>,
    pub key: Option<String>,
    /// Selects letters of tasks that failed at this instant or later.
    pub failed_from: Option<Instant>,
    /// Selects letters of tasks that failed at this instant or earlier.
    pub failed_to: Option<Instant>,
    /// For replays only: changes to the new tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<ReplayChangesBody>,
}

/// Changes that a replay makes to the new task. Omitted fields stay as they were.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = ReplayChanges)]
pub struct ReplayChangesBody {
    /// Another payload, as text, if `tasks` names one task. The old payload's codec encodes it.
    pub payload: Option<String>,
    /// Another payload, in base64, if `tasks` names one task.
    pub payload_base64: Option<String>,
    /// `high`, `normal` or `low`.
    #[schema(value_type = Option<PriorityBody>)]
    pub priority: Option<Priority>,
    /// The earliest start, as a time from now.
    pub delay: Option<Length>,
    /// The most attempts: 1 to 1,000. It is ignored for a task with a list of retry intervals.
    pub max_attempts: Option<u32>,
    /// The time limit of an attempt.
    pub max_duration: Option<Length>,
    /// The time limit of the task, over all attempts.
    pub max_total_duration: Option<Length>,
}
