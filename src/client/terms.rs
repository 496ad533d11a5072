//! Options of a task, set by its submitter: each setter writes a property of the task's message,
//! which any Pulsar producer can set as well. [`Submission::send`] fails if a value cannot be
//! written.

use super::submit::{Submission, SubmitError};
use jiff::Timestamp;
use longhaul_core::protocol::retry::RetryPolicy;
use longhaul_core::task::terms::{
    ATTEMPTS_MAX, INTERVALS_MAX, check_tags, format_duration, format_limit, millis,
};
use longhaul_core::task::text::{self, ORDER_KEY_BYTES_MAX};
use std::time::{Duration, SystemTime};

/// When the broker delivers a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DeliveryTime {
    #[default]
    AtOnce,
    /// In ms since the epoch.
    At(u64),
    /// In ms after sending.
    After(u64),
}

impl DeliveryTime {
    /// In ms since the epoch; `None` for now.
    pub(super) fn at_ms(self, now_ms: u64) -> Option<u64> {
        let at_ms = match self {
            Self::AtOnce => return None,
            Self::At(at_ms) => at_ms,
            Self::After(delay_ms) => now_ms.saturating_add(delay_ms),
        };
        (at_ms > now_ms).then_some(at_ms)
    }
}

impl Submission {
    /// Sets the time limit of one attempt. An attempt that takes longer is cancelled and fails.
    pub fn max_duration(self, budget: Duration) -> Self {
        self.term(text::MAX_TASK_DURATION, format_limit(budget).map_err(|error| error.to_string()))
    }

    /// Sets the time limit of the whole task, from its first claim on, over all attempts and the
    /// pauses between them. At the limit the task fails for good, and a running attempt is
    /// cancelled.
    pub fn max_total_duration(self, budget: Duration) -> Self {
        self.term(text::MAX_TOTAL_DURATION, format_limit(budget).map_err(|error| error.to_string()))
    }

    /// Sets how long an attempt may go without a report: progress, a checkpoint or a log line.
    /// After that it is cancelled and fails. This is also the lease time of the task (100 ms to a
    /// week), unless the lease request sets another; for a lease, a keep-alive counts as a report.
    pub fn no_progress_timeout(self, limit: Duration) -> Self {
        self.term(text::NO_PROGRESS_TIMEOUT, format_limit(limit).map_err(|error| error.to_string()))
    }

    /// Sets the number of attempts, 1 to 1000, in place of the worker's setting.
    pub fn max_attempts(self, attempts: u32) -> Self {
        let written = if (1..=ATTEMPTS_MAX).contains(&attempts) {
            Ok(attempts.to_string())
        } else {
            Err(format!("it must be between 1 and {ATTEMPTS_MAX}, is {attempts}"))
        };
        self.term(text::MAX_ATTEMPTS, written)
    }

