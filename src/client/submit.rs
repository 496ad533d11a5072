//! Submits tasks: unbatched messages on the task topic, distributed over its partitions in turn.
//!
//! A publish is never repeated, neither here nor in the transport: if the topic moves before the
//! receipt arrives, the fate of the task is unknown. Only the caller that gets
//! [`SubmitError::Unknown`] can tell whether a second run does harm. With an idempotency key it
//! does none.

use super::keyed::key_of;
use super::publishers::PublishFailure;
use super::task_ref::TaskRef;
use super::terms::DeliveryTime;
use super::{Client, partition};
use crate::clock::Clock;
use crate::telemetry::{self, spans};
use crate::topics::{Priority, TopicNameError};
use crate::transport::{Outgoing, PublishError, TransportError, TransportErrorKind::Unreachable};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use longhaul_core::protocol::register::{Digest, KeyName};
use longhaul_core::task::text::{
    DEDUPE_KEY, ORDER_KEY, OVERWRITE, TAGS, TASK_CODEC, TASK_KEY, TASK_KEY_BYTES_MAX, TASK_TYPE,
    TASK_TYPE_BYTES_MAX,
};
use longhaul_core::task::{PayloadError, Raw, TaskId, ToPayload, encode};
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use std::collections::BTreeMap;
use std::fmt;

/// The most receipts that one [`Client::submit_all`] awaits at once.
const IN_FLIGHT_MAX: usize = 256;

/// Why a task was not submitted, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The topic's name is invalid.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The task cannot be serialized.
    #[error("the task cannot be encoded: {0}")]
    Encode(PayloadError),
    /// An option of the submission cannot be written as a property of its message.
    #[error("{name}: {problem}")]
    Property {
        /// The property.
        name: &'static str,
        /// What is wrong with the value.
        problem: String,
    },
    /// The key is empty, or has more than 256 bytes.
    #[error("the key of a task has 1 to {TASK_KEY_BYTES_MAX} bytes, this one has {0}")]
    Key(usize),
    /// The type is empty, or has more than 128 bytes.
    #[error("the type of a task has 1 to {TASK_TYPE_BYTES_MAX} bytes, this one has {0}")]
    Type(usize),
    /// The idempotency key or dedupe key is empty, or has more than 256 bytes.
    #[error("an idempotency key or dedupe key has 1 to 256 bytes, this one has {0}")]
    KeyLength(usize),
    /// An idempotency key and a dedupe key were given.
    #[error("a task has an idempotency key or a dedupe key, not both")]
    TwoKeys,
    /// [`Submission::overwrite`] was asked for without a dedupe key.
    #[error("a task that overwrites another one needs a dedupe key")]
    OverwriteWithoutKey,
    /// Another task holds the key with another payload, and [`Submission::strict`] is set.
    #[error("another task holds the key, with another payload: {0}")]
    Conflict(TaskRef),
    /// The broker cannot be reached, or denies access: the task does not exist.
    #[error("the task was not submitted")]
    Transport(#[source] TransportError),
    /// The message is larger than the broker accepts: the task does not exist.
    #[error(
        "the task was not submitted: its message has {bytes} bytes, the broker's limit is {bytes_max}; \
         put the payload into a store and submit a reference to it"
    )]
    TooLarge {
        /// The size of the task's message: payload, properties and protocol overhead.
        bytes: usize,
        /// The broker's limit: 5 MiB by default.
        bytes_max: usize,
    },
    /// The broker rejected the message: the task does not exist.
    #[error("the task was not submitted: {0}")]
    Refused(String),
    /// The message was sent and no receipt came.
    #[error(
        "the task may or may not exist, and submitting it again may run it twice: no receipt: {0}"
    )]
    Unknown(String),
    /// The message of a task with a key was sent, and it is unknown whether it is stored or holds
    /// its key. Repeating the submit is safe: it returns the one task of the key.
    #[error("the task may or may not exist; submitting it again with the same key is safe: {0}")]
    Unbound(String),
}

classified!(SubmitError);

