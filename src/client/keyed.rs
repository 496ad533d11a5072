//! Submits with a key: of all messages with the key exactly one becomes the task, and every submit
//! returns that task.
//!
//! The message is published first and bound to its key afterwards. Nothing is reserved, so a
//! submitter may die at any point. A second message with the key is closed without running.

mod turns;

pub(super) use turns::Turns;

use super::registers::FollowedRegister;
use super::submit::SubmitError;
use super::task_ref::TaskRef;
use super::{ActionError, Client, Queue, Submission};
use crate::topics::{Priority, TopicNames};
use crate::transport::Outgoing;
use longhaul_core::protocol::register::{
    Digest, KeyKind, KeyName, Keys, QueueTask, RegisterEntry, Submitting,
};
use longhaul_core::task::text::{DEDUPE_KEY, IDEMPOTENCY_KEY, OVERWRITE};
use std::collections::BTreeMap;

/// The most binds of one submit. One is enough, unless the broker fails.
const BINDS_MAX: usize = 3;

impl Submission {
    /// Sets the idempotency key, a text of 1 to 256 bytes. Of all tasks with the key only one runs,
    /// and every submit with it returns that task: also a repeated submit after a lost answer, and
    /// one after a restart. Workers forget the key after the end of that task, by default 7 days
    /// later or more ([`WorkerBuilder::key_retention`](crate::WorkerBuilder::key_retention)).
    ///
    /// The key belongs to the queue, whatever the priority: the returned task is on the topic of
    /// its own priority.
    ///
    /// On the first submit with a key the client reads the register, and follows it from then on.
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

    /// Sets the dedupe key, a text of 1 to 256 bytes. Of all unfinished tasks with the key only one
    /// runs, and a submit with it returns that task. When the metadata topic shows the end of that
    /// task, the key is free, and the next submit creates a task. A task has an idempotency key or
    /// a dedupe key, not both.
    pub fn dedupe_key(self, key: impl Into<String>) -> Self {
        self.property(DEDUPE_KEY, key)
    }

    /// With a dedupe key: this task replaces the unfinished task that holds the key.
    ///
    /// - If the earlier task does not run (it is new, scheduled, between two attempts, or waits for
    ///   others), it is closed as cancelled. Its entry on the metadata topic says `Superseded by`
    ///   and the id of this task
    ///   ([`TaskMetadata::superseded_by`](crate::TaskMetadata::superseded_by)).
    /// - If the earlier task runs, it is not touched. This task waits, without a slot, and runs
    ///   when the earlier one is over, so a late update is not lost. If the earlier one then fails
    ///   with attempts left, it is closed instead of retried.
    ///
    /// The whole earlier task is replaced: payload, headers, scheduled time, expiry and limits. To
    /// change one thing, submit the rest again as well. If two submits overwrite each other, the
    /// later message wins. The submit returns its own task, which may be superseded in turn, or the
    /// later task if that one is already bound. A task that waits for the earlier one (`AFTER`)
    /// finds that it has no result.
    ///
    /// Ids order two messages only within one partition of one topic. So all tasks with a dedupe
    /// key go to the partition of the key. A task elsewhere is not overwritten; the submit then
    /// returns it, as without `overwrite`. A task is elsewhere if it is on the topic of another
    /// priority, if its producer did not set the key as the message key, or if it was published
    /// when the topic had fewer partitions.
    ///
    /// ```no_run
    /// use longhaul::{Client, Text};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("pulsar://localhost:6650").await?;
    /// // Indexes the document when nobody has changed it for a minute.
    /// let index = client.submission("tasks", &Text("index document 4711".to_owned()));
    /// let index = index.dedupe_key("document-4711").overwrite().delay(Duration::from_secs(60));
    /// index.send().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn overwrite(self) -> Self {
        self.property(OVERWRITE, "true")
    }

    /// With a key: fails with [`SubmitError::Conflict`] if the task that holds the key has another
    /// payload. Without `strict` the submit returns that task, whatever its payload.
    pub const fn strict(mut self) -> Self {
        self.strict = true;
        self
    }
}

impl Queue {
    /// Returns the task that holds a key, or held it last if the register still has the key, and
    /// whether a submit with the key returns that task. A task that was submitted, and not yet bound
    /// to its key, holds none.
    ///
    /// # Errors
    /// When the register cannot be read.
    #[doc(hidden)]
    pub async fn key_holder(
        &self,
        name: &KeyName,
    ) -> Result<Option<(QueueTask, bool)>, ActionError> {
        let register = self.client.register_of(&self.names()?).await?;
        let holder = |keys: &Keys| Some((keys.last_holder(name)?, keys.holder(name).is_some()));
        Ok(register.look(holder))
    }