    /// Sets the pauses between attempts, in place of the worker's setting. A list of up to 100
    /// intervals makes one attempt more than there are intervals.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        let RetryPolicy { base, max, intervals } = policy;
        self.properties.remove(text::RETRY_BACKOFF);
        self.properties.remove(text::RETRY_INTERVALS);
        if intervals.is_empty() {
            return self.term(text::RETRY_BACKOFF, written_backoff(base, max));
        }
        self.term(text::RETRY_INTERVALS, written_intervals(&intervals))
    }

    /// Starts the task no earlier than this instant; a past one means now. It may be months ahead:
    /// the broker keeps the task until then; where it cannot, the workers keep its id.
    ///
    /// ```no_run
    /// use longhaul::{Client, SubmitError, TaskRef, Text};
    /// use std::time::{Duration, SystemTime};
    ///
    /// async fn remind(client: &Client) -> Result<TaskRef, SubmitError> {
    ///     let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    ///     client.submission("reminders", &Text("renew".to_owned())).scheduled_at(tomorrow).send().await
    /// }
    /// ```
    ///
    /// Times of other crates do as well, such as those of chrono:
    ///
    /// ```no_run
    /// use chrono::{TimeDelta, Utc};
    /// use longhaul::{Client, SubmitError, TaskRef, Text};
    ///
    /// async fn remind(client: &Client) -> Result<TaskRef, SubmitError> {
    ///     let tomorrow = Utc::now() + TimeDelta::days(1);
    ///     client.submission("reminders", &Text("renew".to_owned())).scheduled_at(tomorrow).send().await
    /// }
    /// ```
    pub fn scheduled_at(mut self, at: impl Into<SystemTime>) -> Self {
        self.properties.remove(text::DELAY);
        let at = Timestamp::try_from(at.into()).map_err(|error| error.to_string());
        if let Ok(at) = at {
            // An instant before 1970 is in the past.
            self.delivery = DeliveryTime::At(u64::try_from(at.as_millisecond()).unwrap_or(0));
        }
        self.term(text::SCHEDULED_AT, at.map(|at| at.to_string()))
    }

    /// Starts the task no earlier than this long after it was sent.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.properties.remove(text::SCHEDULED_AT);
        self.delivery = DeliveryTime::After(millis(delay));
        self.term(text::DELAY, format_duration(delay).map_err(|error| error.to_string()))
    }

    /// Sets an instant after which no attempt starts: the task then ends as expired. A running
    /// attempt continues, also when another worker takes it over.
    pub fn expires_at(self, at: impl Into<SystemTime>) -> Self {
        let at = Timestamp::try_from(at.into()).map_err(|error| error.to_string());
        self.term(text::EXPIRES_AT, at.map(|at| at.to_string()))
    }

    /// Adds a tag to find the task by; entries on the metadata topic carry it
    /// ([`TaskMetadata::tags`](crate::TaskMetadata::tags)). A task has up to 16 tags of 1 to 64
    /// bytes each, without commas.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        let written = check_tags(&self.tags).map(|()| self.tags.join(","));
        self.term(text::TAGS, written)
    }

    /// Adds several tags: see [`Submission::tag`].
    pub fn tags<T: Into<String>>(self, tags: impl IntoIterator<Item = T>) -> Self {
        tags.into_iter().fold(self, Self::tag)
    }

    /// Sets the limit key, a text of 1 to 256 bytes. The limits of this key apply to the task in
    /// addition to those of its queue: how many tasks run at once, and how many start within a
    /// period. The settings of the queue define them ([`Client::queue`](crate::Client::queue)).
    pub fn limit_key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        let problem = format!("a key has 1 to 256 bytes, this one has {}", key.len());
        let fits = text::is_limit_key(&key);
        self.term(text::LIMIT_KEY, if fits { Ok(key) } else { Err(problem) })
    }

    /// Sets the order key, a text of 1 to 256 bytes. On a queue with an order
    /// ([`QueueSettings::order`](crate::ops::QueueSettings::order)), tasks with the same key run
    /// one at a time, in the order of submission. The next one starts when the one before it is
    /// over: completed, failed for good, cancelled or expired. The order key is also the key of the
    /// task's message, as Pulsar producers set it, and decides the partition.
    ///
    /// A task that is to start later takes its place in the order when its time has come. On a
    /// queue without an order the key only decides the partition.
    pub fn order_key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        let problem =
            format!("a key has 1 to {ORDER_KEY_BYTES_MAX} bytes, this one has {}", key.len());
        let fits = (1..=ORDER_KEY_BYTES_MAX).contains(&key.len());
        self.term(text::ORDER_KEY, if fits { Ok(key) } else { Err(problem) })
    }

    pub(super) fn term(self, name: &'static str, value: Result<String, String>) -> Self {
        match value {
            Ok(value) => self.property(name, value),
            Err(problem) => self.refuse(SubmitError::Property { name, problem }),
        }
    }
}

fn written_backoff(base: Duration, max: Duration) -> Result<String, String> {
    if base > max {
        return Err(format!("the base {base:?} exceeds the maximum {max:?}"));
    }
    let text = |limit| format_limit(limit).map_err(|error| error.to_string());
    Ok(format!("{}/{}", text(base)?, text(max)?))
}

