//! Schedules: tasks by cron expressions, intervals and instants. Pure: the due slots are a function
//! of the document, the firings on the register, and the time.
//!
//! A schedule is a document on the register ([`Schedule`], JSON). It has [slots](when): instants at
//! which it fires. A firing is a task with the idempotency key `schedule/<name>/<ms of the slot>`,
//! so a slot gets one task no matter how many workers fire it and how often. A slot that is left
//! out is bound as well: to the task that was in its way. So a bound slot is settled, and with it
//! all before it ([`firing`]).

pub mod cron;
pub mod firing;
pub mod when;

use crate::task::Priority;
use crate::task::terms::{duration_of, format_duration, millis};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use when::FiringTimes;

/// The shortest catch-up window: a firing may be seconds late even without an outage.
const CATCH_UP_MIN: Duration = Duration::from_secs(10);

/// Default catch-up window: a year, as in Temporal.
const CATCH_UP: Duration = Duration::from_secs(365 * 24 * 3600);

/// The longest name: each of its tasks carries it in a key.
const NAME_BYTES_MAX: usize = 200;

/// Maximum number of requested firings by hand that are still to come.
pub const TRIGGERS_MAX: usize = 100;

/// A schedule: when tasks are submitted, and what happens when the task before is not over.
///
/// ```
/// # mod longhaul { pub use longhaul_core::schedule::*; }
/// use longhaul::{Overlap, Schedule};
/// use std::time::Duration;
///
/// // At half past two in the night, by the clocks of Berlin.
/// let nightly = Schedule::cron("30 2 * * *").time_zone("Europe/Berlin");
/// // Every quarter of an hour; a run that takes longer is cancelled by the next one.
/// let quarterly = Schedule::every(Duration::from_secs(900)).overlap(Overlap::CancelOther);
/// # assert!(nightly.check().is_ok() && quarterly.check().is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// The cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of the cron expression, by its IANA name; UTC without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The interval, as an ISO 8601 duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// How long behind the epoch the intervals begin, as an ISO 8601 duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
    /// The one instant at which it fires, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The policy while an earlier task of the schedule is not over.
    #[serde(default)]
    pub overlap: Overlap,
    /// How far back missed slots are fired, as an ISO 8601 duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_window: Option<String>,
    /// Whether firing is paused.
    #[serde(default)]
    pub paused: bool,
    /// The task to submit.
    #[serde(default)]
    pub task: TaskTemplate,
    /// When it was created, in ms since the epoch.
    #[serde(default)]
    pub created_at: u64,
    /// Slots up to this instant are ignored: it was created, resumed, or given other times then.
    #[serde(default)]
    pub since: u64,
    /// The requested firings by hand, in ms since the epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<u64>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The policy at a slot of a schedule while a task of an earlier slot is not over. Names and
/// meanings are those of Temporal's schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Overlap {
    /// No task is submitted. The next slot after the end of the task fires again.
    #[default]
    Skip,
    /// One task waits, and begins when the one before is over. Further slots meanwhile are left
    /// out.
    BufferOne,
    /// The earlier task is cancelled, and the new one begins when it is over.
    CancelOther,
    /// Tasks run beside each other.
    AllowAll,
}

/// The tasks that a schedule submits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskTemplate {
    /// The payload, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The payload as base64, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// Properties of each task's message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// The topic of the queue for the tasks: `high`, `normal` or `low`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A schedule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The cron expression is invalid.
    #[error("`{expression}` is not a cron expression: {problem}")]
    Cron {
        /// The expression.
        expression: String,
        /// The problem.
        problem: String,
    },
    /// The expression is valid but names no future instant, such as the 30th of February.
    #[error("the schedule never fires: it has no instant in the future")]
    NeverFires,
    /// There is no time zone of this name.
    #[error("`{0}` is not a time zone of the IANA database, such as `Europe/Berlin`")]
    TimeZone(String),
    /// It has no times, or two kinds of them.
    #[error("{0}")]
    When(&'static str),
    /// An interval, an instant or a window is invalid.
    #[error("{0}")]
    Value(String),
    /// The name is empty, longer than 200 bytes, or contains a slash or a control character.
    #[error(
        "`{0}` is not the name of a schedule: expected 1 to {NAME_BYTES_MAX} bytes without `/` and control characters"
    )]
    Name(String),
    /// The document is not a schedule.
    #[error("the schedule cannot be read: {0}")]
    Document(String),
}

impl Schedule {
    /// Fires by a cron expression of five fields (minute, hour, day of month, month, day of week),
    /// six (with seconds in front) or seven (with years behind), in UTC unless a [time
    /// zone](Self::time_zone) is set. The syntax of the fields: `docs/schedules.md`.
    #[must_use]
    pub fn cron(expression: impl Into<String>) -> Self {
        Self { cron: Some(expression.into()), ..Self::default() }
    }

