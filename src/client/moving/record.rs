//! The records of an export, one line of JSON each. Times are in ms since the epoch, bytes are
//! base64. Pure.
//!
//! The first record is a [`QueueRecord`], the last one an [`EndRecord`], so that a truncated file
//! is detected.

use bytes::Bytes;
use longhaul_core::protocol::entry::NextAttempt;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::limits::Limits;
use longhaul_core::protocol::register::MovedMark;
use longhaul_core::task::{Priority, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The version of the format. A reader refuses a higher one.
pub(super) const FORM: u32 = 1;

/// A line of an export: a queue, a task, a dead letter, a schedule, or the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExportRecord(pub(super) ExportLine);

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "camelCase")]
pub(super) enum ExportLine {
    Queue(QueueRecord),
    Task(Box<TaskRecord>),
    Letter(LetterRecord),
    Schedule(ScheduleRecord),
    End(EndRecord),
}

/// The queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueRecord {
    pub(super) form: u32,
    /// Identifies the queue and its cluster, whatever its name there. Task ids are relative to it.
    pub(super) source: String,
    /// The full name of the task topic.
    pub(super) topic: String,
    /// The settings document; empty if the queue has none.
    #[serde(default, skip_serializing_if = "Bytes::is_empty", with = "base64")]
    pub(super) settings: Bytes,
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRecord {
    /// The task's id at the source.
    pub(super) id: String,
    /// The priority level that it was submitted to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) level: Priority,
    pub(super) state: MovedState,
    /// When its message was published; 0 if the message is gone.
    #[serde(default)]
    pub(super) published: u64,
    /// When it was first claimed; 0 if never.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) claimed: u64,
    /// Its last finished epoch: that of its last claim, or, if it was running, the one before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) epoch: u32,
    /// The attempts used up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) attempts: u32,
    /// When the next attempt is due; 0 means now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) due: u64,
    /// The last attempt was released after its start; the next one continues it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) goes_on: bool,
    /// For a task parked by an attempt: the content of the entry that parked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) waits: Option<String>,
    /// The last attempt's checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "base64_option")]
    pub(super) checkpoint: Option<Bytes>,
    /// The limits from its message, as on its claims.
    #[serde(default, skip_serializing_if = "is_default", with = "LimitsRecord")]
    pub(super) limits: Limits,
    /// The message's properties.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) properties: BTreeMap<String, String>,
    /// The message's payload; left out for a finished task.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "base64_option")]
    pub(super) payload: Option<Bytes>,
    /// The idempotency key that it holds, with its digest of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<KeyRecord>,
    /// Its entry on the metadata topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<Value>,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum MovedState {
    /// Unfinished.
    #[default]
    Open,
    Completed,
    Failed,
    Cancelled,
    Expired,
}

impl MovedState {
    /// How a task in this phase ended; `None` if it has not ended, or that is unknown.
    pub(super) const fn of(phase: Phase) -> Option<Self> {
        match phase {
            Phase::Completed => Some(Self::Completed),
            Phase::Final => Some(Self::Failed),
            Phase::Cancelled => Some(Self::Cancelled),
            Phase::Expired => Some(Self::Expired),
            Phase::New | Phase::Running | Phase::Retry | Phase::Sealed => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeyRecord {
    pub(super) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<String>,
}

/// The form of the limits on the whole task, from its message.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Limits")]
struct LimitsRecord {
    #[serde(default, rename = "maxAttempts", skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(default, rename = "total", skip_serializing_if = "Option::is_none")]
    total_ms: Option<u64>,
    #[serde(default, rename = "expires", skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
}

/// An unhandled dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LetterRecord {
    /// The task's id at the source.
    pub(super) task: String,
    pub(super) properties: BTreeMap<String, String>,
    #[serde(with = "base64")]
    pub(super) payload: Bytes,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScheduleRecord {
    pub(super) name: String,
    /// The schedule's document.
    #[serde(with = "base64")]
    pub(super) document: Bytes,
}

/// The numbers of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndRecord {
    pub(super) tasks: u64,
    pub(super) letters: u64,
    pub(super) schedules: u64,
}

impl fmt::Display for EndRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tasks, letters, schedules } = self;
        write!(f, "{tasks} tasks, {letters} dead letters, {schedules} schedules")
    }
}

impl TaskRecord {
    /// A record with only these fields set.
    pub(super) fn new(id: TaskId, level: Priority, state: MovedState) -> Self {
        Self { id: id.to_string(), level, state, ..Self::default() }
    }

    /// Whether the task may have changed since the copy of this mark was written.
    pub(super) fn is_ahead_of(&self, mark: MovedMark) -> bool {
        let is_later = self.state != MovedState::Open || self.epoch > mark.epoch.0;
        mark.is_open() && !mark.is_merged() && is_later
    }

    /// The next attempt, relative to `now_ms`.
    pub(super) const fn next_attempt(&self, now_ms: u64) -> NextAttempt {
        if self.waits.is_some() {
            NextAttempt::PARKED
        } else if self.goes_on {
            NextAttempt::AFTER_DRAIN
        } else {
            NextAttempt::new(self.due, self.due.saturating_sub(now_ms))
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

mod base64 {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(Bytes::from).map_err(D::Error::custom)
    }
}

mod base64_option {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Some64(#[serde(with = "super::base64")] Bytes);

    #[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Some64).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Some64>::deserialize(from)?.map(|it| it.0))
    }
}