impl SubmitError {
    pub(super) const fn class(&self) -> Class {
        match self {
            Self::Topic(error) => error.class(),
            Self::Conflict(_) => (ErrorKind::Conflict, "key_conflict"),
            Self::Transport(error) => error.kind.class(),
            Self::TooLarge { .. } => (ErrorKind::TooLarge, "task_too_large"),
            Self::Refused(_) => (ErrorKind::Refused, "broker_refused"),
            Self::Unknown(_) | Self::Unbound(_) => (ErrorKind::Unknown, "outcome_unknown"),
            Self::Encode(_)
            | Self::Property { .. }
            | Self::Key(_)
            | Self::Type(_)
            | Self::KeyLength(_)
            | Self::TwoKeys
            | Self::OverwriteWithoutKey => (ErrorKind::Invalid, "request_unfit"),
        }
    }
}

/// A task about to be submitted; see [`Client::submission`].
///
/// ```no_run
/// use longhaul::{Client, Text};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("pulsar://localhost:6650").await?;
/// let submission = client.submission("tasks", &Text("transcode 4711".to_owned()));
/// let submission = submission.property("customer", "4711").key("order-4711");
/// let task = submission.max_duration(Duration::from_secs(3600)).send().await?;
/// println!("{task}");
/// # Ok(())
/// # }
/// ```
#[must_use = "a submission does nothing until it is sent"]
pub struct Submission {
    pub(super) client: Client,
    pub(super) topic: String,
    payload: Result<Bytes, PayloadError>,
    priority: Priority,
    pub(super) properties: BTreeMap<String, String>,
    pub(super) tags: Vec<String>,
    pub(super) delivery: DeliveryTime,
    codec: Option<String>,
    /// The first error found while the submission was built.
    refused: Option<SubmitError>,
    pub(super) strict: bool,
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission")
            .field("topic", &self.topic)
            .field("properties", &self.properties)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Submits a task and resolves when the broker has stored it. If you drop the future early, the
    /// task may or may not exist.
    ///
    /// The task is sent once. If the topic moves to another broker before the receipt arrives, the
    /// result is [`SubmitError::Unknown`].
    ///
    /// # Errors
    /// See [`SubmitError`]. After [`SubmitError::Unknown`] the task may exist; after any other
    /// error it does not.
    pub fn submit<T: ToPayload + ?Sized>(
        &self,
        topic: &str,
        task: &T,
    ) -> impl Future<Output = Result<TaskRef, SubmitError>> + Send + use<T> {
        self.submission(topic, task).send()
    }

    /// Builds a task with options, such as properties or a longest duration. [`Submission::send`]
    /// sends it.
    pub fn submission<T: ToPayload + ?Sized>(&self, topic: &str, task: &T) -> Submission {
        Submission {
            client: self.clone(),
            topic: topic.to_owned(),
            payload: task.to_payload(),
            priority: Priority::default(),
            properties: BTreeMap::new(),
            tags: Vec::new(),
            delivery: DeliveryTime::default(),
            codec: self.inner.settings.codecs.default.clone(),
            refused: None,
            strict: false,
        }
    }

    /// A submission of the same task again: its payload, which is encoded already if it was, its
    /// properties, and its tags.
    pub(super) fn resubmission(
        &self,
        topic: &str,
        (payload, properties, tags): (Bytes, BTreeMap<String, String>, Vec<String>),
    ) -> Submission {
        let same = self.submission(topic, &Raw(payload));
        Submission { properties, tags, codec: None, ..same }
    }

    /// Submits many tasks, awaiting up to 256 receipts at once. The stream yields one result per
    /// task, in their order, and takes the next task only when it is polled. If you drop the
    /// stream, tasks in flight may or may not exist.
    ///
    /// To submit until the first error:
    /// `client.submit_all(topic, tasks).try_collect::<Vec<_>>().await` with
    /// `futures::TryStreamExt`.
    pub fn submit_all<T, I>(
        &self,
        topic: &str,
        tasks: I,
    ) -> BoxStream<'static, Result<TaskRef, SubmitError>>
    where
        T: ToPayload + 'static,
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'static,
    {
        let (client, topic) = (self.clone(), topic.to_owned());
        let sends = move |task| client.submission(&topic, &task).send();
        stream::iter(tasks).map(sends).buffered(IN_FLIGHT_MAX).boxed()
    }
}

