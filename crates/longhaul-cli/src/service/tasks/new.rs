//! A task about to be submitted.

use bytes::Bytes;
use longhaul::topics::Priority;
use longhaul::{AfterFailed, RetryPolicy, TaskRef};
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
