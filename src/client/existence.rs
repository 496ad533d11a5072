//! Whether a queue exists, and whether a task can: by the partitions of its topic, and by the last
//! id that was given there.
//!
//! Ids are given in order, so one behind the last was never given. What is known is remembered, own
//! submissions included: a wait for the own task asks nobody. Where the broker does not tell, any
//! id may be one. An error that may pass is no answer, and the next wait asks again.
//!
//! That a queue is there is remembered for half a minute: somebody else may have deleted it, and
//! whoever went on to read it would make it anew.

use crate::clock::runtime_now;
use crate::transport::{
    Follow, Start, TopicPartition, Transport, TransportError, TransportErrorKind,
};
use longhaul_core::task::{EntryId, Position, TaskId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// For so long it is not asked again whether a queue is there.
const QUEUE_KNOWN_FOR: Duration = Duration::from_secs(30);

/// What a client knows of the ids of task topics.
#[derive(Debug)]
pub(super) struct ExistenceCache {
    transport: Arc<dyn Transport>,
    known: Mutex<HashMap<TopicPartition, PartitionIds>>,
    /// Task topics that exist, and when that was last known.
    queues: Mutex<HashMap<String, Instant>>,
    /// Held while a broker is asked: many waits at once ask once.
    asking: tokio::sync::Mutex<()>,
}

/// What is known of one partition.
#[derive(Clone, Copy, Debug, Default)]
struct PartitionIds {
    told: Option<AssignedIds>,
    /// How often nobody has answered.
    failures: u64,
}

/// What was told of one partition.
#[derive(Clone, Copy, Debug)]
enum AssignedIds {
    /// Ids were given up to this one at least.
    UpTo(EntryId),
    /// The broker does not tell, or the topic is empty, which it may also be after it had tasks.
    Nothing,
}

impl ExistenceCache {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        let (known, queues) = (Mutex::default(), Mutex::default());
        Self { transport, known, queues, asking: tokio::sync::Mutex::new(()) }
    }

    /// Whether there is such a task topic, as far as the broker tells.
    pub(super) async fn has_queue(&self, topic: &str) -> Result<bool, TransportError> {
        let now = runtime_now();
        if let Some(known) = self.queues().get_mut(topic) {
            if now - *known < QUEUE_KNOWN_FOR {
                return Ok(true);
            }
            // Whoever comes while it is asked again goes by what was known before, and does not ask
            // as well.
            *known = now;
        }
        match self.transport.exists(topic).await {
            Ok(true) => self.note_queue(topic),
            Ok(false) => {
                self.forget_queue(topic);
                return Ok(false);
            }
            // Who may watch need not be allowed to read tasks.
            Err(error) if error.kind == TransportErrorKind::Unauthorized => {}
            Err(error) => {
                // The next one asks.
                self.queues().remove(topic);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// There is this task topic, or it is about to be made.
    pub(super) fn note_queue(&self, topic: &str) {
        let (mut queues, now) = (self.queues(), runtime_now());
        match queues.get_mut(topic) {
            Some(known) => *known = now,
            None => drop(queues.insert(topic.to_owned(), now)),
        }
    }

    /// There may be no such task topic any more.
    pub(super) fn forget_queue(&self, topic: &str) {
        self.queues().remove(topic);
        self.known().retain(|place, _| place.topic != topic);
    }

    /// This id was given.
    pub(super) fn note(&self, topic: &TopicPartition, position: Position) {
        self.note_queue(&topic.topic);
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

    /// Why there can be no such task; `None` if there may be.
    pub(super) async fn objection(&self, topic: &str, id: TaskId) -> Option<String> {
        let place = TopicPartition { topic: topic.to_owned(), partition: id.partition };
        if let Some(verdict) = self.judge(&place, id) {
            return verdict;
        }
        let failures = self.failures(&place);
        let _asking = self.asking.lock().await;
        // Somebody else may have asked meanwhile. Where nobody answers one try is enough for all
        // who wait for it.
        if let Some(verdict) = self.judge(&place, id) {
            return verdict;
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
            // Who may watch need not be allowed to read tasks.
            Ok(LastIdLookup::Nothing) | Err(_) => {
                self.known().entry(place).or_default().told.get_or_insert(AssignedIds::Nothing);
                None
            }
        }
    }

    /// How often nobody has answered.
    fn failures(&self, place: &TopicPartition) -> u64 {
        self.known().get(place).map_or(0, |known| known.failures)
    }

    /// What is known without asking; the outer `None` if the broker has to be asked.
    fn judge(&self, place: &TopicPartition, id: TaskId) -> Option<Option<String>> {
        match self.known().get(place)?.told? {
            AssignedIds::Nothing => Some(None),
            AssignedIds::UpTo(last) => (id.entry_id() <= last).then_some(None),
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

    fn queues(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TopicPartition, PartitionIds>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the broker tells.
enum LastIdLookup {
    NoSuchPartition(String),
    Last(Position),
    Nothing,
}
