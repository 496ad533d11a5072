//! A task's entry on the metadata topic: the JSON of the Java reference, field for field, with some
//! optional fields added.
//!
//! The reference's clients read it with their JSON schema and ignore unknown fields. So states are
//! limited to its five names, `task` and `result` are base64 in fields of type bytes, and absent
//! fields are left out.

use super::payload::{FromPayload, PayloadError};
use super::{FailureCause, Properties, PropertyWriter, WorkerIdentity};
use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Display;

/// The state that the metadata topic shows. A cancelled or expired task is `Failed`, with that
/// [`TaskOutcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TaskState {
    /// The task waits until other tasks are over, those in [`TaskMetadata::waits_for`]. It is not
    /// written for other tasks: a task without an entry has not started.
    New,
    /// A worker runs the task.
    Processing,
    /// An attempt failed. With an `outcome` the task has failed for good; without one, another
    /// attempt follows.
    Failed,
    /// The task has its result.
    Completed,
    /// longhaul does not write this state.
    Unknown,
}

/// Why a task in state [`TaskState::Failed`] will not be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum TaskOutcome {
    /// It failed for good, or its attempts are used up.
    Final,
    /// It was cancelled.
    Cancelled,
    /// It was not started in time.
    Expired,
}

/// The progress of a running task, in units of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all; zero when unknown.
    pub total: u64,
    /// A message for watchers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// An entry of the metadata topic: the public data of a task.
///
/// Its debug form leaves out task and result, which may be private.
///
/// ```
/// # mod longhaul { pub use longhaul_core::task::*; }
/// use longhaul::{TaskMetadata, TaskState, Text};
///
/// let json = r#"{"messageId":"17:0:-1","state":"COMPLETED","created":1792000000000,
///     "lastUpdated":1792000001000,"attempts":1,"result":"SGVsbG8gRGF2ZQ=="}"#;
/// let task: TaskMetadata = serde_json::from_str(json)?;
/// assert!(task.is_terminal() && task.state == TaskState::Completed);
/// assert_eq!(task.result.as_deref(), Some(b"Hello Dave".as_slice()));
/// assert_eq!(task.result::<Text>()?, Some(Text("Hello Dave".to_owned())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskMetadata {
    /// The task id in its text form; also the key of the entry.
    pub message_id: String,
    /// The state of the task.
    pub state: TaskState,
    /// When it was first claimed, in ms since the epoch. The same in all entries of a task.
    pub created: u64,
    /// When this entry was written, in ms since the epoch.
    pub last_updated: u64,
    /// Number of attempts so far, including the running one.
    pub attempts: u32,
    /// The task's payload; left out if it is unknown, or larger than the worker's limit: 64 KiB by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "base64_option")]
    pub task: Option<Bytes>,
    /// The result, once completed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "base64_option")]
    pub result: Option<Bytes>,
    /// Why the last attempt failed, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why the last attempt failed, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_cause: Option<FailureCause>,
    /// Set when a failed task will not be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TaskOutcome>,
    /// When the next attempt is due, in ms since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<u64>,
    /// The last progress report of the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// A warning for watchers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// A plain explanation of the failure reason, whose text follows the Java reference where that
    /// has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The submitter's name for the task, from the property `TASK_KEY` of its message; left out if
    /// it has none, or it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_key: Option<String>,
    /// The id of the task that holds the key of this one, which was closed without being run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<String>,
    /// The id of the task that has replaced this one: see `Submission::overwrite`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    /// The worker that runs the task: its name, host and label. Entries of running tasks have it.
    /// For a lease it is the name of the holder, and the entry that shows the end of the attempt
    /// repeats it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerIdentity>,
    /// The submitter's words for searching, from the property `TAGS` of its message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it was submitted, in ms since the epoch; left out if its message is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_at: Option<u64>,
    /// The earliest start, in ms since the epoch; left out if its submitter set none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<u64>,
    /// The tasks that must be over before this one continues: their ids, and `key:` with the key
    /// for keys that no task has taken. The first 100 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// The submitter's type of the task, from the property `TASK_TYPE` of its message; left out if
    /// it has none, or it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    /// The codec of task and result, from the property `TASK_CODEC` of its message:
    /// `Client::decode` decodes them. Left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// The last log lines of the processor in the running or ended attempt: up to 32 lines of up to
    /// 256 bytes. The end of an attempt has them if the worker that ran it shows that end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
    /// How many lines the attempt has logged; left out if `log` has them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logged: Option<u64>,
}

impl TaskMetadata {
    /// An entry without the optional fields. The times are that of the task's first claim, and that
    /// of writing the entry.
    pub const fn new(
        message_id: String,
        state: TaskState,
        attempts: u32,
        (created, last_updated): (u64, u64),
    ) -> Self {
        Self {
            message_id,
            state,
            created,
            last_updated,
            attempts,
            task: None,
            result: None,
            failure_reason: None,
            failure_cause: None,
            outcome: None,
            next_attempt_at: None,
            progress: None,
            warning: None,
            detail: None,
            task_key: None,
            duplicate_of: None,
            superseded_by: None,
            worker: None,
            tags: Vec::new(),
            submitted_at: None,
            scheduled_at: None,
            waits_for: Vec::new(),
            task_type: None,
            codec: None,
            log: Vec::new(),
            logged: None,
        }
    }

