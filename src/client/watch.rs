//! Watches a metadata topic: every entry of every task, as it comes.
//!
//! A watch owns its followers and has no background task: it reads when it is polled, so a slow
//! watcher slows down only itself. After a broker outage it continues behind the last event shown.

mod place;

pub use place::{WatchPlace, WatchPlaceError};

use super::logs::Logs;
use super::task_ref::TaskRef;
use super::{Client, Queue, ReadError};
use crate::clock::Clock;
use crate::supervise::{KeptFollower, count, recount};
use crate::topics::TopicNames;
use crate::transport::{Message, TransportError, TransportErrorKind};
use futures::stream::{self, BoxStream, SelectAll, Stream, StreamExt};
use longhaul_core::task::{Position, TaskId, TaskMetadata, epoch_of};
use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all events are of the large one")]
#[non_exhaustive]
pub enum WatchEvent {
    /// A task has a new entry.
    Updated {
        /// The task.
        id: TaskId,
        /// The entry.
        metadata: TaskMetadata,
        /// The epoch of the entry. An entry of a lower epoch than one seen before comes late, from
        /// a worker that was replaced. `None` for entries of other implementations.
        epoch: Option<u32>,
    },
    /// A task's entry was removed, after its retention.
    Evicted {
        /// The task.
        id: TaskId,
    },
    /// All entries that were on the topic when the watch began have been shown; later events are
    /// new. Comes once. A watch from the latest entry begins with it.
    CaughtUp,
    /// A message that is not a valid entry.
    Undecodable {
        /// Its key, which should be a task id.
        key: Option<String>,
        /// Its position in its partition.
        position: Position,
        /// What is wrong with it.
        cause: String,
    },
}

/// Where a watch starts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchFrom {
    /// With the last entry of every task that is not evicted yet. Earlier entries of a task may be
    /// shown, too.
    Earliest,
    /// With the next entry.
    Latest,
    /// Behind the [place](Watch::place) that another watch had reached. A partition that the place
    /// does not name is shown from its start. Entries that compaction has removed since are not
    /// shown; the last entry of each task always is.
    After(WatchPlace),
}

impl WatchEvent {
    /// Reads an entry of the metadata topic.
    pub(super) fn read(message: &Message) -> Self {
        let Message { position, key, payload, .. } = message;
        let undecodable =
            |cause: String| Self::Undecodable { key: key.clone(), position: *position, cause };
        let id = match key.as_deref().map(str::parse) {
            Some(Ok(id)) => id,
            Some(Err(error)) => return undecodable(format!("{error}")),
            None => return undecodable("it has no key".to_owned()),
        };
        // Clients that cannot set the null flag write an empty body instead.
        if message.null || payload.is_empty() {
            return Self::Evicted { id };
        }
        match serde_json::from_slice(payload) {
            Ok(metadata) => Self::Updated { id, metadata, epoch: epoch_of(&message.properties) },
            Err(error) => undecodable(error.to_string()),
        }
    }
}

/// A stream of [`WatchEvent`]s. It continues across broker outages, and ends after its first error.
///
/// ```no_run
/// use longhaul::{Client, WatchEvent};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("pulsar://localhost:6650").await?;
/// let mut watch = client.watch("tasks").await?;
/// while let Some(event) = watch.next().await {
///     if let WatchEvent::Updated { id, metadata, .. } = event? {
///         println!("{id} is {:?}", metadata.state);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Watch {
    source: WatchSource,
    /// One stream per partition, and one that looks for new partitions.
    steps: SelectAll<BoxStream<'static, WatchStep>>,
    /// The number of partitions followed.
    partitions: u32,
    /// How many of the initial partitions have not yet shown all their existing entries.
    behind: usize,
    /// The key of the wanted tasks; `None` for all tasks.
    wanted: Option<WatchedKey>,
    place: WatchPlace,
    ended: bool,
}

/// The tasks whose submitters gave them one key.
#[derive(Debug)]
struct WatchedKey {
    key: String,
    /// The tasks shown so far: a tombstone carries only the task id, not the key.
    tasks: HashSet<TaskId>,
}

