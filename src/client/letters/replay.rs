//! Replays a dead letter: submits its task again, as a new task that names the old one.
//!
//! The new task has the idempotency key `dlq/<id of the old task>`. So however often a letter is
//! replayed, by several operators at once or after a crash before the mark, it results in one task,
//! and every call returns that task.

use super::letter::ADDED;
use super::{
    Client, DeadLetter, DeadLetterFilter, DeadLetters, IN_FLIGHT_MAX, LetterLocation,
    LetterSubscription,
};
use crate::client::submit::{PreparedSubmission, Submission, message_of};
use crate::client::{ActionError, TaskRef, partition};
use crate::clock::Clock;
use crate::transport::TransportError;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use longhaul_core::protocol::register::{Digest, KeyKind, KeyName};
use longhaul_core::task::text::{
    AFTER, AFTER_FAILED, CHECKPOINT, COPY_OF, DEDUPE_KEY, DELAY, EXPIRES_AT, IDEMPOTENCY_KEY,
    OVERWRITE, PAYLOAD_GONE, REPLAY_OF, SCHEDULED_AT,
};
use longhaul_core::task::{TaskId, TaskOutcome};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The result of replaying a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replayed {
    /// The new task: submitted now, or by an earlier replay of the same letter.
    Restarted(TaskRef),
    /// An earlier replay of the same letter submitted this task, so nothing was changed.
    RestartedBefore(TaskRef),
    /// There is no such letter: it was purged, or never was.
    NotFound,
    /// The task has not failed for good.
    NotDead,
    /// Another unfinished task holds the dedupe key: the letter stays.
    DedupeConflict(TaskRef),
    /// The letter was stored without the task's payload, so it cannot run. It stays.
    NoPayload,
}

/// Changes the task that a letter becomes.
type Change<'a> = dyn Fn(Submission) -> Submission + Send + Sync + 'a;

/// Properties that set when and from where a task runs; a replay drops them, since they refer to
/// the past.
const PAST: [&str; 7] = [SCHEDULED_AT, DELAY, EXPIRES_AT, AFTER, AFTER_FAILED, CHECKPOINT, COPY_OF];

/// The idempotency key of a replay.
fn key_text(task: TaskId) -> String {
    format!("{}{task}", KeyName::OF_REPLAYS)
}

fn key_of(task: TaskId) -> KeyName {
    KeyName::of_replay(key_text(task))
}

/// The properties of the new task.
fn properties_of(letter: &DeadLetter) -> BTreeMap<String, String> {
    let mut properties = letter.properties.clone();
    properties.retain(|name, _| !ADDED.contains(&name.as_str()) && !PAST.contains(&name.as_str()));
    properties.remove(DEDUPE_KEY);
    properties.remove(OVERWRITE);
    properties.insert(IDEMPOTENCY_KEY.to_owned(), key_text(letter.task.id));
    properties.insert(REPLAY_OF.to_owned(), letter.task.id.to_string());
    properties
}

impl DeadLetters {
    /// Submits the task of a letter again, as a new task with its own attempts, and marks the
    /// letter as handled. The new task has the payload and the properties of the old one, except
    /// its start time, its expiry and the tasks that it waits for. It has `REPLAY_OF` with the id
    /// of the old task, and its own idempotency key in place of the old task's key.
    ///
    /// A letter results in one new task, whoever replays it and however often: each replay returns
    /// the same task.
    ///
    /// # Errors
    /// When the letters cannot be read, or the task cannot be submitted. Repeating the replay is
    /// safe.
    pub async fn replay(
        &self,
        task: &TaskRef,
        reason: impl AsRef<str>,
    ) -> Result<Replayed, ActionError> {
        self.replay_as(task, reason.as_ref(), None).await
    }

