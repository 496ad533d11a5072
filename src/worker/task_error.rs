//! The errors of a processor: why an attempt has no result.

use crate::client::TaskRef;
use longhaul_core::protocol::retry::AttemptFailure;
use longhaul_core::protocol::waits::{AfterFailed, NAMED_MAX, WaitsFor};
use longhaul_core::task::{Failure, FailureCause, PayloadError, text};
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Why an attempt has no result, and what follows.
///
/// The operator `?` converts these into an error that is tried again: any error type,
/// `anyhow::Error`, `Box<dyn Error + Send + Sync>`, a `String` and a `&str`. For this reason it is
/// no [`std::error::Error`] itself. Its message contains all causes, `outer: middle: root`, and
/// appears on the metadata topic and in the log.
///
/// ```
/// use longhaul::{TaskError, TaskErrorKind};
/// use std::time::Duration;
///
/// fn pages(text: &str) -> Result<u32, TaskError> {
///     let pages = text.parse()?;
///     match pages {
///         0 => Err(TaskError::fatal("there is nothing to print")),
///         1..=500 => Ok(pages),
///         _ => Err(TaskError::snooze(Duration::from_secs(600))),
///     }
/// }
///
/// let error = pages("ten").unwrap_err();
/// assert_eq!(error.kind(), TaskErrorKind::Retry);
/// assert_eq!(error.message(), "invalid digit found in string");
/// assert_eq!(pages("0"), Err(TaskError::fatal("there is nothing to print")));
/// assert!(matches!(pages("501").unwrap_err().kind(), TaskErrorKind::Snooze(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    kind: TaskErrorKind,
    message: String,
    /// With another cause than an error, the message is the whole reason.
    cause: FailureCause,
    after: Option<Box<AfterTasks>>,
}

/// The tasks that must be over before the next attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AfterTasks {
    tasks: Vec<TaskRef>,
    failed: AfterFailed,
}

/// The step after an attempt without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskErrorKind {
    /// Another attempt after a backoff, if one is left.
    Retry,
    /// Another attempt after this delay, if one is left.
    RetryAfter(Duration),
    /// Another attempt after one of the longest pauses, if one is left: another worker may succeed
    /// by then.
    Elsewhere,
    /// None: the task has failed for good.
    Fatal,
    /// Another attempt after this delay, without counting this one.
    Snooze(Duration),
    /// Another attempt when other tasks are over, without counting this one.
    After,
}

impl TaskError {
    /// Try again after a backoff, if an attempt is left.
    #[must_use]
    pub fn retry(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(TaskErrorKind::Retry, cause)
    }

    /// Try again after this delay, if an attempt is left.
    #[must_use]
    pub fn retry_after(delay: Duration, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(TaskErrorKind::RetryAfter(delay), cause)
    }

    /// This worker cannot do it, another one may: try again after one of the longest pauses of the
    /// backoff, between half the highest one and all of it, if an attempt is left.
    #[must_use]
    pub fn elsewhere(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(TaskErrorKind::Elsewhere, cause)
    }

    /// The same for another cause than an error, with the complete reason.
    pub(super) fn unsuitable(cause: FailureCause, reason: String) -> Self {
        Self { cause, ..Self::bare(TaskErrorKind::Elsewhere, reason) }
    }

    /// The payload cannot be decoded. The task may be meant for another version of this worker.
    pub(super) fn unreadable(cause: &PayloadError) -> Self {
        Self::unsuitable(FailureCause::Unreadable, text::undecodable(&cause.to_string()))
    }

    /// The result cannot be encoded.
    pub(super) fn not_encoded(cause: &PayloadError) -> Self {
        Self::fatal(format!("result could not be encoded: {cause}"))
    }

    /// The processor panicked; with the complete reason.
    pub(super) fn panicked(reason: String) -> Self {
        Self { cause: FailureCause::Panic, ..Self::bare(TaskErrorKind::Retry, reason) }
    }

    /// The lease was silent for too long; with the complete reason. The next attempt follows after
    /// this delay, or after a backoff.
    pub(super) fn lost(delay: Option<Duration>, reason: String) -> Self {
        let kind = delay.map_or(TaskErrorKind::Retry, TaskErrorKind::RetryAfter);
        Self { cause: FailureCause::Lost, ..Self::bare(kind, reason) }
    }

