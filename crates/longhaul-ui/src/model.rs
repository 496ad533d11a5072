//! The parts of the gateway's answers that the pages use. The OpenAPI document describes all
//! fields.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
pub(crate) struct QueueListModel {
    pub(crate) queues: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct QueueModel {
    pub(crate) version: u64,
    pub(crate) settings: Value,
    /// It also has tasks of high and low priority.
    #[serde(default)]
    pub(crate) levels: bool,
}

impl QueueModel {
    pub(crate) fn is_paused(&self) -> bool {
        self.settings.get("paused").and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn description(&self) -> Option<&str> {
        self.settings.get("description").and_then(Value::as_str)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct TaskCountsModel {
    pub(crate) by_status: BTreeMap<String, u64>,
    pub(crate) total: u64,
    pub(crate) demand: u64,
    pub(crate) oldest_ready: Option<OldestReadyModel>,
    pub(crate) now: u64,
}

impl TaskCountsModel {
    pub(crate) fn of(&self, status: &str) -> u64 {
        self.by_status.get(status).copied().unwrap_or(0)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct OldestReadyModel {
    pub(crate) id: String,
    pub(crate) since: u64,
}

/// Throughput and latencies of a queue by steps of equal length, oldest first.
#[derive(Debug, Deserialize)]
pub(crate) struct SeriesModel {
    pub(crate) step_ms: u64,
    pub(crate) steps: Vec<SeriesStepModel>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct SeriesStepModel {
    pub(crate) at: u64,
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    /// Tasks that failed for good, were cancelled or expired.
    pub(crate) not_completed: u64,
    pub(crate) latency_p50_ms: Option<u64>,
    pub(crate) latency_p95_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TaskListModel {
    pub(crate) tasks: Vec<TaskModel>,
    pub(crate) next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TaskModel {
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) attempts: u32,
    pub(crate) created_at: Option<u64>,
    pub(crate) changed_at: Option<u64>,
    pub(crate) due_at: Option<u64>,
    pub(crate) epoch: Option<u32>,
    pub(crate) worker: Option<WorkerModel>,
    #[serde(default)]
    pub(crate) cancel_requested: bool,
    pub(crate) progress: Option<ProgressModel>,
    pub(crate) reason: Option<String>,
    pub(crate) why: Option<String>,
    pub(crate) warning: Option<String>,
    #[serde(default)]
    pub(crate) log: Vec<String>,
    pub(crate) result_bytes: Option<u64>,
    pub(crate) codec: Option<String>,
    #[serde(default)]
    pub(crate) hidden: bool,
    #[serde(default)]
    pub(crate) waits_for: Vec<String>,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    #[serde(rename = "type")]
    pub(crate) task_type: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) duplicate_of: Option<String>,
    pub(crate) superseded_by: Option<String>,
    pub(crate) now: u64,
}

impl TaskModel {
    /// Whether the task is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "completed" | "failed" | "cancelled" | "expired" | "ended")
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(crate) struct WorkerModel {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) process: Option<u32>,
    pub(crate) version: String,
    pub(crate) label: String,
    pub(crate) instance: String,
    pub(crate) grants_leases: bool,
}

impl WorkerModel {
    /// The worker's name, or its host and process if it has none.
    pub(crate) fn title(&self) -> String {
        match (self.name.is_empty(), self.process) {
            (false, _) => self.name.clone(),
            (true, Some(process)) => format!("{} {process}", self.host),
            (true, None) if self.host.is_empty() => self.instance.clone(),
            (true, None) => self.host.clone(),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct ProgressModel {
    pub(crate) done: u64,
    pub(crate) total: u64,
    #[serde(default)]
    pub(crate) message: String,
}

/// Why a task does not run.
#[derive(Debug, Deserialize)]
pub(crate) struct WhyModel {
    pub(crate) sentence: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HistoryModel {
    pub(crate) is_whole: bool,
    pub(crate) entries: Vec<HistoryEntryModel>,
    pub(crate) silences: Vec<SilenceModel>,
    pub(crate) now: u64,
}

/// A period in which a holder was silent although heartbeats were due.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct SilenceModel {
    pub(crate) epoch: u32,
    pub(crate) since: u64,
    /// Absent while it lasts.
    pub(crate) until: Option<u64>,
    pub(crate) missed: u64,
    pub(crate) worker: Option<WorkerModel>,
}

/// One entry about a task.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HistoryEntryModel {
    pub(crate) at: u64,
    pub(crate) event: String,
    pub(crate) epoch: Option<u32>,
    pub(crate) attempt: Option<u32>,
    pub(crate) reason: Option<String>,
    pub(crate) outcome: Option<String>,
    pub(crate) next_attempt_at: Option<u64>,
    pub(crate) state: Option<String>,
    pub(crate) bytes: Option<u64>,
    pub(crate) waits_for: Vec<String>,
    pub(crate) leased_to: Option<String>,
    pub(crate) operator: Option<String>,
    pub(crate) worker: Option<WorkerModel>,
    /// Why the entry changes nothing.
    pub(crate) ignored: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WorkerListModel {
    pub(crate) workers: Vec<QueueWorkerModel>,
    pub(crate) now: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct QueueWorkerModel {
    pub(crate) partition: i32,
    pub(crate) owner: String,
    pub(crate) worker: Option<WorkerModel>,
    pub(crate) last_heartbeat_at: Option<u64>,
    pub(crate) missed_heartbeats: u64,
    pub(crate) running: Vec<String>,
}

impl QueueWorkerModel {
    /// Whether other workers take its tasks over: it has left, or was silent for more than two
    /// heartbeat intervals.
    pub(crate) const fn is_gone(&self) -> bool {
        self.last_heartbeat_at.is_none() || self.missed_heartbeats >= 2
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct DeadLetterListModel {
    pub(crate) dead_letters: Vec<DeadLetterModel>,
    pub(crate) next: Option<String>,
    pub(crate) now: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DeadLetterModel {
    pub(crate) task: String,
    pub(crate) at: u64,
    pub(crate) attempts: u32,
    pub(crate) reason: String,
    pub(crate) detail: Option<String>,
    pub(crate) replay_of: Option<String>,
    #[serde(rename = "type")]
    pub(crate) task_type: Option<String>,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) payload_bytes: u64,
    pub(crate) payload_base64: Option<String>,
    #[serde(default)]
    pub(crate) hidden: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ScheduleListModel {
    pub(crate) schedules: Vec<ScheduleModel>,
    pub(crate) now: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ScheduleModel {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) schedule: BTreeMap<String, Value>,
    pub(crate) last: Option<FiringModel>,
    #[serde(default)]
    pub(crate) next: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FiringModel {
    pub(crate) slot: u64,
    pub(crate) task: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ActionListModel {
    pub(crate) actions: Vec<ActionModel>,
    pub(crate) now: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ActionModel {
    pub(crate) at: u64,
    pub(crate) task: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) schedule: Option<String>,
    pub(crate) operator: String,
    pub(crate) action: String,
    pub(crate) reason: String,
    pub(crate) replay: Option<String>,
}

impl ActionModel {
    pub(crate) const fn is_on_queue(&self) -> bool {
        self.task.is_none() && self.worker.is_none() && self.schedule.is_none()
    }
}
