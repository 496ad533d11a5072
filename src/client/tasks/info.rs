//! What a [`TaskView`](super::TaskView) says of tasks and workers, and how to ask it. Pure.

use longhaul_core::protocol::seal::EndedCounts;
use longhaul_core::task::{Progress, TaskId, TaskMetadata, TaskOutcome, TaskState, WorkerIdentity};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Where a task stands at the time of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TaskStatus {
    /// Submitted, and not to be started before a time that is still ahead.
    Scheduled,
    /// Waits for a worker: it was never claimed, or its next attempt is due.
    Ready,
    /// Waits until other tasks are over.
    Waiting,
    /// A worker has claimed it, and does not show it as running yet.
    Claimed,
    /// An attempt runs.
    Running,
    /// The last attempt failed or was given back, and the time of the next one is still ahead.
    Retrying,
    /// It has its result.
    Completed,
    /// It failed for good.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was not started in time.
    Expired,
    /// It has ended, and how is not known any more: it came in a batch whose tasks ended in
    /// different ways, and its entry is gone.
    Ended,
}

impl TaskStatus {
    /// All of them, in the order of a task's life.
    pub const ALL: [Self; 11] = [
        Self::Scheduled,
        Self::Ready,
        Self::Waiting,
        Self::Claimed,
        Self::Running,
        Self::Retrying,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
        Self::Ended,
    ];

    /// The status in a word, as metrics, the gateway and the program name it: `scheduled`, `ready`
    /// and so on.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Claimed => "claimed",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Ended => "ended",
        }
    }

    /// What an entry on the metadata topic shows; `None` if its state is none that longhaul writes.
    /// Of a task that waits without ever having run there is no entry, unless it waits for others.
    #[must_use]
    pub const fn of_entry(entry: &TaskMetadata) -> Option<Self> {
        Some(match (entry.state, entry.outcome) {
            (TaskState::New, _) => Self::Waiting,
            (TaskState::Processing, _) => Self::Running,
            (TaskState::Completed, _) => Self::Completed,
            (TaskState::Failed, None) => Self::Retrying,
            (TaskState::Failed, Some(TaskOutcome::Cancelled)) => Self::Cancelled,
            (TaskState::Failed, Some(TaskOutcome::Expired)) => Self::Expired,
            (TaskState::Failed, Some(_)) => Self::Failed,
            (TaskState::Unknown, _) => return None,
        })
    }

    /// Whether the task has ended.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Expired | Self::Ended
        )
    }

    /// Whether the task wants a worker now: it is ready, claimed or running.
    #[must_use]
    pub const fn is_demand(self) -> bool {
        matches!(self, Self::Ready | Self::Claimed | Self::Running)
    }
}

/// What is known of a task. All times are in ms since the epoch, by the wall clock of whoever wrote
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The task.
    pub id: TaskId,
    /// Where it stands.
    pub status: TaskStatus,
    /// When it was submitted, or, where only that is known, first claimed.
    pub created_ms: u64,
    /// When its state changed last.
    pub changed_ms: u64,
    /// Before when it is not started: its scheduled time, or that of its next attempt.
    pub due_ms: Option<u64>,
    /// Attempts so far, the running one included.
    pub attempts: u32,
    /// The last accepted epoch; zero if the ledger does not know the task.
    pub epoch: u32,
    /// Who holds that epoch, or held it: 32 hexadecimal digits, as on the ledger.
    pub owner: Option<String>,
    /// The worker behind the owner, if it said who it is. Of a lease it is, by name, whoever holds
    /// it, and held the last one when that is over.
    pub worker: Option<Arc<WorkerIdentity>>,
    /// The lease that runs it, if one does.
    pub lease: Option<TaskLease>,
    /// Somebody asked for its end.
    pub cancel_requested: bool,
    /// How far it says it has come.
    pub progress: Option<Progress>,
    /// What it waits for, if others must be over before it goes on: see
    /// [`TaskMetadata::waits_for`](crate::TaskMetadata::waits_for).
    pub waits_for: Vec<String>,
    /// Its tags.
    pub tags: Vec<Arc<str>>,
    /// Its type.
    pub task_type: Option<Arc<str>>,
    /// What its submitter calls it.
    pub key: Option<String>,
    /// Why its last attempt failed, or why it ended without a result; the first 200 characters.
    /// [`Client::get`](crate::Client::get) has all of it.
    pub reason: Option<Arc<str>>,
}

/// The lease that runs a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskLease {
    /// What the worker that holds it calls itself.
    pub worker: Arc<str>,
    /// The silence after which it may be ended.
    pub lease_time: Duration,
    /// When that has passed, if nothing more is heard of it.
    pub expires_ms: u64,
}

/// Which tasks are wanted; by default all.
///
/// ```
/// use longhaul::ops::{TaskFilter, TaskStatus};
///
/// let late = TaskFilter::new().status(TaskStatus::Ready).created(0..=1_792_000_000_000).tag("mail");
/// # drop(late);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a filter does nothing by itself"]
pub struct TaskFilter {
    statuses: Vec<TaskStatus>,
    created: Option<RangeInclusive<u64>>,
    changed: Option<RangeInclusive<u64>>,
    tags: Vec<String>,
    task_type: Option<String>,
    key: Option<String>,
}

