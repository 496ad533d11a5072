//! Dead letters: tasks that failed for good.

#![expect(
    missing_docs,
    reason = "the OpenAPI document has these texts: a text that repeats a name helps nobody"
)]

use crate::new_task::PriorityBody;
use crate::values::{Instant, Length};
use longhaul_core::task::Priority;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Some of the dead letters that were asked for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct DeadLetterList {
    pub dead_letters: Vec<DeadLetterBody>,
    /// What the next page comes after (`after`); absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// A task that failed for good.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub struct DeadLetterBody {
    pub task: String,
    pub queue: String,
    pub at: u64,
    pub attempts: u32,
    pub reason: String,
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
    /// The payload; left out of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The payload is hidden from whoever asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// What became of each replay.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ReplayList {
    pub outcomes: Vec<ReplayBody>,
    /// The error that has ended it early. Up to 64 letters were under way then, the others were not tried; asking again does no harm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// What became of a replay.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Replay)]
pub struct ReplayBody {
    pub task: String,
    /// `RESTARTED`, `RESTARTED_BEFORE` (by an earlier replay, so that `changes` were not made; of two at the same time one has its changes made, and both are told `RESTARTED`), `NOT_FOUND`, `NOT_DEAD`, `DEDUPE_CONFLICT` or `NO_PAYLOAD`.
    #[schema(value_type = String)]
    pub outcome: Cow<'static, str>,
    /// The task that runs it once more, or the one that has the dedupe key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
}

/// What became of a purge.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct PurgedLetters {
    pub purged: u64,
    /// Of the tasks that were named, those that have no dead letter: it was purged or replayed, or never was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_found: Vec<String>,
    /// The error that has ended it early. Up to 64 letters were under way then, the others were not tried; asking again does no harm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// Which dead letters, and why something is done with them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeadSelection {
    /// Why it is done; up to 1,000 bytes.
    pub reason: String,
    /// All of the queue, where nothing else says which: a request that says nothing is refused.
    pub all: bool,
    /// Ids of tasks; if there are any, what follows is not looked at. Up to 100.
    pub tasks: Vec<String>,
    /// Letters whose reason contains this text.
    pub failed_with: Option<String>,
    /// Letters with all of these tags.
    pub tag: Vec<String>,
    #[serde(rename = "type")]
    pub task_type: Option<String>,
    pub key: Option<String>,
    /// Letters of tasks that failed at this instant or later.
    pub failed_from: Option<Instant>,
    /// Letters of tasks that failed at this instant or earlier.
    pub failed_to: Option<Instant>,
    /// For replays: what the new tasks have instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<ReplayChangesBody>,
}

/// What a task that is run once more has instead. What is left out stays as it was.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = ReplayChanges)]
pub struct ReplayChangesBody {
    /// The payload, as text: for one task in `tasks` alone. Encoded as the one before, if that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The payload, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// `high`, `normal` or `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PriorityBody>)]
    pub priority: Option<Priority>,
    /// It does not start before so long from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Length>,
    /// 1 to 1,000. A task with a list of pauses has as many attempts as that makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The longest that an attempt may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Length>,
    /// The longest that the task may take, over all attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_duration: Option<Length>,
}
