//! Schedules: tasks by cron expressions, intervals and instants. Pure: what is due is a function of
//! the document, of what the register says of its firings, and of the time.
//!
//! A schedule is a document on the register ([`Schedule`], JSON). It has [slots](when): instants at
//! which it fires. A firing is a task with the idempotency key `schedule/<name>/<ms of the slot>`,
//! so whoever fires a slot, and how often, one task comes of it. A slot that is left out is bound
//! as well: to the task that was in its way. So a bound slot is settled, and with it all before it
//! ([`firing`]).

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

/// The shortest catch-up window: a firing may come seconds late although nothing was down.
const CATCH_UP_MIN: Duration = Duration::from_secs(10);

/// How far back missed slots are fired, unless the schedule says otherwise: a year, as in Temporal.
const CATCH_UP: Duration = Duration::from_secs(365 * 24 * 3600);

/// The longest name: each of its tasks carries it in a key.
const NAME_BYTES_MAX: usize = 200;

/// Firings that were asked for by hand and have not come yet.
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
    /// What happens while an earlier task of the schedule is not over.
    #[serde(default)]
    pub overlap: Overlap,
    /// How far back slots are fired that nobody fired in time, as an ISO 8601 duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_window: Option<String>,
    /// Whether no slot is fired.
    #[serde(default)]
    pub paused: bool,
    /// What is submitted.
    #[serde(default)]
    pub task: TaskTemplate,
    /// When it was made, in ms since the epoch.
    #[serde(default)]
    pub created_at: u64,
    /// Slots up to this instant are none: it was made, resumed, or given other times then.
    #[serde(default)]
    pub since: u64,
    /// When it was asked to fire by hand, in ms since the epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<u64>,
    /// What a later version has written.
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What happens at a slot of a schedule while a task of an earlier slot is not over. The words, and
/// what they mean, are those of Temporal's schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Overlap {
    /// Nothing is submitted. The next slot after the end of the task counts again.
    #[default]
    Skip,
    /// One task waits, and begins when the one before is over. Further slots meanwhile are left
    /// out.
    BufferOne,
    /// The task before is cancelled, and the new one begins when it is over.
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
    /// The payload, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// Of each task's message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Which topic of the queue they go to: `high`, `normal` or `low`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<ScheduleLevel>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ScheduleLevel {
    High,
    Normal,
    Low,
}

/// A schedule cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The cron expression is none.
    #[error("`{expression}` is not a cron expression: {problem}")]
    Cron {
        /// The expression.
        expression: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The expression can be read, and names no instant that will ever come, such as the 30th of
    /// February.
    #[error("the schedule never fires: no instant is named that lies ahead")]
    NeverFires,
    /// There is no time zone of this name.
    #[error("`{0}` is not a time zone of the IANA database, such as `Europe/Berlin`")]
    TimeZone(String),
    /// It does not say when it fires, or does so twice.
    #[error("{0}")]
    When(&'static str),
    /// An interval, an instant or a window cannot be used.
    #[error("{0}")]
    Value(String),
    /// The name is empty, longer than 200 bytes, or holds a slash or a control character.
    #[error(
        "the name of a schedule has 1 to {NAME_BYTES_MAX} bytes, and no `/` and no control characters; `{0}` is none"
    )]
    Name(String),
    /// The document is not that of a schedule.
    #[error("the schedule cannot be read: {0}")]
    Document(String),
}

impl Schedule {
    /// By a cron expression of five fields (minute, hour, day of month, month, day of week), six
    /// (with seconds in front) or seven (with years behind), in UTC unless a
    /// [time zone](Self::time_zone) is named. What a field may hold: `docs/schedules.md`.
    #[must_use]
    pub fn cron(expression: impl Into<String>) -> Self {
        Self { cron: Some(expression.into()), ..Self::default() }
    }

    /// At a fixed distance, a second at least, counted from 1970: every six hours means at 0, 6, 12
    /// and 18 o'clock UTC.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self { every: Some(written(interval)), ..Self::default() }
    }

    /// Once. An instant that is past when the schedule is made never comes.
    #[must_use]
    pub fn at(instant: SystemTime) -> Self {
        let written = Timestamp::try_from(instant).map(|instant| instant.to_string());
        Self { at: Some(written.unwrap_or_else(|error| error.to_string())), ..Self::default() }
    }

    /// The time zone of a cron expression, by its name in the IANA database: `Europe/Berlin`.
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

    /// What happens at a slot while the task before is not over. Default: [`Overlap::Skip`].
    #[must_use]
    pub const fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// How far back slots are fired that were missed because no worker was there: ten seconds at
    /// least. Default: 365 days.
    #[must_use]
    pub fn catch_up_window(mut self, window: Duration) -> Self {
        self.catch_up_window = Some(written(window));
        self
    }

    /// Fires when this other schedule does; everything else stays.
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

    /// A schedule that is made paused.
    #[must_use]
    pub const fn paused(mut self) -> Self {
        self.paused = true;
        self
    }

    /// Whether it can be used.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), ScheduleError> {
        self.window_ms()?;
        FiringTimes::of(self).map(drop)
    }

    /// The next firings behind this instant, up to so many, whether it is paused or not. In ms
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

    /// How far back slots are fired.
    ///
    /// # Errors
    /// The window is no duration, or too short.
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
    /// It is no document of a schedule.
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

    /// Whether it says the same about when it fires.
    pub fn has_times_of(&self, other: &Self) -> bool {
        let times = |schedule: &Self| {
            let Self { cron, time_zone, every, offset, at, .. } = schedule;
            [cron, time_zone, every, offset, at].map(Clone::clone)
        };
        times(self) == times(other)
    }
}

impl TaskTemplate {
    /// One with this payload: as text where it is UTF-8, else as base64.
    pub fn new(payload: &[u8], properties: BTreeMap<String, String>, priority: Priority) -> Self {
        let (text, base64) = match std::str::from_utf8(payload) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(payload))),
        };
        let priority = match priority {
            Priority::High => Some(ScheduleLevel::High),
            Priority::Normal => None,
            Priority::Low => Some(ScheduleLevel::Low),
        };
        Self { text, base64, properties, priority, other: Map::new() }
    }

    /// The level of the queue that its tasks go to.
    pub const fn priority(&self) -> Priority {
        match self.priority {
            Some(ScheduleLevel::High) => Priority::High,
            Some(ScheduleLevel::Low) => Priority::Low,
            Some(ScheduleLevel::Normal) | None => Priority::Normal,
        }
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
                let problem = "the task has `text` and `base64`, and only one of them counts";
                Err(ScheduleError::Document(problem.to_owned()))
            }
        }
    }
}

/// Whether a schedule can have this name.
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

/// What cannot be written is told when the schedule is checked: it cannot be read, either.
fn written(duration: Duration) -> String {
    format_duration(duration).unwrap_or_else(|error| error.to_string())
}
