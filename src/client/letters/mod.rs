//! Dead letters: list, read, replay and purge.
//!
//! Dead letters are plain messages on a plain topic. Every call reads the topic from its start;
//! nothing is kept. A letter that was replayed or purged gets a *mark* behind it: a message without
//! a value under the same key, as on any keyed topic, which names the operator and the reason. A
//! letter behind the last mark counts again, so that a late letter is not lost. Letter and mark are
//! then acknowledged on the subscription `dead-letters`, so that the broker may delete them.

mod letter;
mod replay;
mod shelf;
#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;

pub(in crate::client) use letter::level_in;
pub use letter::{DeadLetter, DeadLetterFilter};
pub use replay::Replayed;

use super::publishers::PublishFailure;
use super::{ActionError, Client, Queue, ReadError, TaskRef, partition};
use crate::letters::{self, LetterMessageKind, kind};
use crate::topics::{DEAD_LETTER_SUBSCRIPTION, TopicNames};
use crate::transport::{
    Consumer, Follow, Message, PublishError, Start, TopicPartition, TransportError,
};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use longhaul_core::protocol::register::QueueTask;
use longhaul_core::task::{Position, Priority, TaskId};
use shelf::LetterSelection;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The most letters per page.
const PAGE_MAX: usize = 10_000;

/// The most letters that one pass over the topic finds for a bulk replay or purge: some 10 MB.
const FOUND_MAX: usize = 100_000;

/// Letters replayed or purged concurrently.
const IN_FLIGHT_MAX: usize = 64;

/// How often a mark without a receipt is published.
const TRIES_MAX: u32 = 5;

/// The dead letters of a queue: its tasks of all priority levels that failed for good. Cheap to
/// clone.
///
/// ```no_run
/// use futures::StreamExt;
/// use longhaul::ops::DeadLetterFilter;
/// use longhaul::Client;
///
/// # async fn tidy_up(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let letters = client.queue("tasks").dead_letters().await?;
/// for letter in letters.list(&DeadLetterFilter::new(), None, 100).await?.letters {
///     println!("{} after {} attempts: {}", letter.task, letter.attempts, letter.reason);
/// }
/// let mut replays = letters.replay_all(DeadLetterFilter::new().reason("status 503"), "upstream is back");
/// while let Some(outcome) = replays.next().await {
///     let (task, outcome) = outcome?;
///     println!("{task}: {outcome:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DeadLetters {
    client: Client,
    names: TopicNames,
    /// Only the letters of this level.
    level: Option<Priority>,
    place: TopicPartition,
}

/// A page of dead letters, in order of publishing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterPage {
    /// The letters, without their payloads.
    pub letters: Vec<DeadLetter>,
    /// The position to continue from; `None` when there are no more letters. A page may be shorter
    /// than the limit and still have a next one.
    pub next: Option<Position>,
}

/// The positions of a letter and of earlier letters of its task.
#[derive(Clone, Debug)]
struct LetterLocation {
    task: QueueTask,
    at: Position,
    older: Vec<Position>,
}

impl Queue {
    /// Returns the dead letters of the queue, or of one level if this is its topic, such as
    /// `tasks-high`.
    ///
    /// # Errors
    /// When the topic's name is invalid, or the broker cannot be reached.
    pub async fn dead_letters(&self) -> Result<DeadLetters, ReadError> {
        let (queue, level) = self.client.level_of(&self.names()?).await?;
        let level = (level != Priority::Normal).then_some(level);
        let place = partition(queue.dead_letters.clone(), -1);
        Ok(DeadLetters { client: self.client.clone(), names: queue, level, place })
    }
}

impl DeadLetters {
    /// Only those of tasks with this priority.
    #[must_use]
    pub fn of_level(self, priority: Priority) -> Self {
        Self { level: Some(priority), ..self }
    }

