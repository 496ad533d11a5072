//! Why an attempt has no result, or a task was closed: a cause for programs, a reason for people.

use super::{TaskId, text};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why an attempt has no result, or why a task was closed. Its name is the same in metrics, in
/// entries and in answers of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", from = "String")]
#[non_exhaustive]
pub enum FailureCause {
    /// The processor returned an error, or a worker over HTTP reported a failure. A cause of a
    /// newer version reads as this one.
    #[default]
    Error,
    /// The processor panicked.
    Panic,
    /// The budget of the attempt or of the task is used up.
    Budget,
    /// The attempt reported nothing for as long as its task allows.
    NoProgress,
    /// Nothing was heard of the holder of the lease for as long as the lease lasts.
    Lost,
    /// The payload cannot be read.
    Unreadable,
    /// The worker has no processor for the type of the task.
    NoProcessor,
    /// The result is larger than the worker or the broker allows.
    ResultTooLarge,
    /// The worker was stopped before the attempt had ended, which costs no attempt.
    GivenBack,
    /// The last attempt failed or was lost, and none is left.
    NoAttemptLeft,
    /// A client has cancelled the task.
    Cancelled,
    /// An operator has closed, released or moved the task.
    Operator,
    /// The task was not started in time.
    Expired,
    /// Another task holds the key of this one.
    Duplicate,
    /// Another task has replaced this one.
    Superseded,
    /// A task that this one waits for has no result, or cannot be waited for.
    Predecessor,
}

impl FailureCause {
    /// All causes.
    pub const ALL: [Self; 16] = [
        Self::Error,
        Self::Panic,
        Self::Budget,
        Self::NoProgress,
        Self::Lost,
        Self::Unreadable,
        Self::NoProcessor,
        Self::ResultTooLarge,
        Self::GivenBack,
        Self::NoAttemptLeft,
        Self::Cancelled,
        Self::Operator,
        Self::Expired,
        Self::Duplicate,
        Self::Superseded,
        Self::Predecessor,
    ];

    /// The name of the cause.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Budget => "budget",
            Self::NoProgress => "no_progress",
            Self::Lost => "lost",
            Self::Unreadable => "unreadable",
            Self::NoProcessor => "no_processor",
            Self::ResultTooLarge => "result_too_large",
            Self::GivenBack => "given_back",
            Self::NoAttemptLeft => "no_attempt_left",
            Self::Cancelled => "cancelled",
            Self::Operator => "operator",
            Self::Expired => "expired",
            Self::Duplicate => "duplicate",
            Self::Superseded => "superseded",
            Self::Predecessor => "predecessor",
        }
    }

    /// The cause with this name; [`Error`](Self::Error) if this version knows none.
    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|cause| cause.name() == name).unwrap_or_default()
    }
}

impl From<FailureCause> for &'static str {
    fn from(cause: FailureCause) -> Self {
        cause.name()
    }
}

impl From<String> for FailureCause {
    fn from(name: String) -> Self {
        Self::named(&name)
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A cause, and its text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The cause.
    pub cause: FailureCause,
    /// Its text, which follows the Java reference where that has one.
    pub reason: String,
    /// The task that holds the key of this one, or has replaced it.
    pub other: Option<TaskId>,
}

impl Failure {
    /// A failure with this text, which is cut if it is too long.
    #[must_use]
    pub fn new(cause: FailureCause, reason: impl Into<String>) -> Self {
        Self { cause, reason: text::shortened(reason.into()), other: None }
    }

    /// Another task holds the key of this one, in its `level` if that is another one.
    #[must_use]
    pub fn duplicate_of(holder: TaskId, level: Option<&str>) -> Self {
        let reason = text::duplicate_of(holder, level);
        Self { other: Some(holder), ..Self::new(FailureCause::Duplicate, reason) }
    }

    /// Another task has replaced this one.
    #[must_use]
    pub fn superseded_by(task: TaskId) -> Self {
        Self { other: Some(task), ..Self::new(FailureCause::Superseded, text::superseded_by(task)) }
    }

    /// A client has cancelled the task.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::new(FailureCause::Cancelled, text::CANCELLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_one_name_and_one_of_a_newer_version_is_an_error() {
        let read = |json: &str| serde_json::from_str::<FailureCause>(json).unwrap();
        for cause in FailureCause::ALL {
            let json = serde_json::to_string(&cause).unwrap();
            assert_eq!((json.as_str(), read(&json)), (&*format!("\"{cause}\""), cause));
        }
        assert_eq!(read("\"eclipse\""), FailureCause::Error);
    }
}
