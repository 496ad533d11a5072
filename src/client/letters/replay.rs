//! Replays a dead letter: submits its task once more, as a new one that names the old one.
//!
//! The new task has the idempotency key `dlq/<id of the old one>`. So however often a letter is
//! replayed, by several operators at once or by one who died before the letter was marked, one task
//! comes of it, and everybody is told which.

use super::letter::ADDED;
use super::{
    Client, DeadLetter, DeadLetterError, DeadLetterFilter, DeadLetters, IN_FLIGHT_MAX,
    LetterLocation, LetterSubscription,
};
use crate::client::submit::message_of;
use crate::client::{TaskRef, partition};
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use longhaul_core::protocol::register::{Digest, KeyKind, KeyName};
use longhaul_core::task::Priority;
use longhaul_core::task::text::{
    AFTER, AFTER_FAILED, DEDUPE_KEY, DELAY, EXPIRES_AT, IDEMPOTENCY_KEY, OVERWRITE, PAYLOAD_GONE,
    REPLAY_OF, SCHEDULED_AT,
};
use longhaul_core::task::{TaskId, TaskOutcome};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What became of the replay of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replayed {
    /// This task does it once more: submitted now, or by an earlier replay of the same letter.
    Restarted(TaskRef),
    /// There is no such letter: it was purged, or never was.
    NotFound,
    /// The task has not failed for good.
    NotDead,
    /// Another task that is not over holds the dedupe key: the letter stays.
    DedupeConflict(TaskRef),
    /// The letter was stored without the task's payload: there is nothing to run. It stays.
    NoPayload,
}

/// Properties of a task that say when it is to be run: what they say is past.
const PAST: [&str; 5] = [SCHEDULED_AT, DELAY, EXPIRES_AT, AFTER, AFTER_FAILED];

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
    /// Submits the task of a letter once more, as a new task with its own attempts, and marks the
    /// letter as handled. The new task has the payload and the properties of the old one, but for
    /// when it starts, expires and what it waits for; it has `REPLAY_OF`, with the id of the old
    /// one, and an idempotency key of its own in place of a key that the old one had.
    ///
    /// The same letter is never run twice, whoever replays it and however often: each replay is
    /// answered with the same task.
    ///
    /// # Errors
    /// When the letters cannot be read, or the task cannot be submitted. To replay again is safe.
    pub async fn replay(
        &self,
        task: &TaskRef,
        reason: impl AsRef<str>,
    ) -> Result<Replayed, DeadLetterError> {
        match self.find(task.id).await? {
            Some((letter, place)) => {
                self.replay_letter(letter, &place, reason.as_ref(), &LetterSubscription::default())
                    .await
            }
            None => self.without_letter(task).await,
        }
    }

    /// Replays all letters that a filter takes, and says what became of each. They are read first,
    /// some 100,000 at a time. Dropping the stream stops it.
    pub fn replay_all(
        &self,
        filter: DeadLetterFilter,
        reason: impl Into<String>,
    ) -> BoxStream<'static, Result<(TaskId, Replayed), DeadLetterError>> {
        let (letters, reason) = (self.clone(), Arc::<str>::from(reason.into()));
        let subscription = Arc::new(LetterSubscription::default());
        let replay = move |place: LetterLocation| {
            let (letters, reason) = (letters.clone(), Arc::clone(&reason));
            let subscription = Arc::clone(&subscription);
            async move {
                let transport = &letters.client.inner.transport;
                let message = transport.fetch(&letters.place, place.at).await?;
                let Some(message) = message else { return Ok((place.id, Replayed::NotFound)) };
                let letter = DeadLetter::read(&message, place.id, &letters.names.task);
                let letter = DeadLetter { payload: Some(message.payload), ..letter };
                let replayed = letters.replay_letter(letter, &place, &reason, &subscription).await;
                Ok((place.id, replayed?))
            }
        };
        self.places(filter).map_ok(replay).try_buffered(IN_FLIGHT_MAX).boxed()
    }

    async fn replay_letter(
        &self,
        letter: DeadLetter,
        place: &LetterLocation,
        reason: &str,
        subscription: &LetterSubscription,
    ) -> Result<Replayed, DeadLetterError> {
        let replayed = match self.holder(&key_of(place.id)).await? {
            Some(before) => before,
            None => {
                if letter.properties.contains_key(PAYLOAD_GONE) {
                    return Ok(Replayed::NoPayload);
                }
                if let Some(other) = self.dedupe_conflict(&letter).await? {
                    return Ok(Replayed::DedupeConflict(other));
                }
                self.submit_replay(letter).await?
            }
        };
        self.mark(place, ("replay", reason, Some(replayed.id)), subscription).await?;
        Ok(Replayed::Restarted(replayed))
    }

    /// Submits the task of a letter, unless that was done before.
    pub(super) async fn submit_replay(
        &self,
        letter: DeadLetter,
    ) -> Result<TaskRef, DeadLetterError> {
        let key = key_of(letter.task.id);
        let properties = properties_of(&letter);
        let of_letter = |level: &Priority| self.names.task_of(*level) == letter.task.topic;
        let level = Priority::ALL.into_iter().find(of_letter).unwrap_or_default();
        let payload: Bytes = letter.payload.unwrap_or_default();
        let digest = Digest::of(&payload);
        let message = message_of(properties, payload, None);
        let client: &Client = &self.client;
        let queue = (&self.names, level);
        let submitted = client.submit_keyed(queue, message, (key, digest), false).await;
        submitted.map_err(DeadLetterError::Submit)
    }

    /// The task that holds a key.
    async fn holder(&self, key: &KeyName) -> Result<Option<TaskRef>, DeadLetterError> {
        let register = self.client.inner.registers.read(&self.names.register).await?;
        let holder = register.look(|keys| keys.holder(key)).map(|holding| holding.task);
        Ok(holder.map(|task| TaskRef { topic: self.names.task_of(task.level), id: task.id }))
    }

    /// The task that holds the letter's dedupe key, if it is another one than the dead one.
    async fn dedupe_conflict(
        &self,
        letter: &DeadLetter,
    ) -> Result<Option<TaskRef>, DeadLetterError> {
        let Some(text) = letter.properties.get(DEDUPE_KEY) else { return Ok(None) };
        let Ok(name) = KeyName::new(KeyKind::Dedupe, text.as_str()) else { return Ok(None) };
        Ok(self.holder(&name).await?.filter(|holder| *holder != letter.task))
    }

    /// There is no letter of the task that stands.
    async fn without_letter(&self, task: &TaskRef) -> Result<Replayed, DeadLetterError> {
        let id = task.id;
        if let Some(before) = self.holder(&key_of(id)).await? {
            return Ok(Replayed::Restarted(before));
        }
        // Each level of the queue has a metadata topic of its own.
        let names = self.client.names(&task.topic)?;
        let shown = partition(names.metadata, id.partition);
        let shown = self.client.inner.views.get(&shown, id).await?;
        if let Some(shown) = shown {
            let dead = shown.outcome == Some(TaskOutcome::Final);
            return Ok(if dead { Replayed::NotFound } else { Replayed::NotDead });
        }
        // One that nobody has claimed is not shown.
        let place = partition(names.task, id.partition);
        let message = self.client.inner.transport.fetch(&place, id.position()).await?;
        Ok(if message.is_some() { Replayed::NotDead } else { Replayed::NotFound })
    }
}