    /// Lists unhandled letters that match a filter, up to `limit` (at most 10,000). `after` is the
    /// [`next`](DeadLetterPage::next) of the previous page.
    ///
    /// Each page reads the topic from there to its end, payloads included; the memory depends only
    /// on `limit`.
    ///
    /// # Errors
    /// When the topic cannot be read.
    pub async fn list(
        &self,
        filter: &DeadLetterFilter,
        after: Option<Position>,
        limit: usize,
    ) -> Result<DeadLetterPage, ReadError> {
        let room = limit.clamp(1, PAGE_MAX);
        let mut shelf = LetterSelection::new(filter, self.of(), room, |_, letter| letter);
        self.read(after, |message| shelf.take(message)).await?;
        let (kept, next) = shelf.finish();
        Ok(DeadLetterPage { letters: kept.into_iter().map(|(_, letter)| letter).collect(), next })
    }

    /// Returns a task's letter with its payload; `None` if there is none, or it was handled.
    ///
    /// # Errors
    /// When the topic cannot be read.
    pub async fn show(&self, task: &TaskRef) -> Result<Option<DeadLetter>, ReadError> {
        Ok(self.find(task.id).await?.map(|(letter, _)| letter))
    }

    /// Reads the letter of a task at this position with its payload; `None` if it is gone.
    pub(super) async fn at(
        &self,
        position: Position,
        task: TaskId,
    ) -> Result<Option<DeadLetter>, TransportError> {
        let message = self.client.inner.transport.fetch(&self.place, position).await?;
        Ok(message.map(|message| {
            with_payload(&message, DeadLetter::read(&message, task, &self.names.task))
        }))
    }

    /// Marks the letter of one task as handled, without running the task. Returns whether there was
    /// an unhandled letter: `false` if it was already handled, or the task has not failed for good.
    ///
    /// # Errors
    /// When the letters cannot be read, or the mark may not be stored.
    pub async fn purge_one(
        &self,
        task: &TaskRef,
        reason: impl AsRef<str>,
    ) -> Result<bool, ActionError> {
        let Some((_, place)) = self.find(task.id).await? else { return Ok(false) };
        self.mark(&place, ("purge", reason.as_ref(), None), &LetterSubscription::default()).await?;
        Ok(true)
    }