impl Submission {
    /// Adds a property to the task's message; the processor reads it from its context.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Replaces the payload. It is encoded by the same codec as the one before.
    pub fn payload<T: ToPayload + ?Sized>(mut self, task: &T) -> Self {
        self.payload = task.to_payload();
        if let Some(codec) = self.properties.remove(TASK_CODEC) {
            self.codec = Some(codec);
        }
        self
    }

    /// Sets your name for the task, a text of 1 to 256 bytes. Entries on the metadata topic carry
    /// it ([`TaskMetadata::task_key`](crate::TaskMetadata::task_key));
    /// [`Queue::find`](super::Queue::find) and [`Watch::with_key`](super::Watch::with_key) search
    /// by it. The key is only a name: two tasks may have the same, and both run.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.property(TASK_KEY, key)
    }

    /// Encodes the payload by the client's codec of this name, and stores the name in the property
    /// `TASK_CODEC`: see [`Codec`](crate::Codec). A submission that already has this property is
    /// sent unchanged.
    pub fn codec(mut self, name: impl Into<String>) -> Self {
        self.codec = Some(name.into());
        self
    }

    /// Sets the task's type, a text of 1 to 128 bytes. A [`Router`](crate::Router) chooses the
    /// processor by it, and entries on the metadata topic carry it
    /// ([`TaskMetadata::task_type`](crate::TaskMetadata::task_type)).
    pub fn task_type(self, task_type: impl Into<String>) -> Self {
        self.property(TASK_TYPE, task_type)
    }

    /// Sets the priority level, and so the topic: `<T>-high`, `<T>` or `<T>-low`, where `<T>` is
    /// the task topic. The [`TaskRef`] names that topic. Workers must consume it, too: see
    /// [`WorkerBuilder::levels`](crate::WorkerBuilder::levels). Keys are always registered in the
    /// register of `<T>`.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    #[cfg(test)]
    pub(super) const fn refused(&self) -> Option<&SubmitError> {
        self.refused.as_ref()
    }

    /// Makes [`Submission::send`] fail with this error, unless an earlier one is recorded.
    pub(super) fn refuse(mut self, error: SubmitError) -> Self {
        self.refused.get_or_insert(error);
        self
    }

    /// Submits the task; see [`Client::submit`].
    ///
    /// # Errors
    /// As [`Client::submit`].
    pub async fn send(self) -> Result<TaskRef, SubmitError> {
        let (client, topic, strict) = (self.client.clone(), self.topic.clone(), self.strict);
        let PreparedSubmission { payload, mut properties, key, priority, delivery } =
            self.prepare()?;
        let queue = client.names(&topic)?;
        let topic = match priority {
            Priority::Normal => queue.task.clone(),
            Priority::High | Priority::Low => client.level_names(&queue, priority)?.task,
        };
        client.check_after(&topic, &properties).await?;
        let deliver_at_ms = delivery.at_ms(Clock::System.wall_ms());
        let span = spans::send(&topic, payload.len(), &mut properties);
        let message = message_of(properties, payload, deliver_at_ms);
        let sending = async {
            match key {
                Some(key) => client.submit_keyed((&queue, priority), message, key, strict).await,
                None => client.publish_task(&topic, message).await,
            }
        };
        let sent = spans::within(&span, sending).await;
        spans::sent(span, sent.as_ref().map(|task| task.id));
        sent
    }

    /// Checks and encodes the submission.
    pub(super) fn prepare(self) -> Result<PreparedSubmission, SubmitError> {
        let Self { client, payload, priority, mut properties, delivery, refused, codec, .. } = self;
        if let Some(error) = refused {
            return Err(error);
        }
        check_names(&properties)?;
        let order_key = properties.get(ORDER_KEY);
        if properties.contains_key(OVERWRITE)
            && order_key.is_some_and(|key| properties.get(DEDUPE_KEY) != Some(key))
        {
            let problem =
                "the order key of a task that overwrites another one must be its dedupe key";
            return Err(SubmitError::Property { name: ORDER_KEY, problem: problem.to_owned() });
        }
        let mut payload = payload.map_err(SubmitError::Encode)?;
        // The digest covers the plain payload: a codec may encode the same payload differently each
        // time.
        let key = key_of(&properties)?.map(|name| (name, Digest::of(&payload)));
        if let Some(name) = codec
            && !properties.contains_key(TASK_CODEC)
        {
            let codec = client.inner.settings.codecs.get(&name).map_err(SubmitError::Encode)?;
            payload = encode(&**codec, &payload).map_err(SubmitError::Encode)?;
            properties.insert(TASK_CODEC.to_owned(), name);
        }
        Ok(PreparedSubmission { payload, properties, key, priority, delivery })
    }
}

