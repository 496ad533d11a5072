//! Additions to entries on the metadata topic beyond the ledger's facts: the submitter's name of
//! the task, problems with the properties of its message, and a plain explanation of the
//! reference's failure reasons.

use super::lane::{PartitionDriver, TaskPayload};
use crate::config::WorkerConfig;
use crate::transport::Message;
use longhaul_core::ledger;
use longhaul_core::machine::Task;
use longhaul_core::metadata::entry::OutcomeBody;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::task::terms::{PropertyProblem, Terms, format_limit};
use longhaul_core::task::{FailureCause, TaskId, TaskMetadata, text};
use std::borrow::Cow;
use std::time::Duration;

/// The most bytes kept of who has cancelled a task, and why.
const CANCEL_NOTE_BYTES_MAX: usize = 1_024;

impl TaskPayload {
    /// A property as an entry shows it. A value that is too long is replaced by a warning.
    fn shown(
        &self,
        metadata: &mut TaskMetadata,
        property: &str,
        bytes_max: usize,
    ) -> Option<String> {
        let value = self.properties.get(property).filter(|value| !value.is_empty())?;
        if value.len() > bytes_max {
            warn(metadata, text::too_long_to_show(property, value.len(), bytes_max));
            return None;
        }
        Some(value.clone())
    }
}

impl PartitionDriver {
    /// Completes an entry by the known facts about the task's message.
    pub(super) fn annotate(&self, id: TaskId, metadata: &mut TaskMetadata) {
        if let Some(cause) = metadata.failure_cause
            && let Some(task) = self.core.machine().task(id)
        {
            metadata.detail = self.detail(id, cause, &task, task.state_ms);
        }
        if let Some(payload) = self.payloads.get(id) {
            self.annotate_by(payload, metadata);
        }
    }

    /// Completes an entry by the properties of the task's message.
    pub(super) fn annotate_by(&self, payload: &TaskPayload, metadata: &mut TaskMetadata) {
        for property in [text::IDEMPOTENCY_KEY, text::DEDUPE_KEY] {
            if let Some(key) = payload.properties.get(property)
                && payload.facts.key.is_none()
            {
                warn(metadata, text::key_ignored(property, key.len()));
            }
        }
        if let Some(cause) = payload.facts.overwrite_problem(&payload.properties) {
            warn(
                metadata,
                text::property_ignored(text::OVERWRITE, cause, "the task replaces no other task"),
            );
        }
        if let Some(key) = payload.properties.get(text::LIMIT_KEY)
            && payload.facts.limit_key.is_none()
        {
            warn(metadata, text::key_ignored(text::LIMIT_KEY, key.len()));
        }
        // A placeholder of a message that is gone has no such time.
        metadata.submitted_at = Some(payload.facts.published_ms).filter(|at_ms| *at_ms != 0);
        if let Some(terms) = payload.terms.as_deref() {
            metadata.tags.clone_from(&terms.tags);
            metadata.scheduled_at = terms.scheduled_at_ms;
            for problem in &terms.problems {
                warn(metadata, self.config.ignored(problem));
            }
        }
        let shown = |metadata: &mut TaskMetadata, property, bytes_max| {
            payload.shown(metadata, property, bytes_max)
        };
        metadata.task_key = shown(metadata, text::TASK_KEY, text::TASK_KEY_BYTES_MAX);
        metadata.codec = shown(metadata, text::TASK_CODEC, text::TASK_CODEC_BYTES_MAX);
        metadata.task_type = shown(metadata, text::TASK_TYPE, text::TASK_TYPE_BYTES_MAX);
    }

