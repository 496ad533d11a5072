//! Submits with a key: of all messages with the key one is the task, and every submit answers with that one.
//!
//! The message is published first and bound to its key then, so nothing is ever reserved: a submitter may die anywhere. A second
//! message of the key costs a message that is closed unseen.

use super::publishers::PublishFailure;
use super::registers::Followed;
use super::submit::SubmitError;
use super::task_ref::TaskRef;
use super::{Client, Submission};
use crate::protocol::register::{Digest, KeyKind, KeyName, Keys, QueueTask, Submitting};
use crate::task::text::{DEDUPE_KEY, IDEMPOTENCY_KEY};
use crate::topics::{Priority, TopicNames};
use crate::transport::Outgoing;
use std::collections::BTreeMap;

/// Binds of one submit. One is enough, unless the broker fails.
const BINDS_MAX: usize = 3;

impl Submission {
    /// Of all tasks with this idempotency key one is run, until its workers have forgotten the key, by default 7 days or more after the end of that task
    /// ([`WorkerBuilder::key_retention`](crate::WorkerBuilder::key_retention)). Every submit with it answers with that one: also one that is repeated because
    /// the first had no answer, and one after a restart. Text of 1 to 256 bytes.
    ///
    /// The key belongs to the queue, whatever the priority: the answer is that one task, on the topic of its own priority.
    ///
    /// The first submit with a key makes the client read the register, and follow it from then on.
    ///
    /// ```no_run
    /// use longhaul::{Client, Text};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("pulsar://localhost:6650").await?;
    /// let invoice = Text("invoice of order 4711".to_owned());
    /// let first = client.submission("tasks", &invoice).idempotency_key("order-4711").send().await?;
    /// let again = client.submission("tasks", &invoice).idempotency_key("order-4711").send().await?;
    /// assert_eq!(first, again);
    /// # Ok(())
    /// # }
    /// ```
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.property(IDEMPOTENCY_KEY, key)
    }

    /// Of all tasks with this dedupe key that are not over one is run, and a submit with it answers with that one. When that task is over, as the
    /// metadata topic shows it, the key is free, and the next submit makes a task. Text of 1 to 256 bytes; a task has an idempotency key or a dedupe key,
    /// not both.
    pub fn dedupe_key(self, key: impl Into<String>) -> Self {
        self.property(DEDUPE_KEY, key)
    }

    /// With a key: refuses a task whose payload differs from that of the task which holds the key, by [`SubmitError::Conflict`]. Without this
    /// the answer is that task, whatever its payload.
    pub const fn strict(mut self) -> Self {
        self.strict = true;
        self
    }
}

/// The key that a message is submitted with.
pub(super) fn key_of(
    properties: &BTreeMap<String, String>,
) -> Result<Option<KeyName>, SubmitError> {
    let (kind, text) = match (properties.get(IDEMPOTENCY_KEY), properties.get(DEDUPE_KEY)) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(SubmitError::TwoKeys),
        (Some(text), None) => (KeyKind::Idempotency, text),
        (None, Some(text)) => (KeyKind::Dedupe, text),
    };
    let name = KeyName::new(kind, text.as_str());
    name.map(Some).map_err(|error| SubmitError::KeyLength(error.0))
}

impl Client {
    /// Submits a task with a key.
    pub(super) async fn submit_keyed(
        &self,
        (queue, level): (&TopicNames, Priority),
        message: Outgoing,
        (name, digest): (KeyName, Digest),
        strict: bool,
    ) -> Result<TaskRef, SubmitError> {
        let topic_of = |level| self.level_names(queue, level).map(|names| names.task);
        let registers = &self.inner.registers;
        let register = registers.read(&queue.register).await.map_err(SubmitError::Transport)?;
        let (mut own, mut binds): (Option<QueueTask>, usize) = (None, 0);
        let since = register.look(Keys::period);
        loop {
            match register.look(|keys| keys.submitting(&name, own)) {
                Submitting::Submit => {
                    let published = self.publish_task(&topic_of(level)?, message.clone()).await;
                    own = Some(QueueTask { level, id: published.map_err(safe_to_repeat)?.id });
                }
                Submitting::Bind(_) if !register.look(|keys| keys.remembers(since)) => {
                    let cause = "the task was published too long ago to be bound to its key";
                    return Err(SubmitError::Unbound(cause.to_owned()));
                }
                Submitting::Bind(task) => {
                    let bind = (&name, task, digest);
                    let bound = registers.bind(&self.inner.publishers, &register, bind).await;
                    binds += 1;
                    if binds >= BINDS_MAX {
                        bound.map_err(|failure| SubmitError::Unbound(in_words(failure)))?;
                        let cause = "its key is bound and released faster than it is read";
                        return Err(SubmitError::Unbound(cause.to_owned()));
                    }
                }
                Submitting::Answer(task) => {
                    let answer = TaskRef { topic: topic_of(task.level)?, id: task.id };
                    if strict && has_other_payload(&register, &name, task, digest) {
                        return Err(SubmitError::Conflict(answer));
                    }
                    return Ok(answer);
                }
            }
        }
    }
}

/// Whether the task that holds the key is known to have another payload.
fn has_other_payload(register: &Followed, name: &KeyName, task: QueueTask, own: Digest) -> bool {
    let holding = register.look(|keys| keys.holder(name));
    let of_task = holding.filter(|holding| holding.task == task).and_then(|it| it.digest);
    of_task.is_some_and(|digest| digest != own)
}

/// Whoever submits with a key may do so again.
fn safe_to_repeat(error: SubmitError) -> SubmitError {
    if let SubmitError::Unknown(cause) = error { SubmitError::Unbound(cause) } else { error }
}

fn in_words(failure: PublishFailure) -> String {
    match failure {
        PublishFailure::NotSent(error) => error.to_string(),
        PublishFailure::Sent(error) => error.to_string(),
    }
}