/// Checks the task's names: its key, its type and its tags.
fn check_names(properties: &BTreeMap<String, String>) -> Result<(), SubmitError> {
    let outside = |property, bytes_max| {
        let bytes = properties.get(property).map(String::len)?;
        (!(1..=bytes_max).contains(&bytes)).then_some(bytes)
    };
    if let Some(bytes) = outside(TASK_KEY, TASK_KEY_BYTES_MAX) {
        return Err(SubmitError::Key(bytes));
    }
    if let Some(bytes) = outside(TASK_TYPE, TASK_TYPE_BYTES_MAX) {
        return Err(SubmitError::Type(bytes));
    }
    let has_nul = |name: &&str| properties.get(*name).is_some_and(|it| it.contains('\0'));
    match [TASK_KEY, TASK_TYPE, TAGS].into_iter().find(has_nul) {
        Some(name) => {
            let problem = "it contains a NUL character, which no environment variable can hold; submit it without";
            Err(SubmitError::Property { name, problem: problem.to_owned() })
        }
        None => Ok(()),
    }
}

/// The message of a task. Its key is the task's order key.
pub(super) fn message_of(
    properties: BTreeMap<String, String>,
    payload: Bytes,
    deliver_at_ms: Option<u64>,
) -> Outgoing {
    let key = properties.get(ORDER_KEY).cloned();
    Outgoing { key, properties: properties.into(), payload, deliver_at_ms, ..Outgoing::default() }
}

/// A submission, checked and encoded.
pub(super) struct PreparedSubmission {
    pub(super) payload: Bytes,
    pub(super) properties: BTreeMap<String, String>,
    pub(super) key: Option<(KeyName, Digest)>,
    pub(super) priority: Priority,
    pub(super) delivery: DeliveryTime,
}

impl Client {
    /// Publishes the message of a task.
    pub(super) async fn publish_task(
        &self,
        topic: &str,
        message: Outgoing,
    ) -> Result<TaskRef, SubmitError> {
        let routes = &self.inner.routes;
        let index = match &message.key {
            Some(key) => routes.of_key(topic, key).await,
            None => routes.next(topic).await,
        };
        let index = index.map_err(SubmitError::Transport)?;
        self.publish_task_to(topic, index, message).await
    }

    /// Publishes the message of a task to one partition.
    pub(super) async fn publish_task_to(
        &self,
        topic: &str,
        index: i32,
        message: Outgoing,
    ) -> Result<TaskRef, SubmitError> {
        let place = partition(topic.to_owned(), index);
        let payload_bytes = message.payload.len();
        let stored = self.inner.publishers.publish(&place, message).await;
        let position = stored.map_err(|failure| match failure {
            PublishFailure::NotSent(error) => SubmitError::Transport(error),
            PublishFailure::Sent(PublishError::Refused(cause)) => SubmitError::Refused(cause),
            PublishFailure::Sent(PublishError::TooLarge { bytes, bytes_max }) => {
                SubmitError::TooLarge { bytes, bytes_max }
            }
            PublishFailure::Sent(PublishError::Unknown(cause)) => SubmitError::Unknown(cause),
            PublishFailure::Sent(PublishError::NotStored(cause)) => {
                let address = place.to_string();
                SubmitError::Transport(TransportError::new(Unreachable, address, cause))
            }
            PublishFailure::Sent(other) => SubmitError::Unknown(other.to_string()),
        })?;
        telemetry::submitted(&place.topic, payload_bytes);
        self.inner.existence.note(&place, position);
        // The receipt names no partition; the index is the one published to.
        Ok(TaskRef { topic: place.topic, id: TaskId::new(position, index) })
    }
}