    /// Whether the task has ended: completed, or failed with an outcome.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        shows_end(self.state, self.outcome)
    }

    /// The result, read as the type that the processor returned; `None` if the task is not
    /// completed.
    ///
    /// # Errors
    /// If the result is of another type, or still encoded by a [`codec`](Self::codec).
    pub fn result<T: FromPayload>(&self) -> Result<Option<T>, PayloadError> {
        if self.state != TaskState::Completed {
            return Ok(None);
        }
        if let Some(codec) = &self.codec {
            let cause = format_args!(
                "the result is encoded by the codec `{codec}`: Client::decode decodes it"
            );
            return Err(PayloadError::new(cause));
        }
        // A result without bytes may be left out.
        T::from_payload(self.result.as_ref().unwrap_or(&Bytes::new())).map(Some)
    }

    /// Why the last attempt failed, in the plainest available words.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.detail.as_deref().or(self.failure_reason.as_deref())
    }
}

fn shows_end(state: TaskState, outcome: Option<TaskOutcome>) -> bool {
    state == TaskState::Completed || outcome.is_some()
}

/// The part of an entry that a worker reads, without payload and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownMetadata {
    /// The state.
    pub state: TaskState,
    /// Number of attempts that have begun.
    #[serde(default)]
    pub attempts: u32,
    /// When the entry was written, in ms since the epoch.
    pub last_updated: u64,
    #[serde(default)]
    outcome: Option<TaskOutcome>,
}

impl ShownMetadata {
    /// Like [`TaskMetadata::is_terminal`].
    pub fn is_terminal(&self) -> bool {
        shows_end(self.state, self.outcome)
    }
}

impl std::fmt::Debug for TaskMetadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskMetadata")
            .field("message_id", &self.message_id)
            .field("state", &self.state)
            .field("created", &self.created)
            .field("submitted_at", &self.submitted_at)
            .field("last_updated", &self.last_updated)
            .field("attempts", &self.attempts)
            .field("failure_reason", &self.failure_reason)
            .field("failure_cause", &self.failure_cause)
            .field("outcome", &self.outcome)
            .field("next_attempt_at", &self.next_attempt_at)
            .field("progress", &self.progress)
            .field("warning", &self.warning)
            .field("detail", &self.detail)
            .field("task_key", &self.task_key)
            .field("duplicate_of", &self.duplicate_of)
            .field("superseded_by", &self.superseded_by)
            .field("worker", &self.worker)
            .field("waits_for", &self.waits_for)
            .field("task_type", &self.task_type)
            .field("codec", &self.codec)
            .field("log", &self.log)
            .field("logged", &self.logged)
            .finish_non_exhaustive()
    }
}

/// The properties of a metadata entry: its epoch and owner, so that a zombie's late entry can be
/// recognized.
#[must_use]
pub fn view_properties(epoch: u32, owner: impl Display) -> Properties {
    let mut properties = PropertyWriter::new();
    properties.put("epoch", epoch);
    properties.put("owner", owner);
    properties.finish()
}

/// The epoch of a metadata entry; `None` for entries of other implementations.
#[must_use]
pub fn epoch_of(properties: &Properties) -> Option<u32> {
    properties.get("epoch")?.parse().ok()
}

mod base64_option {
    use super::{Base64Display, Bytes, Deserialize, Deserializer, Engine, STANDARD, Serializer};
    use serde::de::Error;

    #[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => serializer.collect_str(&Base64Display::new(bytes, &STANDARD)),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| STANDARD.decode(text).map(Bytes::from).map_err(D::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Text;

    fn metadata() -> TaskMetadata {
        TaskMetadata {
            task: Some(Bytes::from_static(b"foo")),
            ..TaskMetadata::new("21426:0:-1".to_owned(), TaskState::Processing, 1, (1, 2))
        }
    }

    #[test]
    fn json_is_that_of_the_reference() {
        let json = |metadata: &TaskMetadata| serde_json::to_string(metadata).unwrap();
        assert_eq!(
            json(&metadata()),
            r#"{"messageId":"21426:0:-1","state":"PROCESSING","created":1,"lastUpdated":2,"attempts":1,"task":"Zm9v"}"#
        );
        let failed = TaskMetadata {
            state: TaskState::Failed,
            failure_reason: Some("Processing error: failed".to_owned()),
            outcome: Some(TaskOutcome::Final),
            ..metadata()
        };
        assert!(json(&failed).ends_with(
            r#""task":"Zm9v","failureReason":"Processing error: failed","outcome":"FINAL"}"#
        ));
    }

