//! The settings of a queue: limits over all of its workers, and defaults for tasks whose messages
//! do not set a value. Pure.
//!
//! They are a document on the queue's register, so every worker reads them live and each change has
//! a version. The value for a task comes from its own message, else from the queue, else from the
//! worker (`WorkerConfig`).

mod json;

use crate::protocol::retry::RetryPolicy;
use crate::task::terms::{ATTEMPTS_MAX, INTERVALS_MAX, format_limit};
use crate::webhook::{self, WEBHOOKS_QUEUE};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest name of a limit's key, in bytes.
pub const LIMIT_KEY_BYTES_MAX: usize = 256;

/// Maximum number of keys with a limit of their own: all workers keep them, and each change writes
/// all of them.
const KEYS_MAX: usize = 1_000;

/// Maximum number of tokens of a bucket: each ticket is kept until its token is forgotten.
const TOKENS_MAX: u32 = 100_000;

/// The longest time that a bucket takes to fill.
const PER_MAX: Duration = Duration::from_secs(24 * 3600);

/// The longest description of a queue, in characters.
const DESCRIPTION_CHARS_MAX: usize = 1_024;

/// The expiry of a task in Moab if neither the task nor its queue sets one: 14 days.
const MOAB_EXPIRY: Duration = Duration::from_secs(14 * 24 * 3600);

/// The field of [`QueueSettings::migration`].
const MIGRATION: &str = "migration";

/// The settings of a queue. Those that say nothing limit nothing.
///
/// ```
/// # mod longhaul { pub use longhaul_core::settings::*; pub mod ops { pub use longhaul_core::settings::*; } }
/// use longhaul::ops::QueueSettings;
/// use longhaul::{Limit, Rate};
/// use std::time::Duration;
///
/// let mut settings = QueueSettings::default();
/// settings.limit.max_in_flight = Some(20);
/// settings.limit.rate = Some(Rate::new(100, Duration::from_secs(60)));
/// settings.per_key.max_in_flight = Some(1);
/// settings.keys.insert("acme".to_owned(), Limit { max_in_flight: Some(5), ..Limit::default() });
/// assert!(settings.validate().is_ok());
///
/// settings.limit.max_in_flight = Some(0);
/// let refused = settings.validate().unwrap_err();
/// assert_eq!(refused.to_string(), "max_in_flight: must be at least 1; to stop a queue, pause it");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct QueueSettings {
    /// Pauses the queue: no task begins, running ones go on.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Limits for all tasks of the queue together.
    #[serde(flatten)]
    pub limit: Limit,
    /// Limits for the tasks of each key (`Submission::limit_key`) without a limit of its own.
    #[serde(skip_serializing_if = "Limit::is_none")]
    pub per_key: Limit,
    /// Limits for the tasks of these keys, instead of `per_key`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, Limit>,
    /// An attempt without a report for this time has failed.
    #[serde(with = "json::duration", skip_serializing_if = "Option::is_none")]
    pub no_progress_timeout: Option<Duration>,
    /// The pauses between the attempts of a task. A list of intervals also sets the number of
    /// attempts.
    #[serde(with = "json::retry", skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Maximum number of attempts of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// No attempt of a task begins later than this after its submission.
    #[serde(with = "json::duration", skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Duration>,
    /// Settings for the dead letters of tasks that failed for good.
    #[serde(skip_serializing_if = "DeadLetterSettings::is_none")]
    pub dead_letters: DeadLetterSettings,
    /// The order of its tasks. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<QueueOrder>,
    /// The owner's description of the queue: at most 1,024 characters. Nothing depends on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// URLs that are called at the end of each task: at most 8, absolute, with `http` or `https`. A
    /// call is a task of the queue `webhooks` in the same namespace, which gateways run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<String>,
    /// Fields of another version: kept by each update.
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// The order in which the tasks of a queue are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum QueueOrder {
    /// Tasks with the same order key run one at a time, in the order of their submission.
    Key,
}

/// Limits on concurrent tasks and on tasks per time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limit {
    /// Maximum number of concurrent tasks over all workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Maximum number of tasks that begin per time, over all workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// A token bucket: each task that begins takes a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// Number of tokens that the bucket holds: this many tasks may begin at once.
    pub tokens: u32,
    /// Time in which an empty bucket fills.
    #[serde(with = "json::plain_duration")]
    pub per: Duration,
}

