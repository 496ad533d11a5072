//! The body of a task in answers.

use super::values::WordList;
use crate::clock;
use crate::core::{QueueName, TaskSnapshot};
use longhaul::ops::{SubmittedTask, TaskStatus};
use longhaul::{TaskMetadata, TaskState};
use longhaul_api::task::{ProgressBody, TaskBody, WorkerBody};
use longhaul_api::values::{Instant, Length};

/// The longest result that is told with its task.
const RESULT_BYTES_MAX: usize = 1_024;

/// A task as its body; `hidden` leaves out its result.
pub(crate) fn task_body(queue: &QueueName, task: TaskSnapshot, hidden: bool) -> TaskBody {
    let status = task.status();
    let TaskSnapshot { name, info, shown, submitted } = task;
    let mut body = TaskBody {
        id: name.to_string(),
        queue: queue.to_string(),
        status: status.word().into(),
        hidden,
        now: clock::wall_ms(),
        ..TaskBody::default()
    };
    let submitted_at = shown.as_ref().and_then(|shown| shown.submitted_at);
    if let Some(shown) = shown {
        say(&mut body, shown);
    }
    if let Some(submitted) = submitted {
        say_submitted(&mut body, &submitted);
    }
    let Some(info) = info else { return body };
    body.attempts = info.attempts;
    body.created_at = submitted_at.or(Some(info.created_ms));
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
    body.cause = body.cause.or_else(|| info.cause.map(|cause| cause.to_string()));
    body
}

/// Adds the fields of the message of a task that no worker has claimed.
fn say_submitted(body: &mut TaskBody, submitted: &SubmittedTask) {
    let property = |name: &str| submitted.properties.get(name).map(String::as_str);
    let at = property("SCHEDULED_AT").and_then(|it| Instant::parse(it).ok());
    let delay = property("DELAY").and_then(|it| Length::parse(it).ok());
    let delay_ms = delay.and_then(|it| u64::try_from(it.0.as_millis()).ok());
    let due = at.map(Instant::ms);
    body.due_at = due.or_else(|| submitted.published_ms.checked_add(delay_ms?));
    if body.due_at.is_some_and(|due| due > body.now) {
        body.status = TaskStatus::Scheduled.word().into();
    }
    (body.created_at, body.changed_at) =
        (Some(submitted.published_ms), Some(submitted.published_ms));
    let tags = property("TAGS").unwrap_or_default();
    body.tags = WordList::of(tags).0;
    body.task_type = property("TASK_TYPE").map(str::to_owned);
    body.key = property("TASK_KEY").map(str::to_owned);
}

/// Adds the fields of the metadata entry.
fn say(body: &mut TaskBody, shown: TaskMetadata) {
    body.reason = shown.reason().map(str::to_owned);
    body.cause = shown.failure_cause.map(|cause| cause.to_string());
    body.result_bytes = (shown.state == TaskState::Completed)
        .then(|| shown.result.as_ref().map_or(0, bytes::Bytes::len));
    let result = shown.result.filter(|it| it.len() <= RESULT_BYTES_MAX && shown.codec.is_none());
    if !body.hidden && shown.state == TaskState::Completed {
        body.result = result.and_then(|it| String::from_utf8(it.into()).ok());
    }
    body.codec = shown.codec;
    body.attempts = shown.attempts;
    body.created_at = Some(shown.submitted_at.unwrap_or(shown.created));
    body.changed_at = Some(shown.last_updated);
    body.due_at = shown.next_attempt_at;
    body.worker = shown.worker.as_ref().map(WorkerBody::from);
    body.progress = shown.progress.map(ProgressBody::from);
    body.warning = shown.warning;
    body.log = shown.log;
    body.tags = shown.tags;
    body.waits_for = shown.waits_for;
    body.task_type = shown.task_type;
    body.key = shown.task_key;
    body.duplicate_of = shown.duplicate_of;
    body.superseded_by = shown.superseded_by;
}
