//! The history of a task.

use crate::task::WorkerBody;
use crate::values::Length;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// The history of a task, from the entries that are still stored.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = History)]
pub struct HistoryBody {
    pub task: String,
    /// Whether the first entries of the task are still stored.
    pub is_whole: bool,
    pub entries: Vec<HistoryEntryBody>,
    /// The times in which the holder of the task was silent although heartbeats were due.
    pub silences: Vec<SilenceBody>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// An entry in the history of a task.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = HistoryEntry)]
pub struct HistoryEntryBody {
    /// When the entry was published, by the clock of its publisher.
    pub at: u64,
    /// `claimed`, `leased`, `renewed`, `closed`, `completed`, `failed`, `ended`, `released`, `parked`, `offered`, `checkpoint`, `cancel_requested`, `sealed`, `shown` or `evicted`.
    pub event: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `failed`, `cancelled` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Cow<'static, str>>,
    /// When the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// Log lines of the attempt that no earlier entry has. A history has the newest 1,000 lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
    /// How many log lines before these are missing; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines_lost: Option<u64>,
    /// The name of the worker that leased the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leased_to: Option<String>,
    /// How long the worker may be silent before its lease may be ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_time: Option<Length>,
    /// The operator who caused the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerBody>,
    /// Why the entry has no effect: `not_next`, `attempt_not_above`, `task_ended`, `replaced`, `not_running`, `sealed`, `late` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<Cow<'static, str>>,
}

/// A time in which the holder of the task was silent although heartbeats were due.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = HolderSilence)]
pub struct SilenceBody {
    /// The epoch of the holder.
    pub epoch: u32,
    /// When the holder was last heard from.
    pub since: u64,
    /// When the holder was heard from again or lost the task; absent while the silence lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// How often the holder must report: its heartbeat interval, or the lease time.
    pub every: Length,
    /// How many heartbeats are missing; for a lease, how many times its lease time has passed.
    pub missed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerBody>,
}