    /// Do not try again: the task has failed for good.
    #[must_use]
    pub fn fatal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(TaskErrorKind::Fatal, cause)
    }

    /// Not now: try again after this delay, at least 1 s, without counting the attempt.
    ///
    /// Each round costs two small entries on the ledger, which are removed after a few more rounds:
    /// a task that waits for hours should snooze for minutes rather than for seconds.
    #[must_use]
    pub const fn snooze(delay: Duration) -> Self {
        Self::bare(TaskErrorKind::Snooze(delay), String::new())
    }

    /// Continue when these tasks are over, without counting the attempt: tasks of the same topic,
    /// up to 1,000. Meanwhile the task has no slot and no payload in any worker. The next attempt
    /// begins from the start, with the last checkpoint, and finds them in
    /// [`TaskContext::predecessors`](crate::TaskContext::predecessors). It begins even if some of
    /// them have no result, unless [`after_failed`](Self::after_failed) excludes that. If all of
    /// them are over already it begins after 1 s, as after the shortest snooze.
    ///
    /// ```
    /// use longhaul::{Client, TaskContext, TaskError, Text};
    ///
    /// /// Counts the words of two pages, each of which is a task of its own.
    /// async fn count(client: &Client, context: TaskContext) -> Result<u64, TaskError> {
    ///     if context.predecessors().is_empty() {
    ///         let mut pages = Vec::new();
    ///         for page in ["one", "two"] {
    ///             // A second attempt, after this worker has died here, finds the same tasks.
    ///             let key = format!("{} {page}", context.task_id());
    ///             let page = client.submission(context.topic(), &Text(page.to_owned()));
    ///             pages.push(page.idempotency_key(key).send().await?);
    ///         }
    ///         return Err(TaskError::after(&pages));
    ///     }
    ///     let mut words = 0;
    ///     for page in context.predecessors() {
    ///         words += page.result::<u64>().await?.unwrap_or_default();
    ///     }
    ///     Ok(words)
    /// }
    /// ```
    #[must_use]
    pub fn after<'a>(tasks: impl IntoIterator<Item = &'a TaskRef>) -> Self {
        let tasks = tasks.into_iter().cloned().collect();
        let after = Some(Box::new(AfterTasks { tasks, failed: AfterFailed::Run }));
        Self { after, ..Self::bare(TaskErrorKind::After, String::new()) }
    }

    /// With [`after`](Self::after): sets the consequence if one of the tasks is over without a
    /// result.
    #[must_use]
    pub fn after_failed(mut self, policy: AfterFailed) -> Self {
        if let Some(after) = &mut self.after {
            after.failed = policy;
        }
        self
    }

    /// The tasks that must be over before the next attempt, if it is such an error.
    pub(super) fn take_after(&mut self) -> Option<Box<AfterTasks>> {
        self.after.take()
    }

    fn new(kind: TaskErrorKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::bare(kind, chain(&*cause.into()))
    }

    const fn bare(kind: TaskErrorKind, message: String) -> Self {
        Self { kind, message, cause: FailureCause::Error, after: None }
    }

    /// The step that follows.
    #[must_use]
    pub const fn kind(&self) -> TaskErrorKind {
        self.kind
    }

    /// The error and its causes, the outermost first. Empty for a snooze, and if it waits for other
    /// tasks.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The step that follows in terms of the protocol, and why.
    pub(super) fn into_failure(self) -> (AttemptFailure, Failure) {
        let next = match self.kind {
            TaskErrorKind::Retry => AttemptFailure::Retry,
            TaskErrorKind::RetryAfter(delay) => AttemptFailure::RetryAfter(delay),
            TaskErrorKind::Elsewhere => AttemptFailure::RetryLate,
            TaskErrorKind::Fatal => AttemptFailure::Fatal,
            TaskErrorKind::Snooze(delay) => AttemptFailure::Snooze(delay),
            // This is no failure: the caller has looked for the tasks before.
            TaskErrorKind::After => AttemptFailure::Snooze(Duration::ZERO),
        };
        let Self { cause, message, .. } = self;
        let is_error = cause == FailureCause::Error;
        let reason = if is_error { text::processing_error(&message) } else { message };
        (next, Failure::new(cause, reason))
    }
}

impl AfterTasks {
    /// The list of the tasks, or why there is none: tasks of another topic cannot be waited for.
    pub(super) fn list(&self, topic: &str) -> Result<WaitsFor, String> {
        if let Some(task) = self.tasks.iter().find(|task| task.topic != topic) {
            return Err(format!("cannot wait for {task}: it is a task of another topic"));
        }
        let list = WaitsFor::of(self.tasks.iter().map(|task| task.id), self.failed);
        let count = list.names.len();
        if count > NAMED_MAX {
            return Err(format!("cannot wait for {count} tasks: the limit is {NAMED_MAX}"));
        }
        Ok(list)
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TaskErrorKind::Snooze(delay) => write!(f, "not now, again after {delay:?}"),
            TaskErrorKind::After => f.write_str("not now, again after other tasks"),
            TaskErrorKind::Retry
            | TaskErrorKind::RetryAfter(_)
            | TaskErrorKind::Elsewhere
            | TaskErrorKind::Fatal => f.write_str(&self.message),
        }
    }
}