    /// Marks the letters that match a filter as handled, and yields their tasks. It reads some
    /// 100,000 letters at a time before it marks them. Dropping the stream stops it.
    pub fn purge(
        &self,
        filter: DeadLetterFilter,
        reason: impl Into<String>,
    ) -> BoxStream<'static, Result<TaskRef, ActionError>> {
        let (letters, reason) = (self.clone(), Arc::<str>::from(reason.into()));
        let subscription = Arc::new(LetterSubscription::default());
        let purge = move |place: LetterLocation| {
            let (letters, reason) = (letters.clone(), Arc::clone(&reason));
            let subscription = Arc::clone(&subscription);
            async move {
                letters.mark(&place, ("purge", &reason, None), &subscription).await?;
                Ok(letters.task_ref(place.task))
            }
        };
        self.places(filter).map_ok(purge).try_buffered(IN_FLIGHT_MAX).boxed()
    }

    /// The positions of the letters that match a filter.
    fn places(
        &self,
        filter: DeadLetterFilter,
    ) -> impl futures::Stream<Item = Result<LetterLocation, ActionError>> + Send + use<> {
        let (letters, found) = (self.clone(), VecDeque::<LetterLocation>::new());
        let start = Some((found, None, true));
        stream::try_unfold((letters, filter, start), async |(letters, filter, state)| {
            let Some((mut found, mut after, mut more)) = state else { return Ok(None) };
            while found.is_empty() && more {
                let mut shelf = LetterSelection::new(&filter, letters.of(), FOUND_MAX, |_, _| ());
                letters.read(after, |message| shelf.take(message)).await?;
                let (kept, next) = shelf.finish();
                found.extend(kept.into_iter().map(|(place, ())| place));
                (after, more) = (next, next.is_some());
            }
            let Some(next) = found.pop_front() else { return Ok(None) };
            Ok(Some((next, (letters, filter, Some((found, after, more))))))
        })
    }

    /// The task topic of the queue, and the level whose letters are meant.
    fn of(&self) -> (&str, Option<Priority>) {
        (&self.names.task, self.level)
    }

    /// The task with this level and id in the queue.
    fn task_ref(&self, QueueTask { level, id }: QueueTask) -> TaskRef {
        TaskRef { topic: self.names.task_of(level), id }
    }

    /// The unhandled letter of a task, and its position.
    async fn find(
        &self,
        task: TaskId,
    ) -> Result<Option<(DeadLetter, LetterLocation)>, TransportError> {
        let all = DeadLetterFilter::new();
        let mut shelf = LetterSelection::new(&all, (&self.names.task, None), 1, with_payload);
        self.read(None, |message| {
            if let Some(LetterMessageKind::Mark(id) | LetterMessageKind::Letter(id)) = kind(message)
                && id == task
            {
                shelf.take(message);
            }
        })
        .await?;
        let (found, _) = shelf.finish();
        Ok(found.into_iter().next().map(|(place, letter)| (letter, place)))
    }

    /// Reads the topic to its current end. A topic that does not exist has no letters.
    async fn read(
        &self,
        after: Option<Position>,
        take: impl FnMut(&Message),
    ) -> Result<(), TransportError> {
        self.client.require_queue(&self.names).await?;
        let start = after.map_or(Start::Earliest, Start::After);
        let follow = Follow { start, compacted: true };
        self.client.logs().read_if_exists(&self.place, follow, take).await
    }

    /// Marks a letter as handled, with the action, its reason and the resulting task. Then
    /// acknowledges letter and mark, so that the broker may delete them.
    async fn mark(
        &self,
        place: &LetterLocation,
        (action, reason, task): (&'static str, &str, Option<TaskId>),
        subscription: &LetterSubscription,
    ) -> Result<(), ActionError> {
        let mark = letters::mark(place.task.id, &self.client.operator, action, reason, task);
        let mut stored = None;
        for tried in 1..=TRIES_MAX {
            match self.client.inner.publishers.publish(&self.place, mark.clone()).await {
                Ok(position) => {
                    stored = Some(position);
                    break;
                }
                // A second mark changes nothing.
                Err(PublishFailure::Sent(PublishError::Unknown(_))) if tried < TRIES_MAX => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        let all = place.older.iter().copied().chain([place.at]).chain(stored);
        subscription.acknowledge(&self.client, &self.place, all).await;
        Ok(())
    }
}

/// A letter with the payload of its message.
fn with_payload(message: &Message, letter: DeadLetter) -> DeadLetter {
    DeadLetter { payload: Some(message.payload.clone()), ..letter }
}

/// The subscription that keeps dead letters until they are handled. It never receives a delivery.
#[derive(Default)]
struct LetterSubscription(Mutex<Option<Box<dyn Consumer>>>);

impl LetterSubscription {
    /// Acknowledges handled letters. If that fails, the broker only keeps them longer.
    async fn acknowledge(
        &self,
        client: &Client,
        place: &TopicPartition,
        handled: impl Iterator<Item = Position>,
    ) {
        let mut receipts = Vec::new();
        {
            let mut consumer = self.0.lock().await;
            if consumer.is_none() {
                let opened = client.inner.transport.consumer(place, DEAD_LETTER_SUBSCRIPTION).await;
                match opened {
                    Ok(opened) => *consumer = Some(opened),
                    Err(error) => {
                        tracing::debug!(%error, "handled dead letters are not acknowledged")
                    }
                }
            }
            let Some(consumer) = consumer.as_mut() else { return };
            // A letter in a batch cannot be acknowledged on its own: the broker keeps its batch.
            for position in handled.filter(|position| position.batch_index.is_none()) {
                receipts.push(consumer.ack(position.entry_id()));
            }
        }
        for receipt in receipts {
            if let Err(error) = receipt.await {
                tracing::debug!(%error, "a handled dead letter is not acknowledged");
            }
        }
    }
}
