//! What entries on M say besides what the ledger tells: what the submitter calls the task, what is wrong with the properties of its message,
//! and in plain words what the reference's reason of a failure means.

use super::lane::{Lane, TaskPayload};
use crate::task::{TaskId, TaskMetadata, text};
use crate::worker::budget::{Budget, budget_of, format_budget};
use crate::worker::metadata::entry::Body;
use std::borrow::Cow;
use std::time::Duration;

impl TaskPayload {
    /// What limits an attempt.
    pub(super) fn budget(&self, by_default: Option<Duration>) -> Budget {
        let property = self.properties.get(text::MAX_TASK_DURATION);
        budget_of(property.map(String::as_str), by_default)
    }
}

impl Lane {
    /// Completes an entry by what is known of the task's message.
    pub(super) fn annotate(&self, id: TaskId, metadata: &mut TaskMetadata) {
        if let Some(reason) = &metadata.failure_reason {
            metadata.detail = self.detail(id, reason, metadata.attempts);
        }
        let Some(payload) = self.payloads.get(id) else { return };
        if let Some(error) = payload.budget(self.config.max_duration).problem {
            let limit = self.config.max_duration.and_then(in_words);
            warn(metadata, text::budget_ignored(&error.to_string(), limit.as_deref()));
        }
        match payload.properties.get(text::TASK_KEY) {
            Some(key) if key.len() > text::TASK_KEY_BYTES_MAX => {
                warn(metadata, text::key_too_long(key.len()));
            }
            Some(key) if !key.is_empty() => metadata.task_key = Some(key.clone()),
            Some(_) | None => {}
        }
    }

    /// Why an attempt failed, for the log: nothing if it has a result.
    pub(super) fn plain_reason<'a>(
        &self,
        id: TaskId,
        body: &'a Body,
        attempts: u32,
    ) -> Cow<'a, str> {
        let Body::Reason(reason) = body else { return Cow::Borrowed("") };
        let detail = self.detail(id, reason, attempts);
        detail.map_or(Cow::Borrowed(reason), Cow::Owned)
    }

    /// What the reason of a failure means, where its text does not say.
    pub(super) fn detail(&self, id: TaskId, reason: &str, attempts: u32) -> Option<String> {
        match reason {
            text::OVER_BUDGET => {
                let payload = self.payloads.get(id);
                let limit = payload.and_then(|it| it.budget(self.config.max_duration).limit);
                Some(text::over_budget(limit.and_then(in_words).as_deref()))
            }
            text::ALL_ATTEMPTS_FAILED => Some(text::no_attempt_left(attempts)),
            _ => None,
        }
    }
}

fn in_words(limit: Duration) -> Option<String> {
    format_budget(limit).ok()
}

fn warn(metadata: &mut TaskMetadata, warning: String) {
    metadata.warning = Some(match metadata.warning.take() {
        Some(before) => format!("{before}; {warning}"),
        None => warning,
    });
}