    /// Returns a name of this queue that no other queue has, in any cluster. It is the same for as
    /// long as the queue exists, and for copies that a broker's backup restores. The first call may
    /// write the first entry of the register.
    ///
    /// # Errors
    /// When the register cannot be read or written.
    #[doc(hidden)]
    pub async fn identity(&self) -> Result<String, ActionError> {
        let (client, names) = (&self.client, self.names()?);
        let register = client.register_of(&names).await?;
        if register.start_stamp().is_none() {
            let registers = &client.inner.registers;
            let start = RegisterEntry::Start(registers.next_stamp());
            registers.publish(&client.inner.publishers, &register, &start).await?;
        }
        // Two callers may write an entry each: the first one counts.
        let start = register.start_stamp().ok_or(ActionError::Contended)?;
        Ok(start.to_string())
    }
}

/// The key of a submission, if it has one.
pub(super) fn key_of(
    properties: &BTreeMap<String, String>,
) -> Result<Option<KeyName>, SubmitError> {
    let (kind, text) = match (properties.get(IDEMPOTENCY_KEY), properties.get(DEDUPE_KEY)) {
        (None, None) if overwrites(properties)? => return Err(SubmitError::OverwriteWithoutKey),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(SubmitError::TwoKeys),
        (Some(text), None) => (KeyKind::Idempotency, text),
        (None, Some(text)) => (KeyKind::Dedupe, text),
    };
    if overwrites(properties)? && kind != KeyKind::Dedupe {
        return Err(SubmitError::OverwriteWithoutKey);
    }
    let name = KeyName::new(kind, text.as_str());
    name.map(Some).map_err(|error| SubmitError::KeyLength(error.0))
}

/// Whether the task replaces the one that holds its key.
fn overwrites(properties: &BTreeMap<String, String>) -> Result<bool, SubmitError> {
    match properties.get(OVERWRITE).map(String::as_str) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => {
            let problem = "it is `true` or `false`".to_owned();
            Err(SubmitError::Property { name: OVERWRITE, problem })
        }
    }
}

impl Client {
    /// The partition for a task with this key. Tasks with one order key, and tasks with one dedupe
    /// key, share a partition, where ids order them.
    async fn place_of(
        &self,
        topic: &str,
        name: &KeyName,
        order_key: Option<&str>,
    ) -> Result<i32, SubmitError> {
        let index = match (order_key, name.kind()) {
            (Some(key), _) => self.inner.routes.of_key(topic, key).await,
            (None, KeyKind::Dedupe) => self.inner.routes.of_key(topic, name.text()).await,
            (None, KeyKind::Idempotency) => self.inner.routes.next(topic).await,
        };
        index.map_err(SubmitError::Transport)
    }

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
        let (mut own, mut binds) = (None, 0);
        let mut turn = None;
        let since = register.look(Keys::period);
        let topic = topic_of(level)?;
        let overwrites = message.properties.get(OVERWRITE) == Some("true");
        let order_key = message.key.clone();
        let order_key = order_key.as_deref();
        let lane = if overwrites {
            Some((level, self.place_of(&topic, &name, order_key).await?))
        } else {
            None
        };
        loop {
            match register.look(|keys| keys.submitting(&name, own, lane)) {
                // Each overwriting submit is a task of its own, in any order, so it takes no turn.
                Submitting::Submit if turn.is_none() && lane.is_none() => {
                    turn = Some(registers.turns.take(&queue.register, &name).await);
                }
                Submitting::Submit => {
                    let index = match lane {
                        Some((_, index)) => index,
                        None => self.place_of(&topic, &name, order_key).await?,
                    };
                    let published = self.publish_task_to(&topic, index, message.clone()).await;
                    own = Some(QueueTask { level, id: published.map_err(safe_to_repeat)?.id });
                }
                Submitting::Bind(_) if !register.look(|keys| keys.remembers(since)) => {
                    let cause = "the task was published too long ago to be bound to its key";
                    return Err(SubmitError::Unbound(cause.to_owned()));
                }
                Submitting::Bind(task) => {
                    let bind = (&name, task, digest, overwrites);
                    let bound = registers.bind(&self.inner.publishers, &register, bind).await;
                    binds += 1;
                    if binds >= BINDS_MAX {
                        bound.map_err(|failure| SubmitError::Unbound(failure.to_string()))?;
                        let cause = "its key changes faster than it can be read";
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
fn has_other_payload(
    register: &FollowedRegister,
    name: &KeyName,
    task: QueueTask,
    own: Digest,
) -> bool {
    let holding = register.look(|keys| keys.holder(name));
    let of_task = holding.filter(|holding| holding.task == task).and_then(|holding| holding.digest);
    of_task.is_some_and(|digest| digest != own)
}

/// A submit with a key may be repeated safely.
fn safe_to_repeat(error: SubmitError) -> SubmitError {
    if let SubmitError::Unknown(cause) = error { SubmitError::Unbound(cause) } else { error }
}