/// An error and its causes. A cause that the text before it already ends with is not repeated: many
/// errors print theirs.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    /// Maximum number of causes: a chain may be a circle.
    const LINKS_MAX: usize = 32;
    let mut text = error.to_string();
    let mut source = error.source();
    for _ in 0..LINKS_MAX {
        let Some(cause) = source else { break };
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskId;
    use std::num::ParseIntError;

    #[derive(Debug, thiserror::Error)]
    #[error("the order cannot be read")]
    struct Unreadable(#[source] BadField);

    #[derive(Debug, thiserror::Error)]
    #[error("the field `pages` is no number: {0}")]
    struct BadField(#[source] ParseIntError);

    fn bad_field() -> BadField {
        BadField("ten".parse::<u32>().unwrap_err())
    }

    /// The result of `?`.
    fn turned<E>(error: E) -> TaskError
    where
        TaskError: From<E>,
    {
        (|| -> Result<(), TaskError> { Err(error)? })().unwrap_err()
    }

    #[track_caller]
    fn check(error: &TaskError, message: &str) {
        assert_eq!((error.kind(), error.message()), (TaskErrorKind::Retry, message));
        assert_eq!(error.to_string(), message);
    }

    /// Earlier, the message was only the outermost error's: `the order cannot be read` did not tell
    /// why.
    #[test]
    fn the_message_has_the_whole_chain_of_causes_and_none_of_them_twice() {
        let chain = "the order cannot be read: \
            the field `pages` is no number: invalid digit found in string";
        check(&turned(Unreadable(bad_field())), chain);
        check(&turned(anyhow::Error::new(Unreadable(bad_field()))), chain);
        let fatal = TaskError::fatal(Unreadable(bad_field()));
        assert_eq!((fatal.kind(), fatal.message()), (TaskErrorKind::Fatal, chain));
    }

    /// Earlier, `?` in a processor accepted only types that implement `Error`, so neither
    /// `anyhow::Error` nor a boxed error, nor a text.
    #[test]
    fn what_an_attempt_may_meet_turns_into_an_error_that_is_tried_again() {
        use anyhow::Context;
        let failed = || "x".parse::<u32>();
        check(&turned(failed().unwrap_err()), "invalid digit found in string");
        let with_context = failed().context("no number").unwrap_err();
        check(&turned(with_context), "no number: invalid digit found in string");
        check(&turned(anyhow::anyhow!("out of {}", "paper")), "out of paper");
        let boxed: Box<dyn Error + Send + Sync> = Box::new(bad_field());
        check(&turned(boxed), "the field `pages` is no number: invalid digit found in string");
        check(&turned("out of paper"), "out of paper");
        check(&turned("out of paper".to_owned()), "out of paper");
        check(&turned(TaskError::retry("out of paper")), "out of paper");
    }

    #[test]
    fn a_snooze_says_so() {
        let second = Duration::from_secs(1);
        let snooze = TaskError::snooze(second);
        assert_eq!((snooze.kind(), snooze.message()), (TaskErrorKind::Snooze(second), ""));
        assert_eq!(snooze.to_string(), "not now, again after 1s");
        let later = TaskError::retry_after(second, "later");
        assert_eq!(later.kind(), TaskErrorKind::RetryAfter(second));
    }

    #[test]
    fn a_task_goes_on_after_others_of_its_own_topic() {
        let task = |topic: &str, entry| TaskRef {
            topic: topic.to_owned(),
            id: TaskId { ledger: 1, entry, partition: -1, batch_index: None },
        };
        let tasks = [task("own", 1), task("own", 2)];
        let mut error = TaskError::after(&tasks).after_failed(AfterFailed::Skip);
        assert_eq!((error.kind(), error.message()), (TaskErrorKind::After, ""));
        let after = error.take_after().unwrap();
        let list = WaitsFor::of(tasks.iter().map(|task| task.id), AfterFailed::Skip);
        assert_eq!(after.list("own"), Ok(list));
        let told = after.list("other").unwrap_err();
        assert_eq!(told, "cannot wait for own@1:1:-1: it is a task of another topic");
        let many: Vec<_> = (0..=1_000).map(|entry| task("own", entry)).collect();
        let told = TaskError::after(&many).take_after().unwrap().list("own").unwrap_err();
        assert_eq!(told, "cannot wait for 1001 tasks: the limit is 1000");
    }

    #[test]
    fn a_reason_in_whole_words_has_no_words_before_it() {
        let elsewhere = TaskError::elsewhere("no printer");
        assert_eq!(elsewhere.kind(), TaskErrorKind::Elsewhere);
        let failure = |cause, reason| (AttemptFailure::RetryLate, Failure::new(cause, reason));
        let expected = failure(FailureCause::Error, "Processing error: no printer");
        assert_eq!(elsewhere.into_failure(), expected);
        let unsuitable = TaskError::unsuitable(FailureCause::NoProcessor, "No printer".to_owned());
        let expected = failure(FailureCause::NoProcessor, "No printer");
        assert_eq!(unsuitable.into_failure(), expected);
    }
}
