//! Whether a queue or a task can exist: by the partitions of the topic, and by the last id assigned
//! there.
//!
//! Ids are assigned in order, so an id beyond the last one was never assigned. Answers are cached,
//! own submissions included: a wait for a task submitted here sends no request. If the broker does
//! not report the last id, any id may exist. Transient errors are not cached; the next wait asks
//! again.
//!
//! The existence of a queue is cached for 30 s, or until a session of the client finds its topic
//! deleted. Another client may delete the queue, and reading it later would create it anew.

use crate::clock::runtime_now;
use crate::supervise::Connections;
use crate::transport::{
    Follow, Start, TopicPartition, Transport, TransportError, TransportErrorKind,
};
use longhaul_core::task::{EntryId, Position, TaskId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the existence of a queue is cached.
const QUEUE_KNOWN_FOR: Duration = Duration::from_secs(30);

/// The client's cache of assigned ids and existing task topics.
#[derive(Debug)]
pub(super) struct ExistenceCache {
    transport: Arc<dyn Transport>,
    connections: Arc<Connections>,
    known: Mutex<HashMap<TopicPartition, PartitionIds>>,
    /// Task topics that exist, and when that was last confirmed.
    queues: Mutex<HashMap<String, QueueSighting>>,
    /// Held during a request: concurrent waits send one request.
    asking: tokio::sync::Mutex<()>,
}

/// When the existence of a topic was confirmed.
#[derive(Clone, Copy, Debug)]
struct QueueSighting {
    at: Instant,
    /// The deletions that the client's sessions had found by then.
    deletions: u64,
}

/// The cached state of one partition.
#[derive(Clone, Copy, Debug, Default)]
struct PartitionIds {
    told: Option<AssignedIds>,
    /// The number of requests without an answer.
    failures: u64,
}

/// The assigned ids of one partition.
#[derive(Clone, Copy, Debug)]
enum AssignedIds {
    /// Ids up to at least this one were assigned.
    UpTo(EntryId),
    /// The broker does not report the last id, or the topic is empty; it may have had tasks before.
    Nothing,
}

impl ExistenceCache {
    pub(super) fn new(transport: Arc<dyn Transport>, connections: Arc<Connections>) -> Self {
        let (known, queues) = (Mutex::default(), Mutex::default());
        Self { transport, connections, known, queues, asking: tokio::sync::Mutex::new(()) }
    }

    /// Whether the task topic exists, as far as the broker reports it.
    pub(super) async fn has_queue(&self, topic: &str) -> Result<bool, TransportError> {
        let now = self.sighting_now();
        if let Some(known) = self.queues().get_mut(topic)
            && known.deletions == now.deletions
        {
            if now.at - known.at < QUEUE_KNOWN_FOR {
                return Ok(true);
            }
            // Concurrent callers use the cached answer while this call asks again.
            *known = now;
        }
        self.ask_for_queue(topic).await
    }

    /// As `has_queue`, by the broker's current answer.
    pub(super) async fn ask_for_queue(&self, topic: &str) -> Result<bool, TransportError> {
        // A deletion that is found during the request is not known by its answer.
        let asked = self.sighting_now();
        match self.transport.exists(topic).await {
            Ok(true) => self.record(topic, asked),
            Ok(false) => {
                self.forget_queue(topic);
                return Ok(false);
            }
            // A watcher may have no permission to read tasks.
            Err(error) if error.kind == TransportErrorKind::Unauthorized => {}
            Err(error) => {
                // The next caller asks again.
                self.queues().remove(topic);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Notes that the task topic exists, or is about to be created.
    pub(super) fn record_queue(&self, topic: &str) {
        self.record(topic, self.sighting_now());
    }

    fn record(&self, topic: &str, seen: QueueSighting) {
        let mut queues = self.queues();
        match queues.get_mut(topic) {
            Some(known) => *known = seen,
            None => drop(queues.insert(topic.to_owned(), seen)),
        }
    }

    /// Drops the cached state of a task topic that may be gone.
    pub(super) fn forget_queue(&self, topic: &str) {
        self.queues().remove(topic);
        self.known().retain(|place, _| place.topic != topic);
    }

    /// Notes that this id was assigned.
    pub(super) fn note(&self, topic: &TopicPartition, position: Position) {
        self.record_queue(&topic.topic);
        let entry = position.entry_id();
        let mut known = self.known();
        let Some(PartitionIds { told, .. }) = known.get_mut(topic) else {
            let told = Some(AssignedIds::UpTo(entry));
            known.insert(topic.clone(), PartitionIds { told, failures: 0 });
            return;
        };
        match told {
            Some(AssignedIds::UpTo(last)) => *last = (*last).max(entry),
            Some(AssignedIds::Nothing) | None => *told = Some(AssignedIds::UpTo(entry)),
        }
    }

    /// Why the task cannot exist; `None` if it may.
    pub(super) async fn objection(&self, topic: &str, id: TaskId) -> Option<String> {
        let place = TopicPartition { topic: topic.to_owned(), partition: id.partition };
        if self.needs_no_request(&place, id) {
            return None;
        }
        let failures = self.failures(&place);
        let _asking = self.asking.lock().await;
        // Another caller may have asked meanwhile. If its request had no answer, that one try
        // counts for all concurrent waits.
        if self.needs_no_request(&place, id) {
            return None;
        }
        if self.failures(&place) != failures {
            return None;
        }
        match self.ask(&place).await {
            Ok(LastIdLookup::NoSuchPartition(text)) => Some(text),
            Ok(LastIdLookup::Last(last)) => {
                self.note(&place, last);
                self.beyond(&place, id)
            }
            Err(error) if !error.kind.is_permanent() => {
                self.known().entry(place).or_default().failures += 1;
                None
            }
            // A watcher may have no permission to read tasks.
            Ok(LastIdLookup::Nothing) | Err(_) => {
                self.known().entry(place).or_default().told.get_or_insert(AssignedIds::Nothing);
                None
            }
        }
    }

    /// The number of requests without an answer.
    fn failures(&self, place: &TopicPartition) -> u64 {
        self.known().get(place).map_or(0, |known| known.failures)
    }

    /// Whether the cache tells that the task may exist; if not, the broker must be asked.
    fn needs_no_request(&self, place: &TopicPartition, id: TaskId) -> bool {
        match self.known().get(place).and_then(|known| known.told) {
            Some(AssignedIds::Nothing) => true,
            Some(AssignedIds::UpTo(last)) => id.entry_id() <= last,
            None => false,
        }
    }

    fn beyond(&self, place: &TopicPartition, id: TaskId) -> Option<String> {
        let AssignedIds::UpTo(last) = self.known().get(place)?.told? else { return None };
        let EntryId { ledger, entry } = last;
        (id.entry_id() > last).then(|| format!("the last id of {place} is {ledger}:{entry}"))
    }

    async fn ask(&self, place: &TopicPartition) -> Result<LastIdLookup, TransportError> {
        let partitions = self.transport.partitions(&place.topic).await?;
        let exists = match partitions {
            None => place.partition == -1,
            Some(count) => u32::try_from(place.partition).is_ok_and(|index| index < count),
        };
        if !exists {
            let has = match partitions {
                None => "no partitions, so that its ids end with -1".to_owned(),
                Some(count) => format!("{count} partitions, from 0 on"),
            };
            return Ok(LastIdLookup::NoSuchPartition(format!("{} has {has}", place.topic)));
        }
        let follow = Follow { start: Start::Latest, compacted: false };
        let mut follower = self.transport.follower(place, follow).await?;
        let last = follower.last_position().await?;
        Ok(last.map_or(LastIdLookup::Nothing, LastIdLookup::Last))
    }

    fn sighting_now(&self) -> QueueSighting {
        QueueSighting { at: runtime_now(), deletions: self.connections.deletions() }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<String, QueueSighting>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TopicPartition, PartitionIds>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The broker's answer.
enum LastIdLookup {
    NoSuchPartition(String),
    Last(Position),
    Nothing,
}
