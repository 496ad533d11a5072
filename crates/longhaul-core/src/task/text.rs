//! Texts and property names that other implementations read. Pinned by tests: they never change.

use super::TaskId;
use std::time::Duration;

/// Message property of a task: its budget per attempt, an ISO 8601 duration such as `PT1H`.
pub const MAX_TASK_DURATION: &str = "MAX_TASK_DURATION";

/// Message property of a task: its budget over all attempts and pauses, from its first claim on, an
/// ISO 8601 duration.
pub const MAX_TOTAL_DURATION: &str = "MAX_TOTAL_DURATION";

/// Message property of a task: maximum time without a report of an attempt, an ISO 8601 duration.
pub const NO_PROGRESS_TIMEOUT: &str = "NO_PROGRESS_TIMEOUT";

/// Message property of a task: its maximum number of attempts.
pub const MAX_ATTEMPTS: &str = "MAX_ATTEMPTS";

/// Message property of a task: the first and the longest pause between its attempts, such as
/// `PT1S/PT5M`.
pub const RETRY_BACKOFF: &str = "RETRY_BACKOFF";

/// Message property of a task: the pauses between its attempts, such as `PT1S,PT10S,PT1M`.
pub const RETRY_INTERVALS: &str = "RETRY_INTERVALS";

/// Message property of a task: its earliest start, an instant of RFC 3339 or milliseconds since the
/// epoch.
pub const SCHEDULED_AT: &str = "SCHEDULED_AT";

/// Message property of a task: its earliest start after its publish time, an ISO 8601 duration.
pub const DELAY: &str = "DELAY";

/// Message property of a task: no attempt begins after this instant.
pub const EXPIRES_AT: &str = "EXPIRES_AT";

/// Message property of a task: the ids of tasks of its topic that must be over before it begins,
/// separated by commas.
pub const AFTER: &str = "AFTER";

/// Message property of a task: the policy if one of those has no result: `fail`, `skip` or `run`.
pub const AFTER_FAILED: &str = "AFTER_FAILED";

/// Message property of a task: words for searching, separated by commas.
pub const TAGS: &str = "TAGS";

/// Message property of a task: its submitter's name for it.
pub const TASK_KEY: &str = "TASK_KEY";

/// The longest key of a task, in bytes: each of its entries on the metadata topic carries it.
pub const TASK_KEY_BYTES_MAX: usize = 256;

/// Message property of a task: its type, by which a router selects the processor.
pub const TASK_TYPE: &str = "TASK_TYPE";

/// Message property of a task: the codec of its payload.
pub const TASK_CODEC: &str = "TASK_CODEC";

/// The longest name of a codec, in bytes.
pub const TASK_CODEC_BYTES_MAX: usize = 128;

/// The longest type of a task, in bytes.
pub const TASK_TYPE_BYTES_MAX: usize = 128;

/// Message property of a task: only one of all tasks with the same value is run.
pub const IDEMPOTENCY_KEY: &str = "IDEMPOTENCY_KEY";

/// Message property of a task: only one of all unfinished tasks with the same value is run.
pub const DEDUPE_KEY: &str = "DEDUPE_KEY";

/// Message property of a task with a dedupe key: it replaces the earlier unfinished one.
pub const OVERWRITE: &str = "OVERWRITE";

/// Message property of a task that a schedule has submitted: the name of the schedule.
#[cfg(feature = "schedules")]
pub const SCHEDULE: &str = "SCHEDULE";

/// Message property of a task that a schedule has submitted: its scheduled instant, in RFC 3339.
#[cfg(feature = "schedules")]
pub const SCHEDULE_SLOT: &str = "SCHEDULE_SLOT";

/// Message property of a task: the limits of this key apply to it, beside those of its queue.
pub const LIMIT_KEY: &str = "LIMIT_KEY";

/// Whether a text is a valid value of [`LIMIT_KEY`].
pub fn is_limit_key(key: &str) -> bool {
    (1..=crate::settings::LIMIT_KEY_BYTES_MAX).contains(&key.len())
}

/// Message property of a task: on a queue with an order, tasks with the same value are run one at a
/// time, in order. The broker uses the key of the message, which is the same.
pub const ORDER_KEY: &str = "ORDER_KEY";

/// The longest order key, in bytes.
pub const ORDER_KEY_BYTES_MAX: usize = 256;

/// Message property of a task that is a replay of a dead letter: the id of the failed task.
pub const REPLAY_OF: &str = "REPLAY_OF";

/// Message property of a task that is a copy from another queue: the name of that queue and the id
/// of the task there. Workers do not use it.
pub const COPY_OF: &str = "COPY_OF";

/// Message property of a task: the checkpoint with which its first attempt begins, in base64. An
/// attempt that finds a checkpoint on the ledger begins with that one.
pub const CHECKPOINT: &str = "CHECKPOINT";

/// Maximum size of a checkpoint, in bytes.
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;

/// Property of a dead letter without its payload, which was gone or too large.
pub const PAYLOAD_GONE: &str = "payloadGone";

/// The reason if another task holds the key, with its level if that is another one.
pub fn duplicate_of(holder: TaskId, level: Option<&str>) -> String {
    match level {
        Some(level) => format!("Duplicate of {holder} of priority {level}"),
        None => format!("Duplicate of {holder}"),
    }
}

/// The reason if another task replaces this one.
pub fn superseded_by(task: TaskId) -> String {
    format!("Superseded by {task}")
}

/// The warning about an invalid key: the task has none.
pub fn key_ignored(property: &str, bytes: usize) -> String {
    format!("{property} has {bytes} bytes, and a key has 1 to 256: the task has no key")
}

/// The last attempt failed or was lost, and there is none left.
pub const ALL_ATTEMPTS_FAILED: &str = "All attempts to process task failed.";

