//! A dead letter, read from its message. Pure.

use crate::client::TaskRef;
use crate::transport::Message;
use bytes::Bytes;
use longhaul_core::protocol::register::QueueTask;
use longhaul_core::task::text::{REPLAY_OF, TAGS, TASK_CODEC, TASK_KEY, TASK_TYPE};
use longhaul_core::task::{FailureCause, Position, Priority, TaskId};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// The properties that the publishing worker adds to those of the task.
pub(super) const ADDED: [&str; 7] = [
    "REAL_TOPIC",
    "ORIGIN_MESSAGE_ID",
    "attempts",
    "epoch",
    "failureReason",
    "failureCause",
    "detail",
];

/// A task that failed for good, as stored in its dead letter. Its debug form leaves out payload and
/// properties, which may be private.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The task, and the topic that it was submitted to.
    pub task: TaskRef,
    /// The position of the letter.
    pub position: Position,
    /// The publish time, in ms since the epoch by the worker's wall clock.
    pub published_ms: u64,
    /// The number of attempts.
    pub attempts: u32,
    /// Why the task failed, or did not start in time.
    pub reason: String,
    /// The same for programs.
    pub cause: FailureCause,
    /// The reason in plainer words, if the reason itself says little.
    pub detail: Option<String>,
    /// The task that this one was a replay of.
    pub replay_of: Option<TaskId>,
    /// The task's type.
    pub task_type: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The submitter's key for the task.
    pub key: Option<String>,
    /// The codec of its payload.
    pub codec: Option<String>,
    /// All properties of the message: those of the task, and those added by its worker.
    pub properties: BTreeMap<String, String>,
    /// The size of the payload.
    pub payload_bytes: usize,
    /// The task's payload as stored; left out of lists.
    pub payload: Option<Bytes>,
}

impl fmt::Debug for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("task", &self.task)
            .field("position", &self.position)
            .field("published_ms", &self.published_ms)
            .field("attempts", &self.attempts)
            .field("reason", &self.reason)
            .field("cause", &self.cause)
            .field("detail", &self.detail)
            .field("replay_of", &self.replay_of)
            .field("task_type", &self.task_type)
            .field("tags", &self.tags)
            .field("key", &self.key)
            .field("codec", &self.codec)
            .field("payload_bytes", &self.payload_bytes)
            .finish_non_exhaustive()
    }
}

impl DeadLetter {
    /// Reads a letter, without its payload. `queue` is the task topic if the letter does not name
    /// it.
    pub(super) fn read(message: &Message, id: TaskId, queue: &str) -> Self {
        let get = |name: &str| message.properties.get(name).map(str::to_owned);
        let topic = get("REAL_TOPIC").unwrap_or_else(|| queue.to_owned());
        let tags = get(TAGS).unwrap_or_default();
        let tags = tags.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        Self {
            task: TaskRef { topic, id },
            position: message.position,
            published_ms: message.publish_time_ms,
            attempts: get("attempts").and_then(|text| text.parse().ok()).unwrap_or_default(),
            reason: get("failureReason").unwrap_or_default(),
            cause: get("failureCause").map(FailureCause::from).unwrap_or_default(),
            detail: get("detail"),
            replay_of: get(REPLAY_OF).and_then(|text| text.parse().ok()),
            task_type: get(TASK_TYPE),
            tags: tags.map(str::to_owned).collect(),
            key: get(TASK_KEY),
            codec: get(TASK_CODEC),
            properties: message.properties.to_map(),
            payload_bytes: message.payload.len(),
            payload: None,
        }
    }

    /// The level of the task in the queue with this task topic, and its id.
    pub(super) fn queue_task(&self, queue: &str) -> QueueTask {
        QueueTask { level: level_in(&self.task.topic, queue), id: self.task.id }
    }
}

/// The level that a task topic is in the queue with the task topic `queue`.
pub(in crate::client) fn level_in(topic: &str, queue: &str) -> Priority {
    let suffix = topic.strip_prefix(queue);
    let is_level = |level: &Priority| suffix == Some(level.suffix());
    Priority::ALL.into_iter().find(is_level).unwrap_or_default()
}

/// A filter for dead letters; by default it matches all.
///
/// ```
/// use longhaul::ops::DeadLetterFilter;
///
/// let refused = DeadLetterFilter::new().reason("status 503").task_type("mail").tag("eu");
/// # drop(refused);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a filter does nothing by itself"]
pub struct DeadLetterFilter {
    published: Option<RangeInclusive<u64>>,
    reason: Option<String>,
    tags: Vec<String>,
    task_type: Option<String>,
    key: Option<String>,
}

impl DeadLetterFilter {
    /// Matches all dead letters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Matches letters published in this range, in ms since the epoch.
    pub const fn published(mut self, between_ms: RangeInclusive<u64>) -> Self {
        self.published = Some(between_ms);
        self
    }

    /// Matches letters whose reason or detail contains this text.
    pub fn reason(mut self, text: impl Into<String>) -> Self {
        self.reason = Some(text.into());
        self
    }

    /// Matches tasks with this tag. Several tags must all be present.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Matches tasks of this type.
    pub fn task_type(mut self, task_type: impl Into<String>) -> Self {
        self.task_type = Some(task_type.into());
        self
    }

    /// Matches tasks with this key of their submitters.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Whether the filter matches a letter.
    #[must_use]
    pub fn takes(&self, letter: &DeadLetter) -> bool {
        let is = |wanted: &Option<String>, has: &Option<String>| wanted.is_none() || wanted == has;
        let says = |text: &String| {
            letter.reason.contains(text)
                || letter.detail.as_ref().is_some_and(|detail| detail.contains(text))
        };
        self.published.as_ref().is_none_or(|range| range.contains(&letter.published_ms))
            && self.reason.as_ref().is_none_or(says)
            && self.tags.iter().all(|tag| letter.tags.contains(tag))
            && is(&self.task_type, &letter.task_type)
            && is(&self.key, &letter.key)
    }
}