    /// As [`replay`](Self::replay), with changes to the new task, such as another payload, another
    /// limit, or another priority. The new task has them only if no replay came before: else the
    /// result is [`Replayed::RestartedBefore`]. Of two replays at the same time, one has its
    /// changes made, and both return that task.
    ///
    /// ```no_run
    /// # use longhaul::{Client, TaskRef, ops::Replayed};
    /// # use std::time::Duration;
    /// # async fn longer(client: &Client, task: &TaskRef) -> anyhow::Result<()> {
    /// let letters = client.queue(&task.topic).dead_letters().await?;
    /// let longer = |task: longhaul::Submission| task.max_duration(Duration::from_secs(7200));
    /// letters.replay_with(task, "it needs two hours", longer).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`replay`](Self::replay), and when a change is not possible.
    pub async fn replay_with(
        &self,
        task: &TaskRef,
        reason: impl AsRef<str>,
        change: impl Fn(Submission) -> Submission + Send + Sync,
    ) -> Result<Replayed, ActionError> {
        self.replay_as(task, reason.as_ref(), Some(&change)).await
    }

    async fn replay_as(
        &self,
        task: &TaskRef,
        reason: &str,
        change: Option<&Change<'_>>,
    ) -> Result<Replayed, ActionError> {
        match self.find(task.id).await? {
            Some((letter, place)) => {
                let subscription = LetterSubscription::default();
                self.replay_letter(letter, &place, (reason, change), &subscription).await
            }
            None => {
                let replayed = self.without_letter(task).await?;
                if let (Replayed::Restarted(before), Some(_)) = (&replayed, change) {
                    return Ok(Replayed::RestartedBefore(before.clone()));
                }
                Ok(replayed)
            }
        }
    }

