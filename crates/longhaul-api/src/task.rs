//! Tasks in answers.

use crate::values::Length;
use longhaul_core::task::{Progress, WorkerIdentity};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A task. Times are in ms since the epoch.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Task)]
pub struct TaskBody {
    /// Its id in the queue.
    pub id: String,
    /// The queue.
    pub queue: String,
    /// `scheduled`, `ready`, `waiting`, `claimed`, `running`, `retrying`, `completed`, `failed`, `cancelled`, `expired` or `ended`.
    #[schema(example = "running")]
    pub status: Cow<'static, str>,
    /// Attempts so far, the running one included.
    pub attempts: u32,
    /// When it was submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<u64>,
    /// When its state changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<u64>,
    /// The earliest start: the scheduled time, or the time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<u64>,
    /// How often the task has changed hands. Force-fail and force-release may name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// The worker that runs the task, or ran it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerBody>,
    /// Whether somebody has requested the end of the task.
    pub cancel_requested: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressBody>,
    /// Why the last attempt failed, or why the task ended. Lists have the first 200 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for programs: `error`, `panic`, `budget`, `no_progress`, `lost`, `unreadable`, `no_processor`, `result_too_large`, `given_back`, `no_attempt_left`, `cancelled`, `operator`, `expired`, `duplicate`, `superseded` or `predecessor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Why the task does not run, in one sentence. Only in lists that are requested with `why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// A warning for people who look at the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The last log lines of the attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
    /// The number of bytes of the result, which `GET …/result` returns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<usize>,
    /// The codec of the payload and the result, if a worker has reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// The result, if it is text of up to 1,024 bytes and has no codec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Whether the payload and the result are hidden from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// The tasks that this task waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    /// The submitter's name for the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The task that holds the key of this one. This task never ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<String>,
    /// The task that replaced this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// A worker, as it describes itself.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = WorkerIdentity)]
pub struct WorkerBody {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// A random text that is new at each start of the worker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// Whether the worker grants leases, as a gateway does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grants_leases: bool,
    /// Whether the worker drains: it takes nothing new, and ends when its tasks have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// How many tasks the worker runs at once; absent for a gateway, which has no slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
}

/// The progress of a task, in units of its own.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressBody {
    pub done: u64,
    /// 0 if unknown.
    pub total: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A page of tasks.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct TaskList {
    pub tasks: Vec<TaskBody>,
    /// Send this as `after` to get the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The numbers of tasks.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Counts)]
pub struct TaskCountsBody {
    /// By status. A status without tasks is omitted.
    pub by_status: BTreeMap<Cow<'static, str>, u64>,
    /// The number of all tasks.
    pub total: u64,
    /// How many tasks need a worker now, for an autoscaler.
    pub demand: u64,
    /// The task that has been ready for the longest time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ready: Option<OldestReady>,
    /// How many tasks have ended since the queue was created, over all workers and restarts. Tasks that are not shown any more count, too.
    pub ever_ended: EverEnded,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// How many tasks have ever ended, by outcome.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct EverEnded {
    pub completed: u64,
    /// Failed for good.
    pub failed: u64,
    pub cancelled: u64,
    /// No attempt began in time.
    pub expired: u64,
}

/// The task that has been ready for the longest time.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct OldestReady {
    pub id: String,
    /// When the task became ready, in ms since the epoch.
    pub since: u64,
}

/// Why a task does not run, or which worker runs it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Why)]
pub struct WhyBody {
    pub task: String,
    pub status: Cow<'static, str>,
    /// `over`, `running`, `leased`, `cancel_requested`, `scheduled`, `retrying`, `no_worker`, `no_request`, `dependencies`, `behind_key`, `key_lost`, `order`, `paused`, `limit`, `rate`, `no_slot` or `ready`.
    pub cause: String,
    /// The cause in one sentence, and what would change it.
    pub sentence: String,
    /// The details of the cause. Times are in ms since the epoch.
    #[schema(value_type = Object)]
    pub details: Value,
    /// The time limits of the task, and its number of attempts.
    #[serde(default)]
    pub limits: TaskLimitsBody,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The limits of a task: those of its message, or else of the settings of its queue. The worker that runs it may have others.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TaskLimits)]
pub struct TaskLimitsBody {
    /// If neither the message nor the queue sets it, the value of the worker that has the task, or of all live workers if they agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The time limit of each attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Length>,
    /// The time limit of the whole task, from its first claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_duration: Option<Length>,
    /// No attempt begins after this instant, in ms since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// A task that was submitted.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Submitted)]
pub struct SubmittedTaskBody {
    /// The id of the task. If another task holds the key, the id of that task.
    pub id: String,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The new task that restarts a failed task.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Restarted {
    /// The new task.
    pub id: String,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

impl From<&WorkerIdentity> for WorkerBody {
    fn from(it: &WorkerIdentity) -> Self {
        Self {
            name: it.name.clone(),
            host: it.host.clone(),
            process: it.process,
            version: it.version.clone(),
            label: it.label.clone(),
            instance: it.instance.clone(),
            grants_leases: it.grants_leases,
            draining: it.draining,
            slots: it.slots,
        }
    }
}

impl From<Progress> for ProgressBody {
    fn from(Progress { done, total, message }: Progress) -> Self {
        Self { done, total, message }
    }
}

impl TaskBody {
    /// Whether the task is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(&*self.status, "completed" | "failed" | "cancelled" | "expired" | "ended")
    }

    /// The worker that runs the task, or ran it last. A ready task has none: the worker that gave
    /// it back does not run it.
    #[must_use]
    pub fn shown_worker(&self) -> Option<&WorkerBody> {
        self.worker.as_ref().filter(|_| self.status != "ready")
    }
}

impl TaskCountsBody {
    /// How many tasks have this status.
    #[must_use]
    pub fn of(&self, status: &str) -> u64 {
        self.by_status.get(status).copied().unwrap_or(0)
    }

    /// Adds the counts of another level.
    pub fn add(&mut self, other: Self) {
        for (status, count) in other.by_status {
            *self.by_status.entry(status).or_default() += count;
        }
        self.total += other.total;
        self.demand += other.demand;
        let both = self.oldest_ready.take().into_iter().chain(other.oldest_ready);
        self.oldest_ready = both.min_by_key(|oldest| oldest.since);
        let (ever, more) = (&mut self.ever_ended, other.ever_ended);
        ever.completed += more.completed;
        ever.failed += more.failed;
        ever.cancelled += more.cancelled;
        ever.expired += more.expired;
    }
}

impl WorkerBody {
    /// The worker's name, or its host and process if it has none.
    #[must_use]
    pub fn title(&self) -> String {
        match (self.name.is_empty(), self.process) {
            (false, _) => self.name.clone(),
            (true, Some(process)) => format!("{} {process}", self.host),
            (true, None) if self.host.is_empty() => self.instance.clone(),
            (true, None) => self.host.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_task_of_two_levels_is_the_one_that_waits_longest() {
        let counts = |since: Option<u64>| TaskCountsBody {
            by_status: BTreeMap::from([("ready".into(), 2)]),
            oldest_ready: since
                .map(|since| OldestReady { id: format!("high~{since}:0:-1"), since }),
            ..TaskCountsBody::default()
        };
        for (one, other) in
            [(Some(7), Some(9)), (Some(9), Some(7)), (None, Some(7)), (Some(7), None)]
        {
            let mut sum = counts(one);
            sum.add(counts(other));
            assert_eq!(sum.of("ready"), 4);
            assert_eq!(sum.oldest_ready, counts(Some(7)).oldest_ready, "{one:?} and {other:?}");
        }
    }
}