impl WatchedKey {
    /// Whether the event is about one of these tasks.
    fn is_about(&mut self, event: &WatchEvent) -> bool {
        match event {
            WatchEvent::Updated { id, metadata, .. } => {
                let fits = metadata.task_key.as_ref() == Some(&self.key);
                if fits {
                    self.tasks.insert(*id);
                }
                fits || self.tasks.contains(id)
            }
            WatchEvent::Evicted { id } => self.tasks.remove(id),
            WatchEvent::CaughtUp => true,
            WatchEvent::Undecodable { .. } => false,
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("topic", &self.source.topic).finish_non_exhaustive()
    }
}

#[expect(clippy::large_enum_variant, reason = "nearly all steps are of the large one")]
enum WatchStep {
    /// An event, its partition, and the position of its entry.
    Event(WatchEvent, i32, Position),
    /// A partition has shown all its existing entries.
    CaughtUp,
    Failed(TransportError),
    Partitions(u32),
}

impl Client {
    /// Watches the tasks of a topic, from the last entry of every task that is not evicted yet. The
    /// watch may begin before the queue exists: [`Queue::exists`] tells.
    ///
    /// # Errors
    /// When the metadata topic cannot be followed.
    pub async fn watch(&self, topic: &str) -> Result<Watch, ReadError> {
        self.queue(topic).watch_from(WatchFrom::Earliest).await
    }
}

impl Queue {
    /// Watches the tasks of the queue. It shows everything that is published after this returns.
    ///
    /// # Errors
    /// As [`Client::watch`].
    pub async fn watch_from(&self, from: WatchFrom) -> Result<Watch, ReadError> {
        let names = self.names()?;
        let source = WatchSource { logs: self.client.logs(), topic: names.metadata };
        let mut steps = SelectAll::new();
        let partitions = source.partitions(names.task).await?;
        let count = i32::try_from(partitions.unwrap_or_default()).unwrap_or(i32::MAX);
        let behind = usize::try_from(count.max(1)).unwrap_or(1);
        let (latest, mut place) = match from {
            WatchFrom::Earliest => (false, WatchPlace::default()),
            WatchFrom::Latest => (true, WatchPlace::default()),
            WatchFrom::After(place) => (false, place),
        };
        for partition in if count == 0 { -1..0 } else { 0..count } {
            let behind = place.of(partition);
            let opened = source.partition(partition).open(latest, behind).await?;
            // Entries older than the watch count as seen.
            if let Some(last) = opened.last {
                place.note(partition, last);
            }
            steps.push(opened.steps());
        }
        if count > 0 {
            steps.push(source.growth());
        }
        let partitions = partitions.unwrap_or_default();
        Ok(Watch { source, steps, partitions, behind, wanted: None, place, ended: false })
    }

    /// Finds the task that its submitter gave this key, if a worker has claimed it and its entry is
    /// not evicted yet. If several tasks match, returns the one claimed last. Reads the metadata
    /// topic once from the start, and keeps nothing of it.
    ///
    /// # Errors
    /// As [`Client::watch`].
    pub async fn find(&self, key: &str) -> Result<Option<TaskRef>, ReadError> {
        let TopicNames { task: task_topic, .. } = self.existing().await?;
        let mut watch = self.watch_from(WatchFrom::Earliest).await?.with_key(key);
        let mut shown = HashMap::new();
        while let Some(event) = watch.next().await {
            match event? {
                WatchEvent::Updated { id, metadata, .. } => {
                    shown.insert(id, metadata.created);
                }
                WatchEvent::Evicted { id } => drop(shown.remove(&id)),
                WatchEvent::CaughtUp => break,
                WatchEvent::Undecodable { .. } => {}
            }
        }
        let newest = shown.into_iter().max_by_key(|(id, created)| (*created, *id));
        Ok(newest.map(|(id, _)| TaskRef { topic: task_topic, id }))
    }
}

impl Watch {
    /// Shows only tasks with this key: see [`Submission::key`](crate::Submission::key). The watch
    /// still reads all entries.
    ///
    /// ```no_run
    /// use longhaul::{Client, WatchEvent};
    ///
    /// # async fn until_the_end(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut watch = client.watch("tasks").await?.with_key("order-4711");
    /// while let Some(event) = watch.next().await {
    ///     if let WatchEvent::Updated { metadata, .. } = event?
    ///         && metadata.is_terminal()
    ///     {
    ///         println!("{:?}", metadata.result);
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The entry that removes a task carries only its id. A watch that begins behind the last entry
    /// of a task, [`Latest`](WatchFrom::Latest) or [`After`](WatchFrom::After) it, does not show
    /// that removal.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.wanted = Some(WatchedKey { key: key.into(), tasks: HashSet::new() });
        self
    }

    /// The next event; `None` after an error. Cancel safe: a dropped call loses no event.
    pub async fn next(&mut self) -> Option<Result<WatchEvent, ReadError>> {
        StreamExt::next(self).await
    }
}