impl TaskFilter {
    /// All tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tasks with this status; of several, any of them.
    pub fn status(mut self, status: TaskStatus) -> Self {
        self.statuses.push(status);
        self
    }

    /// Tasks created in this time, in ms since the epoch.
    pub const fn created(mut self, between_ms: RangeInclusive<u64>) -> Self {
        self.created = Some(between_ms);
        self
    }

    /// Tasks whose state changed last in this time, in ms since the epoch.
    pub const fn changed(mut self, between_ms: RangeInclusive<u64>) -> Self {
        self.changed = Some(between_ms);
        self
    }

    /// Tasks with this tag; of several, all of them.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Tasks of this type.
    pub fn task_type(mut self, task_type: impl Into<String>) -> Self {
        self.task_type = Some(task_type.into());
        self
    }

    /// Tasks that their submitters gave this key.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Whether the cheap parts allow a task: these are asked before its texts are.
    pub(super) fn takes(&self, status: TaskStatus, created_ms: u64, changed_ms: u64) -> bool {
        let within = |range: &Option<RangeInclusive<u64>>, at| {
            range.as_ref().is_none_or(|range| range.contains(&at))
        };
        (self.statuses.is_empty() || self.statuses.contains(&status))
            && within(&self.created, created_ms)
            && within(&self.changed, changed_ms)
    }

    /// Whether a task with these texts is wanted.
    pub(super) fn takes_texts(
        &self,
        tags: &[Arc<str>],
        task_type: Option<&str>,
        key: Option<&str>,
    ) -> bool {
        let is = |wanted: &Option<String>, has: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| has == Some(wanted))
        };
        self.tags.iter().all(|wanted| tags.iter().any(|tag| **tag == **wanted))
            && is(&self.task_type, task_type)
            && is(&self.key, key)
    }
}

/// Some of the tasks that were asked for, by partition and then in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskInfo>,
    /// What the next page comes after; `None` when there is no other task.
    pub next: Option<TaskId>,
}

/// How many tasks there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskCounts {
    /// By status; a status without tasks is left out.
    pub by_status: BTreeMap<TaskStatus, u64>,
    /// The ready task that waits longest, and since when it is ready, in ms since the epoch.
    pub oldest_ready: Option<(TaskId, u64)>,
    /// How many have ever ended, since the queue's ledger was made: those included that are
    /// forgotten. The ledger keeps these numbers, so that they survive restarts. A task that two
    /// workers sealed at once counts twice.
    pub ever_ended: EndedCounts,
}

impl TaskCounts {
    /// How many have this status.
    #[must_use]
    pub fn of(&self, status: TaskStatus) -> u64 {
        self.by_status.get(&status).copied().unwrap_or_default()
    }

    /// How many want a worker now: those that are ready, claimed or running. What an autoscaler
    /// should go by.
    #[must_use]
    pub fn demand(&self) -> u64 {
        self.by_status.iter().filter(|(status, _)| status.is_demand()).map(|(_, count)| count).sum()
    }

    /// How many there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_status.values().sum()
    }

    /// Counts the end of a task, if it has this status by one.
    pub(super) const fn note_end(&mut self, status: TaskStatus) {
        let ended = &mut self.ever_ended;
        match status {
            TaskStatus::Completed => ended.completed += 1,
            TaskStatus::Failed => ended.failed += 1,
            TaskStatus::Cancelled => ended.cancelled += 1,
            TaskStatus::Expired => ended.expired += 1,
            TaskStatus::Scheduled
            | TaskStatus::Ready
            | TaskStatus::Waiting
            | TaskStatus::Claimed
            | TaskStatus::Running
            | TaskStatus::Retrying
            | TaskStatus::Ended => {}
        }
    }

    pub(super) fn add(&mut self, status: TaskStatus, ready: Option<(TaskId, u64)>) {
        *self.by_status.entry(status).or_default() += 1;
        let Some((id, since)) = ready else { return };
        if self.oldest_ready.is_none_or(|(_, oldest)| since < oldest) {
            self.oldest_ready = Some((id, since));
        }
    }
}

/// A worker on one partition of the queue, under one owner id: a worker has another one on each
/// partition, and draws a new one when it starts afresh.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The partition, or -1.
    pub partition: i32,
    /// The owner id: 32 hexadecimal digits, as on the ledger.
    pub owner: String,
    /// Who it says it is.
    pub identity: Option<Arc<WorkerIdentity>>,
    /// When its last heartbeat was published, in ms since the epoch by its own wall clock; `None`
    /// if it has none, or has left.
    pub last_heartbeat_ms: Option<u64>,
    /// How many heartbeats were due since the last one, by the clock of this machine; one that is
    /// late by less than half an interval is not counted. Others take over what it runs when it is
    /// silent for two intervals, so at the latest when this is 2. 0 where it has none, or has left.
    pub missed_heartbeats: u64,
    /// The tasks that the ledger shows as running by it.
    pub running: Vec<TaskId>,
}