/// Settings for the dead letters of tasks that failed for good. `WorkerBuilder::dead_letters`
/// supplies missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeadLetterSettings {
    /// Whether dead letters are kept. Default: yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether expired tasks get one, too. Default: no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired: Option<bool>,
    /// Maximum number of dead letters, at least one: the oldest ones are removed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u64>,
    /// How long dead letters are kept.
    #[serde(with = "json::duration", skip_serializing_if = "Option::is_none")]
    pub retention: Option<Duration>,
}

/// A setting of a queue is out of bounds, or the document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct QueueSettingsError {
    /// The setting, as [`QueueSettings`] and HTTP name it; the document on the register has camel case.
    pub field: String,
    /// The problem, with the bound.
    pub problem: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Rate {
    /// A bucket of `tokens` tokens that fills in `per`.
    #[must_use]
    pub const fn new(tokens: u32, per: Duration) -> Self {
        Self { tokens, per }
    }
}

impl Limit {
    /// Whether there is no limit.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.max_in_flight.is_none() && self.rate.is_none()
    }

    fn check(&self, of: &str) -> Result<(), QueueSettingsError> {
        let bad = |field: &str, problem: String| {
            let field = if of.is_empty() { field.to_owned() } else { format!("{of}.{field}") };
            Err(QueueSettingsError { field, problem })
        };
        if self.max_in_flight == Some(0) {
            return bad(
                "max_in_flight",
                "must be at least 1; to stop a queue, pause it".to_owned(),
            );
        }
        let Some(Rate { tokens, per }) = self.rate else { return Ok(()) };
        if !(1..=TOKENS_MAX).contains(&tokens) {
            let problem = format!("must be between 1 and {TOKENS_MAX}, is {tokens}");
            return bad("rate.tokens", problem);
        }
        if per < Duration::from_millis(1) || per > PER_MAX {
            return bad("rate.per", format!("must be between 1ms and {PER_MAX:?}, is {per:?}"));
        }
        Ok(())
    }
}

impl DeadLetterSettings {
    /// Whether all settings are missing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl QueueSettings {
    /// The defaults of the task queue Moab: tasks expire after 14 days, have one attempt, and leave
    /// no dead letter. All other settings are as in [`QueueSettings::default`].
    #[must_use]
    pub fn moab() -> Self {
        Self {
            expires_after: Some(MOAB_EXPIRY),
            max_attempts: Some(1),
            dead_letters: DeadLetterSettings {
                enabled: Some(false),
                ..DeadLetterSettings::default()
            },
            ..Self::default()
        }
    }

    /// The note of an unfinished migration of this queue: `longhaul migrate` keeps it here, and each
    /// other change leaves it as it is.
    #[doc(hidden)]
    #[must_use]
    pub fn migration(&self) -> Option<&Value> {
        self.other.get(MIGRATION)
    }

    #[doc(hidden)]
    pub fn set_migration(&mut self, note: Option<Value>) {
        match note {
            Some(note) => self.other.insert(MIGRATION.to_owned(), note),
            None => self.other.remove(MIGRATION),
        };
    }

    /// The limit for the tasks of a key.
    #[must_use]
    pub fn limit_of(&self, key: &str) -> Limit {
        self.keys.get(key).copied().unwrap_or(self.per_key)
    }