impl Stream for Watch {
    type Item = Result<WatchEvent, ReadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while !this.ended {
            match ready!(this.steps.poll_next_unpin(context)) {
                Some(WatchStep::Event(event, partition, position)) => {
                    this.place.note(partition, position);
                    if this.wanted.as_mut().is_none_or(|wanted| wanted.is_about(&event)) {
                        return Poll::Ready(Some(Ok(event)));
                    }
                }
                Some(WatchStep::CaughtUp) => {
                    this.behind = this.behind.saturating_sub(1);
                    if this.behind == 0 {
                        return Poll::Ready(Some(Ok(WatchEvent::CaughtUp)));
                    }
                }
                Some(WatchStep::Failed(error)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(ReadError::Transport(error))));
                }
                Some(WatchStep::Partitions(count)) => {
                    for partition in this.partitions..count {
                        let partition = i32::try_from(partition).unwrap_or(i32::MAX);
                        this.steps.push(this.source.partition(partition).steps());
                    }
                    this.partitions = this.partitions.max(count);
                }
                None => this.ended = true,
            }
        }
        Poll::Ready(None)
    }
}

/// The topic that is watched.
#[derive(Clone)]
struct WatchSource {
    logs: Logs,
    /// Full name of the metadata topic.
    topic: String,
}

impl WatchSource {
    /// The number of partitions. A metadata topic that was not set up is created partition by
    /// partition; then the task topic tells how many there will be.
    async fn partitions(&self, task_topic: String) -> Result<Option<u32>, TransportError> {
        let own = count(&self.logs.transport, &self.topic).await?;
        // A watcher may have no permission for the task topic.
        Ok(own.or(count(&self.logs.transport, &task_topic).await.unwrap_or_default()))
    }

    /// Looks for new partitions, for ever.
    fn growth(&self) -> BoxStream<'static, WatchStep> {
        let monitor = self.logs.monitor();
        let looks = stream::unfold((self.clone(), monitor), |(source, monitor)| async {
            loop {
                let transport = Arc::clone(&source.logs.transport);
                let topics = [source.topic.clone()];
                let [known] = recount(transport, Clock::System, topics, Some(&monitor)).await;
                if let Some(count) = known {
                    return Some((WatchStep::Partitions(count), (source, monitor)));
                }
            }
        });
        looks.boxed()
    }

    fn partition(&self, partition: i32) -> PartitionWatch {
        let topic = super::partition(self.topic.clone(), partition);
        let follower = self.logs.whole(&topic);
        PartitionWatch { partition, follower, last: None, until: None }
    }
}

/// One watched partition.
struct PartitionWatch {
    partition: i32,
    follower: KeptFollower,
    /// Everything up to this position was shown, or is older than the watch.
    last: Option<Position>,
    /// The end of the entries that existed when the watch began (`Some(None)`: there were none);
    /// `None` once they have been shown.
    until: Option<Option<Position>>,
}

impl PartitionWatch {
    /// Opens the follower for the first time.
    async fn open(
        mut self,
        latest: bool,
        behind: Option<Position>,
    ) -> Result<Self, TransportError> {
        if behind.is_some() {
            self.last = behind;
            self.follower.go_on_behind(behind);
        }
        let end = self.follower.open_persistently().await?;
        self.until = Some(end);
        if latest {
            self.last = end;
            self.follower.go_on_behind(end);
        }
        Ok(self)
    }

    /// The stream continues after an error. Its reader stops at the first one.
    fn steps(self) -> BoxStream<'static, WatchStep> {
        let steps = stream::unfold(self, |mut partition| async {
            let step = partition.step().await;
            Some((step, partition))
        });
        steps.boxed()
    }

    /// The next event, or the error that ends the watch.
    async fn step(&mut self) -> WatchStep {
        loop {
            if self.until.is_some_and(|end| self.last >= end) {
                self.until = None;
                return WatchStep::CaughtUp;
            }
            match self.follower.next_up_to(self.until.as_mut()).await {
                Ok(None) => {}
                Ok(Some(message)) if self.last.is_some_and(|last| message.position <= last) => {}
                Ok(Some(message)) => {
                    self.last = Some(message.position);
                    // The id of a replicated entry means another task in this cluster.
                    if message.replicated_from.is_none() {
                        let event = WatchEvent::read(&message);
                        return WatchStep::Event(event, self.partition, message.position);
                    }
                }
                Err(error) if error.kind == TransportErrorKind::Unreachable => {}
                Err(error) => return WatchStep::Failed(error),
            }
        }
    }
}
