//! A task about to be submitted.

use crate::exit::CommandFailure;
use bytes::Bytes;
use longhaul::topics::Priority;
use longhaul::{AfterFailed, Client, Raw, RetryPolicy, Submission, TaskRef};
use std::time::{Duration, SystemTime};

/// The payload and the options of a submission.
#[derive(Clone, Debug)]
pub(crate) struct TaskSubmission {
    pub(crate) queue: String,
    pub(crate) payload: Bytes,
    pub(crate) terms: SubmissionTerms,
}

/// The options of a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubmissionTerms {
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) task_type: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) priority: Priority,
    pub(crate) delay: Option<Duration>,
    pub(crate) scheduled_at: Option<SystemTime>,
    pub(crate) expires_at: Option<SystemTime>,
    pub(crate) max_duration: Option<Duration>,
    pub(crate) max_total_duration: Option<Duration>,
    pub(crate) no_progress_timeout: Option<Duration>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) limit_key: Option<String>,
    pub(crate) order_key: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) dedupe_key: Option<String>,
    pub(crate) overwrite: bool,
    pub(crate) strict: bool,
    pub(crate) after: Vec<TaskRef>,
    pub(crate) after_keys: Vec<String>,
    pub(crate) after_failed: Option<AfterFailed>,
}

/// Sets an option, if it has a value.
fn with<T>(
    submission: Submission,
    value: Option<T>,
    put: impl FnOnce(Submission, T) -> Submission,
) -> Submission {
    match value {
        Some(value) => put(submission, value),
        None => submission,
    }
}

impl TaskSubmission {
    /// The library's submission.
    ///
    /// # Errors
    /// When it waits for a task of another queue.
    pub(super) fn submission(self, client: &Client) -> Result<Submission, CommandFailure> {
        let Self { queue, payload, terms } = self;
        terms.put_into(client.submission(&queue, &Raw(payload)))
    }
}

impl SubmissionTerms {
    /// Sets all options on a submission.
    ///
    /// # Errors
    /// When options contradict each other.
    pub(crate) fn put_into(self, mut it: Submission) -> Result<Submission, CommandFailure> {
        if self.overwrite && self.dedupe_key.is_none() {
            return Err(CommandFailure::usage(
                "--overwrite takes the place of the task that holds a dedupe key",
            )
            .help("say --dedupe-key as well"));
        }
        for (name, value) in self.properties {
            it = it.property(name, value);
        }
        it = it.priority(self.priority);
        it = with(it, self.task_type, Submission::task_type);
        it = with(it, self.key, Submission::key);
        it = it.tags(self.tags);
        it = with(it, self.delay, Submission::delay);
        it = with(it, self.scheduled_at, Submission::scheduled_at);
        it = with(it, self.expires_at, Submission::expires_at);
        it = with(it, self.max_duration, Submission::max_duration);
        it = with(it, self.max_total_duration, Submission::max_total_duration);
        it = with(it, self.no_progress_timeout, Submission::no_progress_timeout);
        it = with(it, self.max_attempts, Submission::max_attempts);
        it = with(it, self.retry, Submission::retry);
        it = with(it, self.limit_key, Submission::limit_key);
        it = with(it, self.order_key, Submission::order_key);
        it = with(it, self.idempotency_key, Submission::idempotency_key);
        it = with(it, self.dedupe_key, Submission::dedupe_key);
        it = if self.overwrite { it.overwrite() } else { it };
        it = if self.strict { it.strict() } else { it };
        it = if self.after.is_empty() { it } else { it.after(&self.after) };
        for key in self.after_keys {
            it = it.after_key(key);
        }
        Ok(with(it, self.after_failed, Submission::after_failed))
    }
}
