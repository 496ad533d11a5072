//! The body of a task in answers.

use super::values::{Instant, Length, WordList};
use crate::clock;
use crate::core::{QueueName, TaskSnapshot};
use longhaul::ops::{SubmittedTask, TaskStatus};
use longhaul::{TaskMetadata, TaskState, WorkerIdentity};
use serde::Serialize;
use utoipa::ToSchema;

/// The longest result that is told with its task.
const RESULT_BYTES_MAX: usize = 1_024;

/// A task. Times are in ms since the epoch.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Task)]
pub(crate) struct TaskBody {
    /// Its id in the queue.
    pub(crate) id: String,
    /// The queue.
    pub(crate) queue: String,
    /// `scheduled`, `ready`, `waiting`, `claimed`, `running`, `retrying`, `completed`, `failed`, `cancelled`, `expired` or `ended`.
    #[schema(value_type = String, example = "running")]
    pub(crate) status: &'static str,
    /// Attempts so far, the running one included.
    pub(crate) attempts: u32,
    /// When it was submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_at: Option<u64>,
    /// When its state changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changed_at: Option<u64>,
    /// Before when it does not start: its scheduled time, or that of its next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_at: Option<u64>,
    /// How often it has changed hands: what force-fail and force-release name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u32>,
    /// Who runs it, or ran it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<WorkerBody>,
    /// Somebody asked for its end.
    pub(crate) cancel_requested: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<ProgressBody>,
    /// Why the last attempt failed, or the task ended; in a list its first 200 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Why it does not run, in one sentence: in a list that was asked for with `why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// Something that whoever looks should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warning: Option<String>,
    /// What the attempt has logged last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) log: Vec<String>,
    /// How many bytes its result has: GET …/result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result_bytes: Option<usize>,
    /// The codec that its payload and its result are encoded by, as far as a worker has said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) codec: Option<String>,
    /// The result, if it is text of up to 1,024 bytes and was not encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
    /// Its payload and its result are hidden from whoever asks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hidden: bool,
    /// The tasks that it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waits_for: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) task_type: Option<String>,
    /// What its submitter calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The task that holds the key of this one, which never ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duplicate_of: Option<String>,
    /// The task that has taken the place of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) superseded_by: Option<String>,
    /// Now, by the gateway's clock.
    pub(crate) now: u64,
}

/// A worker, as it calls itself.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WorkerIdentity)]
pub(crate) struct WorkerBody {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) label: String,
    /// Drawn anew at each start, whatever its name is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) instance: String,
    /// It grants leases, as a gateway does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) grants_leases: bool,
}

/// How far a task has come, in units of its own.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub(crate) struct ProgressBody {
    pub(crate) done: u64,
    /// Zero when unknown.
    pub(crate) total: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

/// Some of the tasks that were asked for.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TaskList {
    pub(crate) tasks: Vec<TaskBody>,
    /// What the next page comes after (`after`); absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// Now, by the gateway's clock.
    pub(crate) now: u64,
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
        }
    }
}

impl TaskBody {
    pub(crate) fn new(queue: &QueueName, task: TaskSnapshot, hidden: bool) -> Self {
        let status = task.status();
        let TaskSnapshot { name, info, shown, submitted } = task;
        let mut body = Self::empty(name.to_string(), queue, status.word());
        body.hidden = hidden;
        if let Some(shown) = shown {
            body.say(shown);
        }
        if let Some(submitted) = submitted {
            body.say_submitted(&submitted);
        }
        let Some(info) = info else { return body };
        body.attempts = info.attempts;
        body.created_at = Some(info.created_ms);
        body.changed_at = Some(info.changed_ms);
        body.due_at = info.due_ms;
        body.epoch = Some(info.epoch);
        body.worker = info.worker.as_deref().map(WorkerBody::from).or(body.worker);
        body.cancel_requested = info.cancel_requested;
        body.progress = info.progress.map(ProgressBody::from).or(body.progress);
        body.waits_for = info.waits_for;
        body.tags = info.tags.iter().map(|tag| tag.as_ref().to_owned()).collect();
        body.task_type = info.task_type.as_deref().map(str::to_owned).or(body.task_type);
        body.key = info.key.or(body.key);
        body.reason = body.reason.or_else(|| info.reason.as_deref().map(str::to_owned));
        body
    }

    fn empty(id: String, queue: &QueueName, status: &'static str) -> Self {
        Self {
            id,
            queue: queue.to_string(),
            status,
            attempts: 0,
            created_at: None,
            changed_at: None,
            due_at: None,
            epoch: None,
            worker: None,
            cancel_requested: false,
            progress: None,
            reason: None,
            why: None,
            warning: None,
            log: Vec::new(),
            result_bytes: None,
            codec: None,
            result: None,
            hidden: false,
            waits_for: Vec::new(),
            tags: Vec::new(),
            task_type: None,
            key: None,
            duplicate_of: None,
            superseded_by: None,
            now: clock::wall_ms(),
        }
    }

    /// Adds the fields of the message of a task that no worker has claimed.
    fn say_submitted(&mut self, submitted: &SubmittedTask) {
        let property = |name: &str| submitted.properties.get(name).map(String::as_str);
        let at = property("SCHEDULED_AT").and_then(|it| Instant::parse(it).ok());
        let delay = property("DELAY").and_then(|it| Length::parse(it).ok());
        let delay_ms = delay.and_then(|it| u64::try_from(it.0.as_millis()).ok());
        let due = at.map(|it| clock::instant_ms(it.0));
        self.due_at = due.or_else(|| submitted.published_ms.checked_add(delay_ms?));
        if self.due_at.is_some_and(|due| due > self.now) {
            self.status = TaskStatus::Scheduled.word();
        }
        (self.created_at, self.changed_at) =
            (Some(submitted.published_ms), Some(submitted.published_ms));
        let tags = property("TAGS").unwrap_or_default();
        self.tags = WordList::of(tags).0;
        self.task_type = property("TASK_TYPE").map(str::to_owned);
        self.key = property("TASK_KEY").map(str::to_owned);
    }

    /// Adds the fields of the metadata entry.
    fn say(&mut self, shown: TaskMetadata) {
        self.reason = shown.reason().map(str::to_owned);
        self.result_bytes = (shown.state == TaskState::Completed)
            .then(|| shown.result.as_ref().map_or(0, bytes::Bytes::len));
        let result =
            shown.result.filter(|it| it.len() <= RESULT_BYTES_MAX && shown.codec.is_none());
        if !self.hidden && shown.state == TaskState::Completed {
            self.result = result.and_then(|it| String::from_utf8(it.into()).ok());
        }
        self.codec = shown.codec;
        self.attempts = shown.attempts;
        self.created_at = Some(shown.created);
        self.changed_at = Some(shown.last_updated);
        self.due_at = shown.next_attempt_at;
        self.worker = shown.worker.as_ref().map(WorkerBody::from);
        self.progress = shown.progress.map(ProgressBody::from);
        self.warning = shown.warning;
        self.log = shown.log;
        self.tags = shown.tags;
        self.waits_for = shown.waits_for;
        self.task_type = shown.task_type;
        self.key = shown.task_key;
        self.duplicate_of = shown.duplicate_of;
        self.superseded_by = shown.superseded_by;
    }
}

impl From<longhaul::Progress> for ProgressBody {
    fn from(longhaul::Progress { done, total, message }: longhaul::Progress) -> Self {
        Self { done, total, message }
    }
}