    /// Java readers treat an entry with an unknown state as broken, and their entries must be
    /// readable here: the five names of the reference, and no others.
    #[test]
    fn the_states_are_the_five_names_of_the_reference() {
        let name = |state| match state {
            TaskState::New => "NEW",
            TaskState::Processing => "PROCESSING",
            TaskState::Failed => "FAILED",
            TaskState::Completed => "COMPLETED",
            TaskState::Unknown => "UNKNOWN",
        };
        for state in [
            TaskState::New,
            TaskState::Processing,
            TaskState::Failed,
            TaskState::Completed,
            TaskState::Unknown,
        ] {
            let entry = TaskMetadata { state, ..metadata() };
            let json = serde_json::to_string(&entry).unwrap();
            assert!(json.contains(&format!(r#""state":"{}","#, name(state))), "{json}");
            let read: TaskMetadata = serde_json::from_str(&json).unwrap();
            assert_eq!(read, entry);
        }
        for name in ["Completed", "completed", "CANCELLED", "EXPIRED", "RETRYING", ""] {
            let json = format!(r#""{name}""#);
            assert!(serde_json::from_str::<TaskState>(&json).is_err(), "{json}");
        }
        let outcomes = [TaskOutcome::Final, TaskOutcome::Cancelled, TaskOutcome::Expired];
        let names = outcomes.map(|outcome| serde_json::to_string(&outcome).unwrap());
        assert_eq!(names, [r#""FINAL""#, r#""CANCELLED""#, r#""EXPIRED""#]);
    }

    /// Java readers know the fields of the reference by their names, and other readers know
    /// longhaul's by those of the documents.
    #[test]
    fn the_names_of_the_fields_that_the_reference_has_not() {
        let told = TaskMetadata {
            next_attempt_at: Some(3),
            progress: Some(Progress { done: 1, total: 2, message: String::new() }),
            warning: Some("w".to_owned()),
            detail: Some("d".to_owned()),
            task_key: Some("k".to_owned()),
            duplicate_of: Some("1:2:-1".to_owned()),
            superseded_by: Some("1:4:-1".to_owned()),
            worker: serde_json::from_str(r#"{"name":"n","host":"h"}"#).unwrap(),
            waits_for: vec!["1:3:-1".to_owned()],
            task_type: Some("t".to_owned()),
            codec: Some("c".to_owned()),
            log: vec!["l".to_owned()],
            logged: Some(33),
            ..metadata()
        };
        let json = serde_json::to_string(&told).unwrap();
        let names = r#""nextAttemptAt":3,"progress":{"done":1,"total":2},"warning":"w","detail":"d","taskKey":"k","duplicateOf":"1:2:-1","supersededBy":"1:4:-1","worker":{"name":"n","host":"h"},"waitsFor":["1:3:-1"],"taskType":"t","codec":"c","log":["l"],"logged":33}"#;
        assert!(json.ends_with(names), "{json}");
    }

    #[test]
    fn explicit_nulls_and_unknown_fields_are_read() {
        let json = r#"{"messageId":"1:2:-1","state":"COMPLETED","created":1,"lastUpdated":2,"attempts":1,
            "task":null,"result":"YmFy","failureReason":null,"later":{"x":1}}"#;
        let read: TaskMetadata = serde_json::from_str(json).unwrap();
        assert_eq!(read.result.as_deref(), Some(&b"bar"[..]));
        assert!(read.is_terminal());
    }

    /// Earlier, watchers had to decode the bytes of a result by hand, in the form of the
    /// processor's type.
    #[test]
    fn a_result_is_read_as_the_type_asked_for_once_there_is_one() {
        let result = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        let open = TaskMetadata { result: result("3"), ..metadata() };
        assert_eq!(open.result::<u32>(), Ok(None));
        let completed = TaskMetadata { state: TaskState::Completed, ..open };
        assert_eq!(completed.result(), Ok(Some(3_u32)));
        assert_eq!(completed.result(), Ok(Some(Text("3".to_owned()))));
        assert!(completed.result::<String>().is_err());
        let encoded = TaskMetadata { codec: Some("zip".to_owned()), ..completed.clone() };
        let error = encoded.result::<u32>().unwrap_err();
        assert!(error.to_string().contains("encoded by the codec `zip`"), "{error}");
        let without = TaskMetadata { result: None, ..completed };
        assert_eq!(without.result(), Ok(Some(Text::default())));
    }

    /// Earlier, the fixture had no result, and bytes have more than one text form.
    #[test]
    fn debug_form_leaves_payloads_out() {
        let completed = TaskMetadata {
            state: TaskState::Completed,
            task: Some(Bytes::from_static(b"secret task")),
            result: Some(Bytes::from_static(b"secret result")),
            failure_reason: Some("why".to_owned()),
            ..metadata()
        };
        for text in [format!("{completed:?}"), format!("{completed:#?}")] {
            assert!(text.contains("Completed") && text.contains("why"), "{text}");
            for bytes in [&completed.task, &completed.result].into_iter().flatten() {
                let numbers = format!("{:?}", &bytes[..]);
                let plain = String::from_utf8_lossy(bytes);
                for form in [&*plain, &STANDARD.encode(bytes), &*numbers, "secret", "115, 101, 99"]
                {
                    assert!(!text.contains(form), "{form} in {text}");
                }
            }
        }
    }
}