    /// Replays all letters that match a filter, and yields the result of each. It reads some
    /// 100,000 letters at a time before it replays them. Dropping the stream stops it.
    pub fn replay_all(
        &self,
        filter: DeadLetterFilter,
        reason: impl Into<String>,
    ) -> BoxStream<'static, Result<(TaskRef, Replayed), ActionError>> {
        self.replay_all_as(filter, reason.into(), None)
    }

    /// As [`replay_all`](Self::replay_all), with changes as in [`replay_with`](Self::replay_with).
    pub fn replay_all_with(
        &self,
        filter: DeadLetterFilter,
        reason: impl Into<String>,
        change: impl Fn(Submission) -> Submission + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<(TaskRef, Replayed), ActionError>> {
        self.replay_all_as(filter, reason.into(), Some(Arc::new(change)))
    }

    fn replay_all_as(
        &self,
        filter: DeadLetterFilter,
        reason: String,
        change: Option<Arc<Change<'static>>>,
    ) -> BoxStream<'static, Result<(TaskRef, Replayed), ActionError>> {
        let (letters, reason) = (self.clone(), Arc::<str>::from(reason));
        let subscription = Arc::new(LetterSubscription::default());
        let replay = move |place: LetterLocation| {
            let (letters, reason) = (letters.clone(), Arc::clone(&reason));
            let (subscription, change) = (Arc::clone(&subscription), change.clone());
            async move {
                let task = letters.task_ref(place.task);
                let letter = letters.at(place.at, task.id).await?;
                let Some(letter) = letter else { return Ok((task, Replayed::NotFound)) };
                let how = (&*reason, change.as_deref());
                let replayed = letters.replay_letter(letter, &place, how, &subscription).await;
                Ok((task, replayed?))
            }
        };
        self.places(filter).map_ok(replay).try_buffered(IN_FLIGHT_MAX).boxed()
    }

    async fn replay_letter(
        &self,
        letter: DeadLetter,
        place: &LetterLocation,
        (reason, change): (&str, Option<&Change<'_>>),
        subscription: &LetterSubscription,
    ) -> Result<Replayed, ActionError> {
        let replayed = match self.holder(&key_of(letter.task.id)).await? {
            Some(before) if change.is_some() => Replayed::RestartedBefore(before),
            Some(before) => Replayed::Restarted(before),
            None => {
                if letter.properties.contains_key(PAYLOAD_GONE) {
                    return Ok(Replayed::NoPayload);
                }
                if let Some(other) = self.dedupe_conflict(&letter).await? {
                    return Ok(Replayed::DedupeConflict(other));
                }
                Replayed::Restarted(self.submit_replay(letter, change).await?)
            }
        };
        if let Replayed::Restarted(new) | Replayed::RestartedBefore(new) = &replayed {
            self.mark(place, ("replay", reason, Some(new.id)), subscription).await?;
        }
        Ok(replayed)
    }

    /// Submits the task of a letter, unless an earlier replay did.
    pub(super) async fn submit_replay(
        &self,
        letter: DeadLetter,
        change: Option<&Change<'_>>,
    ) -> Result<TaskRef, ActionError> {
        let key = key_of(letter.task.id);
        let level = letter.queue_task(&self.names.task).level;
        let properties = properties_of(&letter);
        let payload = letter.payload.unwrap_or_default();
        let client: &Client = &self.client;
        let Some(change) = change else {
            // What another producer wrote is submitted as it is, whatever this one would refuse.
            let digest = Digest::of(&payload);
            let (message, queue) = (message_of(properties, payload, None), (&self.names, level));
            return Ok(client.submit_keyed(queue, message, (key, digest), false).await?);
        };
        let same = client.resubmission(&self.names.task, (payload, properties, letter.tags));
        let prepared = change(same.priority(level)).prepare()?;
        let PreparedSubmission { payload, mut properties, key: own, priority, delivery } = prepared;
        let digest = own.map_or_else(|| Digest::of(&payload), |(_, digest)| digest);
        client.check_after(&self.names.task, &properties).await?;
        // Whatever was changed, one letter becomes one task.
        properties.insert(IDEMPOTENCY_KEY.to_owned(), key_text(letter.task.id));
        let message = message_of(properties, payload, delivery.at_ms(Clock::System.wall_ms()));
        let queue = (&self.names, priority);
        Ok(client.submit_keyed(queue, message, (key, digest), false).await?)
    }

    /// The task that holds a key.
    async fn holder(&self, key: &KeyName) -> Result<Option<TaskRef>, TransportError> {
        let register = self.client.inner.registers.read(&self.names.register).await?;
        let holder = register.look(|keys| keys.holder(key)).map(|holding| holding.task);
        Ok(holder.map(|task| self.task_ref(task)))
    }

    /// The task that holds the letter's dedupe key, if it is not the dead task itself.
    async fn dedupe_conflict(
        &self,
        letter: &DeadLetter,
    ) -> Result<Option<TaskRef>, TransportError> {
        let Some(text) = letter.properties.get(DEDUPE_KEY) else { return Ok(None) };
        let Ok(name) = KeyName::new(KeyKind::Dedupe, text.as_str()) else { return Ok(None) };
        Ok(self.holder(&name).await?.filter(|holder| *holder != letter.task))
    }

    /// The result for a task without an unhandled letter.
    async fn without_letter(&self, task: &TaskRef) -> Result<Replayed, ActionError> {
        let id = task.id;
        if let Some(before) = self.holder(&key_of(id)).await? {
            return Ok(Replayed::Restarted(before));
        }
        // Each level of the queue has its own metadata topic.
        let names = self.client.names(&task.topic)?;
        let shown = partition(names.metadata, id.partition);
        let shown = self.client.inner.views.get(&shown, id).await?;
        if let Some(shown) = shown {
            let dead = shown.outcome == Some(TaskOutcome::Final);
            return Ok(if dead { Replayed::NotFound } else { Replayed::NotDead });
        }
        // An unclaimed task is not on the metadata topic.
        let place = partition(names.task, id.partition);
        let message = self.client.inner.transport.fetch(&place, id.position()).await?;
        Ok(if message.is_some() { Replayed::NotDead } else { Replayed::NotFound })
    }
}