/// The attempt ran longer than its budget. The text includes the missing message of the reference's
/// exception.
pub const OVER_BUDGET: &str = "Process was cancelled: null";

/// The attempt made no report for as long as its task allows.
pub const NO_PROGRESS: &str = "Process was cancelled: no progress";

/// A client cancelled the task.
pub const CANCELLED: &str = "Process was cancelled: cancelled by client";

/// The task was not started in time.
pub const EXPIRED: &str = "Task expired before it was started";

/// The holder of a lease was silent for too long.
pub fn lease_expired(worker: &str, lease_time: Duration) -> String {
    format!("Lease expired: nothing was heard of worker `{worker}` for {lease_time:?}")
}

/// The worker of the previous attempt fell silent.
pub const WORKER_LOST: &str = "Worker lost";

/// The worker of the attempt was drained before the attempt had ended.
pub const GIVEN_BACK: &str = "Given back: the worker was stopped";

/// Maximum length of a failure reason, in bytes: it must fit into entries and into a property of
/// the dead letter.
const REASON_BYTES_MAX: usize = 16 * 1024;

/// Cuts a reason that is too long.
pub fn shortened(mut reason: String) -> String {
    if reason.len() > REASON_BYTES_MAX {
        let end = start_of(&reason, REASON_BYTES_MAX).len();
        reason.truncate(end);
        reason.push('…');
    }
    reason
}

/// Maximum length in bytes of a name in entries.
const WORD_BYTES_MAX: usize = 128;

/// A name without control characters, cut if it is too long.
pub fn word(text: &str) -> String {
    let plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
    start_of(&plain, WORD_BYTES_MAX).to_owned()
}

/// The processor returned an error.
pub fn processing_error(message: &str) -> String {
    format!("Processing error: {message}")
}

/// The processor panicked.
pub fn panicked(message: &str, place: Option<&str>) -> String {
    match place {
        Some(place) => processing_error(&format!("panicked: {message} at {place}")),
        None => processing_error(&format!("panicked: {message}")),
    }
}

/// The processor cannot decode the payload.
pub fn undecodable(cause: &str) -> String {
    format!("Task payload could not be decoded: {cause}")
}

/// There is no processor here for this type, only for these.
pub fn unknown_type<'a>(
    task_type: Option<&str>,
    known: impl Iterator<Item = &'a String>,
) -> String {
    let known: Vec<String> = known.map(|known| format!("`{known}`")).collect();
    let have = if known.len() > 1 { "have" } else { "has" };
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    match task_type {
        Some(task_type) => {
            let shown = start_of(task_type, TASK_TYPE_BYTES_MAX);
            format!("Task type `{shown}` has no processor here, only {known}")
        }
        None => format!("The task has no {TASK_TYPE}, and only {known} {have} a processor here"),
    }
}

/// The first `bytes_max` bytes of a text, or a few less, so that no character is cut.
pub fn start_of(text: &str, bytes_max: usize) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=bytes_max.min(text.len())).rev().find(fits).unwrap_or_default();
    text.get(..end).unwrap_or_default()
}

/// Explains [`OVER_BUDGET`].
pub fn over_budget(limit: Option<&str>) -> String {
    match limit {
        Some(limit) => format!("The attempt took longer than its budget of {limit}."),
        None => "The attempt took longer than its budget.".to_owned(),
    }
}

/// Explains [`OVER_BUDGET`] for a task whose budget for all attempts is used up.
pub fn over_total_budget(limit: Option<&str>) -> String {
    match limit {
        Some(limit) => format!("The task took longer than its total budget of {limit}."),
        None => "The task took longer than its total budget.".to_owned(),
    }
}

/// What was done to a task, by whom, and why if that is said: `Deleted by ann: wrong customer`. It
/// also explains [`CANCELLED`].
pub fn done_by(participle: &str, operator: &str, reason: &str) -> String {
    let by = format!("{participle} by {operator}");
    if reason.is_empty() { by } else { format!("{by}: {reason}") }
}

/// Explains [`NO_PROGRESS`].
pub fn no_progress(limit: Option<&str>) -> String {
    match limit {
        Some(limit) => format!("The attempt reported nothing for {limit}."),
        None => "The attempt reported nothing for too long.".to_owned(),
    }
}

/// Explains [`ALL_ATTEMPTS_FAILED`].
pub fn no_attempt_left(attempts: u32) -> String {
    format!("No attempt is left after {attempts}: the last one failed, or its worker fell silent.")
}

/// The warning about an unusable property, with the cause and the value that applies instead.
pub fn property_ignored(property: &str, cause: &str, applies: &str) -> String {
    format!("{property} is not used: {cause}: {applies}")
}

/// The warning about a value that is too long to be shown.
pub fn too_long_to_show(property: &str, bytes: usize, bytes_max: usize) -> String {
    format!("{property} is not shown: it has {bytes} bytes, the limit is {bytes_max}")
}

/// The result is larger than the worker's limit.
pub fn result_too_large(bytes: usize, limit_bytes: usize) -> String {
    format!("Result too large: {bytes} bytes, the limit is {limit_bytes}")
}

/// The broker refuses a message as large as the result.
pub fn result_refused(bytes: usize, cause: &str) -> String {
    format!("Result too large: {bytes} bytes, {cause}")
}

/// What to do about a result that is too large.
pub const RESULT_ADVICE: &str = "Put the result into a store and return a reference to it.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let fits = "ä".repeat(REASON_BYTES_MAX / 2);
        assert_eq!(shortened(fits.clone()), fits);
        assert_eq!(shortened(format!("x{fits}")).len(), REASON_BYTES_MAX - 1 + '…'.len_utf8());
    }
}
