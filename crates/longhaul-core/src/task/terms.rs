//! The terms of a task in its message: the properties that longhaul reads. Read once for each
//! delivery. Pure.
//!
//! All other properties are headers of the user. An unusable value is left out, with a
//! [`PropertyProblem`] that the metadata topic shows, and the default applies.

mod values;

pub use values::{
    ATTEMPTS_MAX, INTERVALS_MAX, ValueError, check_tags, duration_or_zero as read_duration,
    format_duration, format_limit, millis,
};
pub use values::{duration as duration_of, instant_ms as instant_of};

use super::text;
use crate::protocol::retry::RetryPolicy;
use crate::settings::QueueSettings;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// The terms of a task; the worker's settings apply to missing ones. See the module's
/// documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Budget of each attempt.
    pub max_duration: Option<Duration>,
    /// Budget of the whole task, from its first claim on.
    pub max_total_duration: Option<Duration>,
    /// An attempt without a report for this time has failed.
    pub no_progress_timeout: Option<Duration>,
    /// Maximum number of attempts.
    pub max_attempts: Option<u32>,
    /// The pauses between attempts.
    pub pauses: Option<RetryPolicy>,
    /// Earliest start, in ms since the epoch.
    pub scheduled_at_ms: Option<u64>,
    /// No attempt begins after this instant, in ms since the epoch.
    pub expires_at_ms: Option<u64>,
    /// Words for searching.
    pub tags: Vec<String>,
    /// Unusable properties.
    pub problems: Vec<PropertyProblem>,
}

/// An unusable property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyProblem {
    /// Its name.
    pub property: &'static str,
    /// The problem.
    pub cause: Cow<'static, str>,
}

/// The properties that are read here.
const READ: [&str; 10] = [
    text::MAX_TASK_DURATION,
    text::MAX_TOTAL_DURATION,
    text::NO_PROGRESS_TIMEOUT,
    text::MAX_ATTEMPTS,
    text::RETRY_BACKOFF,
    text::RETRY_INTERVALS,
    text::SCHEDULED_AT,
    text::DELAY,
    text::EXPIRES_AT,
    text::TAGS,
];

impl Terms {
    /// Reads the properties of a message published at this time. `None` if it has none of the
    /// properties read here: most tasks have none, at no cost.
    pub fn read(properties: &BTreeMap<String, String>, publish_time_ms: u64) -> Option<Self> {
        if !properties.keys().any(|name| READ.contains(&name.as_str())) {
            return None;
        }
        let mut from = TermsReader { properties, problems: Vec::new() };
        let intervals = from.read(text::RETRY_INTERVALS, values::intervals);
        let max_attempts = from.max_attempts(intervals.as_deref());
        let pauses = from.pauses(intervals);
        let scheduled_at_ms = from.scheduled_at_ms(publish_time_ms);
        Some(Self {
            max_duration: from.read(text::MAX_TASK_DURATION, values::duration),
            max_total_duration: from.read(text::MAX_TOTAL_DURATION, values::duration),
            no_progress_timeout: from.read(text::NO_PROGRESS_TIMEOUT, values::duration),
            max_attempts,
            pauses,
            scheduled_at_ms,
            expires_at_ms: from.read(text::EXPIRES_AT, values::instant_ms),
            tags: from.read(text::TAGS, values::tags).unwrap_or_default(),
            problems: from.problems,
        })
    }

    /// The earliest time at which the task needs attention, in ms since the epoch: its start, or an
    /// earlier expiry. `None`: at once.
    pub fn waits_until_ms(&self) -> Option<u64> {
        let at_ms = self.scheduled_at_ms?;
        Some(self.expires_at_ms.map_or(at_ms, |expires| at_ms.min(expires)))
    }

    /// Adds the queue's defaults to a task whose message was published at this time, in ms since
    /// the epoch. A task with a list of pauses has as many attempts as the list makes.
    #[must_use]
    pub fn completed_by(mut self, queue: &QueueSettings, published_ms: u64) -> Self {
        let listed = queue.retry.as_ref().filter(|_| self.pauses.is_none());
        let attempts = listed.and_then(RetryPolicy::attempts).or(queue.max_attempts);
        self.max_attempts = self.max_attempts.or(attempts);
        self.pauses = self.pauses.or_else(|| queue.retry.clone());
        self.no_progress_timeout = self.no_progress_timeout.or(queue.no_progress_timeout);
        let expires_ms =
            queue.expires_after.map(|after| published_ms.saturating_add(millis(after)));
        self.expires_at_ms = self.expires_at_ms.or(expires_ms);
        self
    }
}

/// Reads the properties of one message.
struct TermsReader<'a> {
    properties: &'a BTreeMap<String, String>,
    problems: Vec<PropertyProblem>,
}