    /// The failure reason for the log; empty if the attempt has a result.
    pub(super) fn plain_reason<'a>(
        &self,
        id: TaskId,
        body: &'a OutcomeBody,
        at_ms: u64,
    ) -> Cow<'a, str> {
        let Some(failure) = body.failure() else { return Cow::Borrowed("") };
        let task = self.core.machine().task(id);
        let detail = task.and_then(|task| self.detail(id, failure.cause, &task, at_ms));
        detail.map_or(Cow::Borrowed(&failure.reason), Cow::Owned)
    }

    /// Explains the failure at this wall-clock time, where its text is not enough.
    pub(super) fn detail(
        &self,
        id: TaskId,
        cause: FailureCause,
        task: &Task,
        at_ms: u64,
    ) -> Option<String> {
        let terms = || self.payloads.get(id).and_then(|payload| payload.terms.as_deref());
        match cause {
            FailureCause::Budget => Some(self.over_budget(terms(), task, at_ms)),
            FailureCause::NoProgress => {
                let limit = terms().and_then(|terms| terms.no_progress_timeout);
                Some(text::no_progress(limit.and_then(in_words).as_deref()))
            }
            FailureCause::Cancelled => self.cancel_notes.get(id).map(ToString::to_string),
            FailureCause::NoAttemptLeft => Some(text::no_attempt_left(task.fold.attempt)),
            FailureCause::ResultTooLarge => Some(text::RESULT_ADVICE.to_owned()),
            FailureCause::Error
            | FailureCause::Panic
            | FailureCause::Lost
            | FailureCause::Unreadable
            | FailureCause::NoProcessor
            | FailureCause::GivenBack
            | FailureCause::Operator
            | FailureCause::Expired
            | FailureCause::Duplicate
            | FailureCause::Superseded
            | FailureCause::Predecessor
            | _ => None,
        }
    }

    /// Notes who has asked for the end of a task, and why.
    pub(super) fn record_cancel(&mut self, entry: &Entry, message: &Message) {
        // The first request counts, and one that comes after the end does nothing.
        if let Entry::Cancel(task) = entry
            && let Some((operator, _)) = ledger::operator(message)
            && self.cancel_notes.get(*task).is_none()
            && !self.core.machine().fold(*task).phase.is_terminal()
        {
            let reason = ledger::content(message).unwrap_or_default();
            let note = text::done_by("Cancelled", operator, &String::from_utf8_lossy(&reason));
            self.cancel_notes.insert(*task, text::start_of(&note, CANCEL_NOTE_BYTES_MAX).into());
        }
    }

    /// Describes the budget used up at this wall-clock time: the attempt's or the task's.
    fn over_budget(&self, terms: Option<&Terms>, task: &Task, at_ms: u64) -> String {
        let limit = self.config.limit(terms);
        let total = terms.and_then(|terms| terms.max_total_duration).filter(|total| {
            let used_ms = at_ms.saturating_sub(task.created_ms);
            limit.is_none() || Duration::from_millis(used_ms) >= *total
        });
        match total {
            Some(total) => text::over_total_budget(in_words(total).as_deref()),
            None => text::over_budget(limit.and_then(in_words).as_deref()),
        }
    }
}

impl WorkerConfig {
    /// The time limit for an attempt of a task with these terms.
    pub(super) fn limit(&self, terms: Option<&Terms>) -> Option<Duration> {
        terms.and_then(|terms| terms.max_duration).or(self.max_duration)
    }

    /// Logs the properties of a task that cannot be used.
    pub(super) fn tell_problems(&self, task: TaskId, terms: &Terms) {
        for problem in &terms.problems {
            let warning = self.ignored(problem);
            tracing::warn!(%task, "a property of the task cannot be used: {warning}");
        }
    }

    /// The warning about a property that cannot be used.
    pub(super) fn ignored(&self, problem: &PropertyProblem) -> String {
        let PropertyProblem { property, cause } = problem;
        let applies: Cow<'_, str> = match *property {
            text::MAX_TASK_DURATION => match self.max_duration.and_then(in_words) {
                Some(limit) => format!("the worker's own limit of {limit} applies").into(),
                None => "no limit applies".into(),
            },
            text::MAX_TOTAL_DURATION | text::NO_PROGRESS_TIMEOUT => "no limit applies".into(),
            text::MAX_ATTEMPTS if cause.starts_with(text::RETRY_INTERVALS) => {
                "that number applies".into()
            }
            text::MAX_ATTEMPTS => format!("the worker's own {} apply", self.attempts()).into(),
            text::RETRY_BACKOFF if cause.starts_with(text::RETRY_INTERVALS) => {
                "that applies".into()
            }
            text::RETRY_BACKOFF | text::RETRY_INTERVALS => "the worker's own pauses apply".into(),
            text::DELAY if cause.starts_with(text::SCHEDULED_AT) => "that applies".into(),
            text::SCHEDULED_AT | text::DELAY => "the task is ready at once".into(),
            text::EXPIRES_AT => "the task does not expire".into(),
            _ => "the task has none".into(),
        };
        text::property_ignored(property, cause, &applies)
    }
}

fn in_words(limit: Duration) -> Option<String> {
    format_limit(limit).ok()
}

fn warn(metadata: &mut TaskMetadata, warning: String) {
    metadata.warning = Some(match metadata.warning.take() {
        Some(before) => format!("{before}; {warning}"),
        None => warning,
    });
}