fn written_intervals(intervals: &[Duration]) -> Result<String, String> {
    if intervals.len() > INTERVALS_MAX {
        let count = intervals.len();
        return Err(format!("there are {count} intervals, and {INTERVALS_MAX} is the limit"));
    }
    let texts: Result<Vec<_>, _> = intervals
        .iter()
        .map(|pause| format_duration(*pause).map_err(|error| error.to_string()))
        .collect();
    texts.map(|texts| texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use crate::client::fake::{Fake, FakeTransport};
    use longhaul_core::task::terms::Terms;
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    const SECOND: Duration = Duration::from_secs(1);

    fn submission() -> Submission {
        let transport = FakeTransport(Fake::new());
        Client::on_transport(Arc::new(transport)).submission("tasks", &1_u32)
    }

    fn terms(submission: &Submission) -> Terms {
        Terms::read(&submission.properties, 1_000).unwrap()
    }

    #[test]
    fn what_is_said_is_what_a_worker_reads() {
        let (at, expires) = (UNIX_EPOCH + 7 * SECOND, UNIX_EPOCH + 9 * SECOND);
        let all = submission().max_duration(SECOND).max_total_duration(2 * SECOND);
        let all = all.no_progress_timeout(3 * SECOND).max_attempts(4).tag("a").tags(["b", "c"]);
        let all = all.retry(RetryPolicy::exponential(SECOND, 5 * SECOND));
        let all = all.delay(SECOND).scheduled_at(at).expires_at(expires);
        let expected = Terms {
            max_duration: Some(SECOND),
            max_total_duration: Some(2 * SECOND),
            no_progress_timeout: Some(3 * SECOND),
            max_attempts: Some(4),
            pauses: Some(RetryPolicy::exponential(SECOND, 5 * SECOND)),
            scheduled_at_ms: Some(7_000),
            expires_at_ms: Some(9_000),
            tags: ["a", "b", "c"].map(str::to_owned).to_vec(),
            problems: Vec::new(),
        };
        assert_eq!((terms(&all), all.delivery), (expected, DeliveryTime::At(7_000)));
        let listed = submission().retry(RetryPolicy::default());
        let listed = listed.retry(RetryPolicy::intervals([SECOND, Duration::ZERO]));
        let listed = listed.scheduled_at(at).delay(SECOND / 2);
        assert_eq!(listed.delivery, DeliveryTime::After(500));
        let listed = terms(&listed);
        let pauses = RetryPolicy::intervals([SECOND, Duration::ZERO]);
        assert_eq!((listed.pauses, listed.max_attempts), (Some(pauses), Some(3)));
        assert_eq!((listed.scheduled_at_ms, listed.problems), (Some(1_500), Vec::new()));
    }

    #[test]
    fn what_cannot_be_written_is_told_with_its_name() {
        let long = RetryPolicy::intervals(vec![SECOND; 101]);
        let upside_down = RetryPolicy::exponential(SECOND, SECOND / 2);
        let bad = [
            (submission().max_duration(Duration::ZERO), "MAX_TASK_DURATION"),
            (submission().max_total_duration(Duration::MAX), "MAX_TOTAL_DURATION"),
            (submission().no_progress_timeout(Duration::ZERO), "NO_PROGRESS_TIMEOUT"),
            (submission().max_attempts(0), "MAX_ATTEMPTS"),
            (submission().max_attempts(1_001), "MAX_ATTEMPTS"),
            (submission().retry(upside_down), "RETRY_BACKOFF"),
            (submission().retry(long), "RETRY_INTERVALS"),
            (submission().delay(Duration::MAX), "DELAY"),
            (
                submission().scheduled_at(UNIX_EPOCH + Duration::from_secs(1_000_000_000_000)),
                "SCHEDULED_AT",
            ),
            (
                submission().expires_at(UNIX_EPOCH + Duration::from_secs(1_000_000_000_000)),
                "EXPIRES_AT",
            ),
            (submission().tag("a,b"), "TAGS"),
            (submission().limit_key("k".repeat(257)), "LIMIT_KEY"),
            (submission().order_key(""), "ORDER_KEY"),
            (submission().order_key("k".repeat(257)), "ORDER_KEY"),
            (submission().tags(vec!["t"; 17]), "TAGS"),
        ];
        for (submission, property) in bad {
            let told = submission.refused();
            let is = matches!(told, Some(SubmitError::Property { name, .. }) if *name == property);
            assert!(is, "{property}: {told:?}");
        }
    }

    #[test]
    fn the_broker_holds_back_what_lies_ahead() {
        assert_eq!(DeliveryTime::AtOnce.at_ms(1_000), None);
        assert_eq!([1_000, 1_001].map(|at| DeliveryTime::At(at).at_ms(1_000)), [None, Some(1_001)]);
        assert_eq!([0, 5].map(|delay| DeliveryTime::After(delay).at_ms(9)), [None, Some(14)]);
    }
}
