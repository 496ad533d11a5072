//! The data of a [`TaskView`](super::TaskView): tasks, workers, counts and filters. Pure.

use super::row::RowTexts;
use super::why::MISSED_MAX;
use longhaul_core::protocol::seal::EndedCounts;
use longhaul_core::task::{
    FailureCause, Progress, TaskId, TaskMetadata, TaskOutcome, TaskState, WorkerIdentity,
};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// The status of a task at the time of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TaskStatus {
    /// Submitted; its start time is in the future.
    Scheduled,
    /// Waits for a worker: it was never claimed, or its next attempt is due.
    Ready,
    /// Waits for other tasks to end.
    Waiting,
    /// Claimed by a worker, and not yet shown as running.
    Claimed,
    /// An attempt runs.
    Running,
    /// The last attempt failed or was released; the next one is due in the future.
    Retrying,
    /// It completed and has a result.
    Completed,
    /// It failed for good.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It expired before it was started.
    Expired,
    /// It ended, and how is unknown: it came in a batch whose tasks ended in different ways, and
    /// its entry is gone.
    Ended,
}

impl TaskStatus {
    /// All statuses, in the order of a task's life.
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

    /// The status as a word, as in metrics, the gateway and the CLI: `scheduled`, `ready` and so
    /// on.
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

    /// The status shown by a metadata entry; `None` for a state that longhaul does not write. A
    /// task that waits before its first attempt has no entry, unless it waits for other tasks.
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

    /// Whether the task needs a worker now: it is ready, claimed or running.
    #[must_use]
    pub const fn is_demand(self) -> bool {
        matches!(self, Self::Ready | Self::Claimed | Self::Running)
    }
}

/// The state of a task. All times are in ms since the epoch, by the wall clock of their writer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The task.
    pub id: TaskId,
    /// Its status.
    pub status: TaskStatus,
    /// When the task was submitted; if only its first claim is known, when that was.
    pub created_ms: u64,
    /// When its state last changed.
    pub changed_ms: u64,
    /// The earliest start: its scheduled time, or that of its next attempt.
    pub due_ms: Option<u64>,
    /// Attempts so far, including the running one.
    pub attempts: u32,
    /// The last accepted epoch; 0 if the ledger does not know the task.
    pub epoch: u32,
    /// The owner of that epoch: 32 hexadecimal digits, as on the ledger.
    pub owner: Option<String>,
    /// The worker behind the owner, if it published its identity. For a lease, the current or last
    /// holder by name.
    pub worker: Option<Arc<WorkerIdentity>>,
    /// The lease that runs the task, if any.
    pub lease: Option<TaskLease>,
    /// Whether a cancel was requested.
    pub cancel_requested: bool,
    /// The progress reported last.
    pub progress: Option<Progress>,
    /// The unfinished tasks that it waits for: see
    /// [`TaskMetadata::waits_for`](crate::TaskMetadata::waits_for).
    pub waits_for: Vec<String>,
    /// Its tags.
    pub tags: Vec<Arc<str>>,
    /// Its type.
    pub task_type: Option<Arc<str>>,
    /// The submitter's key for the task.
    pub key: Option<String>,
    /// Why its last attempt failed, or why it ended without a result: the first 200 characters.
    /// [`Client::get`](crate::Client::get) returns the whole text.
    pub reason: Option<Arc<str>>,
    /// The same for programs.
    pub cause: Option<FailureCause>,
}

/// The lease that runs a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskLease {
    /// The name of the worker that holds it.
    pub worker: Arc<str>,
    /// The silence after which the lease may be ended.
    pub lease_time: Duration,
    /// When the lease expires, without another sign of life.
    pub expires_ms: u64,
}

/// A filter for tasks; by default it matches all.
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
    /// In lower case.
    words: Vec<String>,
}

impl TaskFilter {
    /// Matches all tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Matches tasks with this status. Repeat it to match any of several.
    pub fn status(mut self, status: TaskStatus) -> Self {
        self.statuses.push(status);
        self
    }

    /// Matches tasks created in this range, in ms since the epoch.
    pub const fn created(mut self, between_ms: RangeInclusive<u64>) -> Self {
        self.created = Some(between_ms);
        self
    }

    /// Matches tasks whose state last changed in this range, in ms since the epoch.
    pub const fn changed(mut self, between_ms: RangeInclusive<u64>) -> Self {
        self.changed = Some(between_ms);
        self
    }

    /// Matches tasks with this tag. Several tags must all be present.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Matches tasks of this type.
    pub fn task_type(mut self, task_type: impl Into<String>) -> Self {
        self.task_type = Some(task_type.into());
        self
    }

    /// Matches tasks with this key of their submitters.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Matches tasks that have each word of this text in their id, key, type, tags or
    /// [`reason`](TaskInfo::reason), in upper or lower case. A part of a word is enough.
    pub fn text(mut self, text: &str) -> Self {
        self.words.extend(text.split_whitespace().map(str::to_lowercase));
        self
    }

