//! The history of a task.

#![expect(
    missing_docs,
    reason = "the OpenAPI document has these texts: a text that repeats a name helps nobody"
)]

use crate::task::WorkerBody;
use crate::values::Length;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// What happened to a task, as far as its entries are still there.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = History)]
pub struct HistoryBody {
    pub task: String,
    /// Whether its first entries are still there.
    pub is_whole: bool,
    pub entries: Vec<HistoryEntryBody>,
    /// When nothing was heard of who held it, although heartbeats were due.
    pub silences: Vec<SilenceBody>,
    /// Now, by the gateway's clock.
    pub now: u64,
}

/// One entry about a task.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = HistoryEntry)]
pub struct HistoryEntryBody {
    /// When it was published, by the clock of its publisher.
    pub at: u64,
    /// `claimed`, `leased`, `renewed`, `closed`, `completed`, `failed`, `ended`, `released`, `parked`, `offered`, `checkpoint`, `cancel_requested`, `sealed`, `shown` or `evicted`.
    #[schema(value_type = String)]
    pub event: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `failed`, `cancelled` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<Cow<'static, str>>,
    /// When the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// The log lines of the attempt that no earlier entry has; in all, the newest 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
    /// How many lines before these are in no entry; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines_lost: Option<u64>,
    /// What the worker calls itself that has leased the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leased_to: Option<String>,
    /// The silence after which the lease may be ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_time: Option<Length>,
    /// Who did it from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerBody>,
    /// Why it changes nothing: `not_next`, `attempt_not_above`, `task_ended`, `replaced`, `not_running`, `sealed`, `late` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ignored: Option<Cow<'static, str>>,
}

/// A time in which nothing was heard of who held the task, although heartbeats were due.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = HolderSilence)]
pub struct SilenceBody {
    /// The epoch of the holder.
    pub epoch: u32,
    /// When anything was heard of it last.
    pub since: u64,
    /// When it was heard of again, or held the task no longer; absent while the silence lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// How often something was due: the heartbeat interval, or the lease time.
    pub every: Length,
    /// How many heartbeats are missing; of a lease, how many times its lease time has passed.
    pub missed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerBody>,
}