impl TermsReader<'_> {
    fn read<T>(
        &mut self,
        property: &'static str,
        parse: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        let read = parse(self.properties.get(property)?);
        read.map_err(|error| self.note(property, error.to_string())).ok()
    }

    fn note(&mut self, property: &'static str, cause: impl Into<Cow<'static, str>>) {
        self.problems.push(PropertyProblem { property, cause: cause.into() });
    }

    /// A list of pauses sets the number of attempts.
    fn max_attempts(&mut self, intervals: Option<&[Duration]>) -> Option<u32> {
        let own = self.read(text::MAX_ATTEMPTS, values::attempts);
        let Some(intervals) = intervals else { return own };
        let listed = u32::try_from(intervals.len()).unwrap_or(u32::MAX).saturating_add(1);
        if own.is_some_and(|own| own != listed) {
            let cause = format!("{} makes {listed} attempts", text::RETRY_INTERVALS);
            self.note(text::MAX_ATTEMPTS, cause);
        }
        Some(listed)
    }

    fn pauses(&mut self, intervals: Option<Vec<Duration>>) -> Option<RetryPolicy> {
        let backoff = self.read(text::RETRY_BACKOFF, values::backoff);
        match (intervals, backoff) {
            (Some(intervals), None) => Some(RetryPolicy::intervals(intervals)),
            (Some(intervals), Some(_)) => {
                let cause = format!("{} is also set", text::RETRY_INTERVALS);
                self.note(text::RETRY_BACKOFF, cause);
                Some(RetryPolicy::intervals(intervals))
            }
            (None, backoff) => backoff.map(|(base, max)| RetryPolicy::exponential(base, max)),
        }
    }

    fn scheduled_at_ms(&mut self, publish_time_ms: u64) -> Option<u64> {
        let at = self.read(text::SCHEDULED_AT, values::instant_ms);
        let delay = self.read(text::DELAY, values::delay_ms);
        if at.is_some() && delay.is_some() {
            self.note(text::DELAY, format!("{} is also set", text::SCHEDULED_AT));
        }
        at.or_else(|| delay.map(|delay| publish_time_ms.saturating_add(delay)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(properties: &[(&str, &str)]) -> Option<Terms> {
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Terms::read(&properties.iter().map(text).collect(), 5_000)
    }

    #[test]
    fn a_task_without_terms_has_none() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("customer", "4711"), ("TASK_KEY", "k"), ("max_attempts", "3")]), None);
    }

    #[test]
    fn each_property_is_read() {
        let second = Duration::from_secs(1);
        let all = [
            ("MAX_TASK_DURATION", "PT1S"),
            ("MAX_TOTAL_DURATION", "PT2S"),
            ("NO_PROGRESS_TIMEOUT", "PT3S"),
            ("MAX_ATTEMPTS", "7"),
            ("RETRY_BACKOFF", "PT1S/PT4S"),
            ("SCHEDULED_AT", "6000"),
            ("EXPIRES_AT", "7000"),
            ("TAGS", "a,b"),
        ];
        let expected = Terms {
            max_duration: Some(second),
            max_total_duration: Some(2 * second),
            no_progress_timeout: Some(3 * second),
            max_attempts: Some(7),
            pauses: Some(RetryPolicy::exponential(second, 4 * second)),
            scheduled_at_ms: Some(6_000),
            expires_at_ms: Some(7_000),
            tags: vec!["a".to_owned(), "b".to_owned()],
            problems: Vec::new(),
        };
        assert_eq!(read(&all), Some(expected));
        let pauses = RetryPolicy::intervals([second, 2 * second]);
        let listed = read(&[("RETRY_INTERVALS", "PT1S,PT2S")]).unwrap();
        assert_eq!((listed.max_attempts, listed.pauses), (Some(3), Some(pauses)));
        let delayed = read(&[("DELAY", "PT1.5S")]).unwrap();
        assert_eq!(delayed.scheduled_at_ms, Some(6_500));
    }

    #[test]
    fn what_cannot_be_used_is_told_and_changes_nothing() {
        for property in READ {
            let terms = read(&[(property, "1h")]).unwrap();
            // "1h" is a valid tag.
            let bad = if property == "TAGS" { read(&[(property, "")]).unwrap() } else { terms };
            let problems: Vec<_> = bad.problems.iter().map(|problem| problem.property).collect();
            assert_eq!(problems, [property]);
            assert_eq!(Terms { problems: Vec::new(), ..bad }, Terms::default());
        }
    }

    #[test]
    fn of_two_that_contradict_each_other_one_is_used() {
        let terms = read(&[
            ("RETRY_INTERVALS", "PT1S"),
            ("RETRY_BACKOFF", "PT1S/PT2S"),
            ("MAX_ATTEMPTS", "5"),
            ("SCHEDULED_AT", "9000"),
            ("DELAY", "PT1S"),
        ]);
        let terms = terms.unwrap();
        let problems: Vec<_> = terms.problems.iter().map(|problem| problem.property).collect();
        assert_eq!(problems, ["MAX_ATTEMPTS", "RETRY_BACKOFF", "DELAY"]);
        assert_eq!((terms.max_attempts, terms.scheduled_at_ms), (Some(2), Some(9_000)));
        let agreed = read(&[("RETRY_INTERVALS", "PT1S"), ("MAX_ATTEMPTS", "2")]).unwrap();
        assert_eq!((agreed.max_attempts, agreed.problems), (Some(2), Vec::new()));
    }
}