    /// Fires at a fixed interval, at least 1 s, counted from 1970: every six hours means at 0, 6,
    /// 12 and 18 o'clock UTC.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self { every: Some(written(interval)), ..Self::default() }
    }

    /// Fires once. An instant that is past when the schedule is created never fires.
    #[must_use]
    pub fn at(instant: impl Into<SystemTime>) -> Self {
        let written = Timestamp::try_from(instant.into()).map(|instant| instant.to_string());
        Self { at: Some(written.unwrap_or_else(|error| error.to_string())), ..Self::default() }
    }

    /// Sets the time zone of a cron expression, by its name in the IANA database: `Europe/Berlin`.
    /// Default: UTC.
    #[must_use]
    pub fn time_zone(mut self, name: impl Into<String>) -> Self {
        self.time_zone = Some(name.into());
        self
    }

    /// Moves the slots of an [interval](Self::every): every day with an offset of two hours means
    /// at two o'clock UTC.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = (!offset.is_zero()).then(|| written(offset));
        self
    }

    /// Sets the policy at a slot while the earlier task is not over. Default: [`Overlap::Skip`].
    #[must_use]
    pub const fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets how far back slots are fired that were missed because no worker was there, at least 10
    /// s. Default: 365 days.
    #[must_use]
    pub fn catch_up_window(mut self, window: Duration) -> Self {
        self.catch_up_window = Some(written(window));
        self
    }

    /// Takes the times of another schedule; everything else stays.
    #[must_use]
    pub fn with_times_of(self, other: Self) -> Self {
        let Self { cron, time_zone, every, offset, at, .. } = other;
        Self { cron, time_zone, every, offset, at, ..self }
    }

    /// Whether it is paused.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Makes the schedule paused.
    #[must_use]
    pub const fn paused(mut self) -> Self {
        self.paused = true;
        self
    }

    /// Checks whether it can be used.
    ///
    /// # Errors
    /// The problem.
    pub fn check(&self) -> Result<(), ScheduleError> {
        self.window_ms()?;
        FiringTimes::of(self).map(drop)
    }

    /// The next firings behind this instant, at most `count`, whether it is paused or not. In ms
    /// since the epoch.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn next_after(&self, ms: u64, count: usize) -> Result<Vec<u64>, ScheduleError> {
        let slots = FiringTimes::of(self)?;
        let behind = |slot: &u64| slots.next_after(*slot);
        let first = slots.next_after(ms.max(self.since));
        Ok(std::iter::successors(first, behind).take(count).collect())
    }

    /// How far back slots are fired, in ms.
    ///
    /// # Errors
    /// The window is not a duration, or too short.
    pub fn window_ms(&self) -> Result<u64, ScheduleError> {
        let Some(text) = &self.catch_up_window else { return Ok(millis(CATCH_UP)) };
        let window = duration_of(text).map_err(|error| ScheduleError::Value(error.to_string()))?;
        if window < CATCH_UP_MIN {
            let problem = format!("a catch-up window of {text} is below {CATCH_UP_MIN:?}");
            return Err(ScheduleError::Value(problem));
        }
        Ok(millis(window))
    }

    /// Reads a document.
    ///
    /// # Errors
    /// It is not the document of a schedule.
    pub fn read(content: &[u8]) -> Result<Self, ScheduleError> {
        serde_json::from_slice(content).map_err(|error| ScheduleError::Document(error.to_string()))
    }

    /// The document.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn content(&self) -> Result<Bytes, ScheduleError> {
        let written = serde_json::to_vec(self);
        written.map(Bytes::from).map_err(|error| ScheduleError::Document(error.to_string()))
    }

    /// Whether both have the same times.
    pub fn has_times_of(&self, other: &Self) -> bool {
        let times = |schedule: &Self| {
            let Self { cron, time_zone, every, offset, at, .. } = schedule;
            [cron, time_zone, every, offset, at].map(Clone::clone)
        };
        times(self) == times(other)
    }
}

impl TaskTemplate {
    /// A template with this payload: as text if it is UTF-8, else as base64.
    pub fn new(payload: &[u8], properties: BTreeMap<String, String>, priority: Priority) -> Self {
        let (text, base64) = match std::str::from_utf8(payload) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(payload))),
        };
        let priority = (priority != Priority::Normal).then_some(priority);
        Self { text, base64, properties, priority, other: Map::new() }
    }

    /// The level of the queue for its tasks.
    pub fn priority(&self) -> Priority {
        self.priority.unwrap_or_default()
    }

    /// The payload of its tasks.
    ///
    /// # Errors
    /// `base64` cannot be decoded, or `text` is given as well.
    pub fn payload(&self) -> Result<Bytes, ScheduleError> {
        match (&self.text, &self.base64) {
            (Some(text), None) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            (None, Some(text)) => {
                let bytes = STANDARD.decode(text);
                let problem =
                    |error| ScheduleError::Document(format!("`base64` of the task: {error}"));
                bytes.map(Bytes::from).map_err(problem)
            }
            (None, None) => Ok(Bytes::new()),
            (Some(_), Some(_)) => {
                let problem = "the task has both `text` and `base64`: give only one of them";
                Err(ScheduleError::Document(problem.to_owned()))
            }
        }
    }
}

/// Checks the name of a schedule.
///
/// # Errors
/// The name is empty, too long, or has a `/` or a control character.
pub fn check_name(name: &str) -> Result<(), ScheduleError> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && !name.contains('/') && !name.contains(char::is_control) {
        return Ok(());
    }
    Err(ScheduleError::Name(name.chars().take(NAME_BYTES_MAX).collect()))
}

/// A duration that cannot be formatted is reported when the schedule is checked, because it cannot
/// be parsed either.
fn written(duration: Duration) -> String {
    format_duration(duration).unwrap_or_else(|error| error.to_string())
}