    /// Whether the cheap criteria match a task. They are checked before its texts.
    pub(super) fn takes(&self, status: TaskStatus, created_ms: u64, changed_ms: u64) -> bool {
        let within = |range: &Option<RangeInclusive<u64>>, at| {
            range.as_ref().is_none_or(|range| range.contains(&at))
        };
        (self.statuses.is_empty() || self.statuses.contains(&status))
            && within(&self.created, created_ms)
            && within(&self.changed, changed_ms)
    }

    /// Whether the filter matches these texts of a task. The reason counts only if it is shown.
    pub(super) fn takes_texts(&self, id: TaskId, texts: &RowTexts, shows_reason: bool) -> bool {
        let is = |wanted: &Option<String>, has: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| has == Some(wanted))
        };
        self.tags.iter().all(|wanted| texts.tags.iter().any(|tag| **tag == **wanted))
            && is(&self.task_type, texts.task_type.as_deref())
            && is(&self.key, texts.key.as_deref())
            && self.finds_words(id, texts, shows_reason)
    }

    /// Whether each word is in one of the texts or in the id, in upper or lower case.
    fn finds_words(&self, id: TaskId, texts: &RowTexts, shows_reason: bool) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let reason = texts.reason.as_deref().filter(|_| shows_reason);
        let named = [texts.task_type.as_deref(), texts.key.as_deref(), reason];
        let tags = texts.tags.iter().map(|tag| &**tag);
        let mut all = id.to_string();
        for text in tags.chain(named.into_iter().flatten()) {
            all.push('\n');
            all.push_str(text);
        }
        let all = all.to_lowercase();
        self.words.iter().all(|word| all.contains(word))
    }
}

/// A page of tasks, by partition and then by id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskInfo>,
    /// The position to continue from; `None` when there are no more tasks.
    pub next: Option<TaskId>,
}

/// The numbers of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskCounts {
    /// By status; a status without tasks is left out.
    pub by_status: BTreeMap<TaskStatus, u64>,
    /// The task that has been ready longest, and since when, in ms since the epoch.
    pub oldest_ready: Option<(TaskId, u64)>,
    /// The number of tasks ended since the queue's ledger was created, including forgotten ones.
    /// The ledger stores these numbers, so they survive restarts. A task that two workers sealed at
    /// once counts twice.
    pub ever_ended: EndedCounts,
}

impl TaskCounts {
    /// The number of tasks with this status.
    #[must_use]
    pub fn of(&self, status: TaskStatus) -> u64 {
        self.by_status.get(&status).copied().unwrap_or_default()
    }

    /// The number of tasks that need a worker now: ready, claimed or running. Scale workers by it.
    #[must_use]
    pub fn demand(&self) -> u64 {
        self.by_status.iter().filter(|(status, _)| status.is_demand()).map(|(_, count)| count).sum()
    }

    /// The number of all tasks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_status.values().sum()
    }

    /// Counts the end of a task, if this status is an end.
    pub(super) const fn record_end(&mut self, status: TaskStatus) {
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

/// A worker on one partition of the queue, under one owner id. A worker has a different owner id on
/// each partition, and new ones after a restart. Workers that hold leases go by their names, since
/// the owner id of a lease is its holder's secret; their keep-alives count as heartbeats, and what
/// they run is not among what the granting gateway runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The partition, or -1.
    pub partition: i32,
    /// The owner id: 32 hexadecimal digits, as on the ledger; of a worker that holds leases, its
    /// name.
    pub owner: String,
    /// The identity that the worker published.
    pub identity: Option<Arc<WorkerIdentity>>,
    /// When it was started, in ms since the epoch by its own wall clock; `None` if it has no
    /// heartbeat, or has left.
    pub started_ms: Option<u64>,
    /// Its maximum of attempts, for tasks without one of their own or of their queue.
    pub max_attempts: Option<u32>,
    /// When its last heartbeat was published, in ms since the epoch by its own wall clock; `None`
    /// if it has none, or has left.
    pub last_heartbeat_ms: Option<u64>,
    /// The number of heartbeats missed since the last one, by this machine's clock; one less than
    /// half an interval late is not counted. Other workers take over its tasks after a silence of
    /// two heartbeat intervals, so at the latest when this is 2. 0 if the worker has no heartbeat,
    /// or has left.
    pub missed_heartbeats: u64,
    /// It holds leases, as a worker over HTTP does.
    pub holds_leases: bool,
    /// The tasks that the ledger shows as running on it.
    pub running: Vec<TaskId>,
}

impl WorkerInfo {
    /// Whether the worker is alive: it has not left and has missed fewer than 2 heartbeats. Others
    /// leave its tasks alone.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.last_heartbeat_ms.is_some() && self.missed_heartbeats < MISSED_MAX
    }

    /// Identifies the worker on all partitions: its instance. An owner without an instance counts
    /// as a worker of its own.
    pub(in crate::client) fn process(&self) -> &str {
        let instance = self.identity.as_ref().map(|it| it.instance.as_str());
        instance.filter(|it| !it.is_empty()).unwrap_or(&self.owner)
    }
}