    /// Whether they set any defaults for tasks.
    pub const fn has_terms(&self) -> bool {
        self.no_progress_timeout.is_some()
            || self.retry.is_some()
            || self.max_attempts.is_some()
            || self.expires_after.is_some()
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting out of bounds, with the bound.
    pub fn validate(&self) -> Result<(), QueueSettingsError> {
        let bad = |field: &str, problem: String| {
            Err(QueueSettingsError { field: field.to_owned(), problem })
        };
        self.limit.check("")?;
        self.per_key.check("per_key")?;
        if self.keys.len() > KEYS_MAX {
            let problem =
                format!("at most {KEYS_MAX} keys have limits, there are {}", self.keys.len());
            return bad("keys", problem);
        }
        for (key, limit) in &self.keys {
            if !(1..=LIMIT_KEY_BYTES_MAX).contains(&key.len()) {
                let problem =
                    format!("a key has 1 to {LIMIT_KEY_BYTES_MAX} bytes, one has {}", key.len());
                return bad("keys", problem);
            }
            limit.check(&format!("keys.{key}"))?;
        }
        let durations = [
            ("no_progress_timeout", self.no_progress_timeout),
            ("expires_after", self.expires_after),
            ("dead_letters.retention", self.dead_letters.retention),
        ];
        for (field, duration) in durations {
            if let Some(Err(error)) = duration.map(format_limit) {
                return bad(field, error.to_string());
            }
        }
        if let Some(attempts) =
            self.max_attempts.filter(|attempts| !(1..=ATTEMPTS_MAX).contains(attempts))
        {
            return bad(
                "max_attempts",
                format!("must be between 1 and {ATTEMPTS_MAX}, is {attempts}"),
            );
        }
        if let Some(problem) = self.retry.as_ref().and_then(retry_problem) {
            return bad("retry", problem);
        }
        if self.dead_letters.max_size == Some(0) {
            let problem = "must be at least 1; `dead_letters.enabled: false` keeps none";
            return bad("dead_letters.max_size", problem.to_owned());
        }
        let chars = self.description.as_ref().map_or(0, |it| it.chars().count());
        if chars > DESCRIPTION_CHARS_MAX {
            let problem =
                format!("has at most {DESCRIPTION_CHARS_MAX} characters, one has {chars}");
            return bad("description", problem);
        }
        if let Some(problem) = webhooks_problem(&self.webhooks) {
            return bad("webhooks", problem);
        }
        let listed = self.retry.as_ref().and_then(RetryPolicy::attempts);
        if let (Some(attempts), Some(listed)) = (self.max_attempts, listed)
            && attempts != listed
        {
            let problem =
                format!("is {attempts}, and the intervals of `retry` make {listed} attempts");
            return bad("max_attempts", problem);
        }
        Ok(())
    }

    /// Checks every setting, for the queue of this name.
    ///
    /// # Errors
    /// As [`validate`](Self::validate), and for webhooks of the queue of their calls.
    pub fn validate_for(&self, queue: &str) -> Result<(), QueueSettingsError> {
        if queue == WEBHOOKS_QUEUE && !self.webhooks.is_empty() {
            let problem =
                "the queue `webhooks` has none, because each call would cause another one";
            return Err(QueueSettingsError {
                field: "webhooks".to_owned(),
                problem: problem.to_owned(),
            });
        }
        self.validate()
    }

    /// Reads a document. An empty one, or none, sets nothing.
    ///
    /// # Errors
    /// It is not a settings document, or a setting is out of bounds.
    pub fn read(document: &[u8]) -> Result<Self, QueueSettingsError> {
        if document.is_empty() {
            return Ok(Self::default());
        }
        let read = serde_json::from_slice(document).map_err(|error| QueueSettingsError {
            field: "the document".to_owned(),
            problem: error.to_string(),
        });
        let settings: Self = read?;
        settings.validate()?;
        Ok(settings)
    }

    /// Writes the document.
    ///
    /// # Errors
    /// A setting is out of bounds.
    pub fn to_document(&self) -> Result<Vec<u8>, QueueSettingsError> {
        self.validate()?;
        serde_json::to_vec(self).map_err(|error| QueueSettingsError {
            field: "the document".to_owned(),
            problem: error.to_string(),
        })
    }
}

fn retry_problem(retry: &RetryPolicy) -> Option<String> {
    let RetryPolicy { base, max, intervals } = retry;
    if intervals.len() > INTERVALS_MAX {
        return Some(format!(
            "there are {} intervals, and {INTERVALS_MAX} is the limit",
            intervals.len()
        ));
    }
    if base > max {
        return Some(format!("the base {base:?} exceeds the maximum {max:?}"));
    }
    let too_long =
        intervals.iter().chain([max]).find_map(|interval| json::written(*interval).err());
    too_long.or_else(|| base.is_zero().then(|| "the base must be above zero".to_owned()))
}

fn webhooks_problem(urls: &[String]) -> Option<String> {
    if urls.len() > webhook::URLS_MAX {
        let (most, count) = (webhook::URLS_MAX, urls.len());
        return Some(format!("a queue has at most {most} webhooks, there are {count}"));
    }
    let is_twice = |(at, url): (usize, &String)| urls.iter().take(at).any(|other| other == url);
    if let Some((_, url)) = urls.iter().enumerate().find(|it| is_twice(*it)) {
        return Some(format!("`{url}` is named twice"));
    }
    urls.iter().find_map(|url| webhook::url_problem(url))
}

#[cfg(test)]
mod tests;
