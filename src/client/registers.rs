//! Registers, followed from the first submit with a key on: one follower per register, shared by
//! all submits. The content of a register is under a lock that is never held across an await.

use super::folded::{FoldProgress, Folded, FoldedTopics, Folding};
use super::keyed::Turns;
use super::logs::{Logs, READ_BACK_MAX};
use super::partition;
use super::publishers::{PublishFailure, Publishers};
use crate::chance::system_random;
use crate::clock::Clock;
use crate::supervise::{Landmark, TopicReadEvent, WholeFollower};
use crate::transport::{
    Message, Outgoing, PublishError, TopicPartition, TransportError, TransportErrorKind,
};
use longhaul_core::protocol::key::OwnerId;
use longhaul_core::protocol::register::{
    Digest, Documents, KeyName, Keys, QueueTask, Register, RegisterEntry, RegisterKey,
    RegisterVerdict, Stamp,
};
use longhaul_core::register;
use longhaul_core::task::Position;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::timeout;

/// The registers that a client follows.
#[derive(Debug)]
pub(super) struct Registers {
    logs: Logs,
    followed: FoldedTopics<RegisterView, Option<Position>>,
    writer: OwnerId,
    serial: AtomicU64,
    /// The turns of submits with keys.
    pub(super) turns: Turns,
}

/// A followed register.
#[derive(Clone, Debug)]
pub(super) struct FollowedRegister {
    topic: TopicPartition,
    folded: Folded<RegisterView, Option<Position>>,
}

/// The content of the register.
#[derive(Debug, Default)]
struct RegisterView {
    fold: Register,
    /// Documents published by this client, and their verdict once they are read back.
    awaited: BTreeMap<Stamp, Option<RegisterVerdict>>,
}

impl Registers {
    pub(super) fn new(logs: Logs) -> Self {
        Self {
            logs,
            followed: FoldedTopics::default(),
            writer: OwnerId(system_random()),
            serial: AtomicU64::new(1),
            turns: Turns::default(),
        }
    }

    /// The register of this name, read to its end.
    pub(super) async fn read(&self, topic: &str) -> Result<FollowedRegister, TransportError> {
        let place = partition(topic.to_owned(), -1);
        let service = |folding| {
            let (logs, place) = (self.logs.clone(), place.clone());
            RegisterReader { logs, place, folding, landmark: Landmark::default() }.run()
        };
        let folded = self.followed.of(topic, service);
        folded.read(topic).await?;
        Ok(FollowedRegister { topic: place, folded })
    }

    /// Publishes a task's bind to a key, and waits until it is read back; the register then shows
    /// the verdict.
    pub(super) async fn bind(
        &self,
        publishers: &Publishers,
        followed: &FollowedRegister,
        (name, task, digest, overwrites): (&KeyName, QueueTask, Digest, bool),
    ) -> Result<(), PublishFailure> {
        let stamp = self.next_stamp();
        let entry = followed.look(|keys| keys.bind_of(name, task, Some(digest), stamp));
        self.publish(publishers, followed, &entry.overwriting(overwrites)).await.map(drop)
    }

    /// A unique stamp.
    pub(super) fn next_stamp(&self) -> Stamp {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        Stamp { writer: self.writer, serial }
    }

    /// Publishes an entry, and waits until it is read back. Returns the verdict on a document, if
    /// known.
    pub(super) async fn publish(
        &self,
        publishers: &Publishers,
        followed: &FollowedRegister,
        entry: &RegisterEntry,
    ) -> Result<Option<RegisterVerdict>, PublishFailure> {
        self.publish_as(publishers, followed, entry, register::message(entry)).await
    }

    /// As `publish`, for a message of the entry that has more properties.
    pub(super) async fn publish_as(
        &self,
        publishers: &Publishers,
        followed: &FollowedRegister,
        entry: &RegisterEntry,
        message: Outgoing,
    ) -> Result<Option<RegisterVerdict>, PublishFailure> {
        let awaited = followed.awaited(entry);
        let stored = publishers.publish(&followed.topic, message).await?;
        let read = followed.folded.has_read(|to| *to >= Some(stored));
        if timeout(READ_BACK_MAX, read).await.unwrap_or_default() {
            return Ok(awaited.and_then(|awaited| awaited.verdict()));
        }
        let unread = format!("{}: it was not read back", followed.topic);
        Err(PublishFailure::Sent(PublishError::Unknown(unread)))
    }
}

/// A document of this client that awaits its read-back. Its verdict is kept until this is dropped.
struct AwaitedDocument {
    folded: Folded<RegisterView, Option<Position>>,
    stamp: Stamp,
}

impl AwaitedDocument {
    fn verdict(&self) -> Option<RegisterVerdict> {
        self.folded.lock().awaited.get(&self.stamp).copied().flatten()
    }
}

impl Drop for AwaitedDocument {
    fn drop(&mut self) {
        self.folded.lock().awaited.remove(&self.stamp);
    }
}

impl FollowedRegister {
    /// Looks at the register's keys.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Keys) -> T) -> T {
        look(self.folded.lock().fold.keys())
    }

    /// Looks at the whole register.
    pub(super) fn with_register<T>(&self, look: impl FnOnce(&Register) -> T) -> T {
        look(&self.folded.lock().fold)
    }

    /// The stamp of the register's first entry, which identifies the register.
    pub(super) fn start_stamp(&self) -> Option<Stamp> {
        self.folded.lock().fold.start()
    }

    /// Looks at the register's documents.
    pub(super) fn with_documents<T>(&self, look: impl FnOnce(&Documents) -> T) -> T {
        look(self.folded.lock().fold.documents())
    }

    /// Publishes an entry, and waits until it is stored.
    pub(super) async fn put(
        &self,
        publishers: &Publishers,
        entry: &RegisterEntry,
    ) -> Result<Position, PublishFailure> {
        publishers.publish(&self.topic, register::message(entry)).await
    }

    fn awaited(&self, entry: &RegisterEntry) -> Option<AwaitedDocument> {
        let RegisterKey::Document(key) = entry.key() else { return None };
        self.folded.lock().awaited.insert(key.stamp, None);
        Some(AwaitedDocument { folded: self.folded.clone(), stamp: key.stamp })
    }
}

/// The service of one register.
struct RegisterReader {
    logs: Logs,
    place: TopicPartition,
    folding: Folding<RegisterView, Option<Position>>,
    landmark: Landmark,
}

impl RegisterReader {
    /// The first read is tried for a limited time; after it succeeds, the register is followed
    /// until the client is gone, or the topic is.
    async fn run(self) {
        let mut follower = self.logs.whole(&self.place);
        if let Err(error) = follower.open_persistently().await {
            self.folding.tell(FoldProgress::Failed(error));
            return;
        }
        follower = follower.only_where(Some(self.landmark.clone()));
        loop {
            let error = self.follow(WholeFollower::new(follower)).await;
            // If the broker does not answer, the next caller starts another service.
            if !matches!(self.exists().await, Ok(true)) {
                self.folding.tell(FoldProgress::Failed(error));
                return;
            }
            // The topic was replaced by another register.
            self.folding.lock().fold = Register::default();
            self.landmark.set(None);
            self.folding.tell(FoldProgress::NotYet);
            follower = self.logs.whole(&self.place).only_where(Some(self.landmark.clone()));
        }
    }

    async fn exists(&self) -> Result<bool, TransportError> {
        self.logs.transport.exists(&self.place.topic).await
    }

    /// Reads until the topic is deleted, or replaced by another one. Returns the error.
    async fn follow(&self, mut follower: WholeFollower) -> TransportError {
        let mut to_end = false;
        loop {
            match follower.next().await {
                Ok(TopicReadEvent::Messages(messages)) => self.take(&messages),
                Ok(TopicReadEvent::ToEnd) => {
                    self.folding.lock().fold.read_to_end(Clock::System.wall_ms());
                    to_end = true;
                }
                Err(error) if error.kind == TransportErrorKind::NotFound => {
                    if follower.has_read() || matches!(self.exists().await, Ok(false)) {
                        return error;
                    }
                }
                Err(_) => {}
            }
            if to_end {
                let position = self.folding.lock().fold.position();
                self.folding.tell(FoldProgress::To(position));
            }
        }
    }

    fn take(&self, messages: &[Message]) {
        let mut read = self.folding.lock();
        for message in messages {
            match register::read(message) {
                Ok(entry) => {
                    if matches!(entry, RegisterEntry::Start(_)) {
                        self.landmark.set(Some(message));
                    }
                    let verdict =
                        read.fold.apply_at(&entry, message.position, message.publish_time_ms);
                    if let RegisterEntry::Document(document) = &entry
                        && let Some(awaited) = read.awaited.get_mut(&document.key.stamp)
                    {
                        *awaited = verdict;
                    }
                }
                Err(error) => {
                    tracing::debug!(position = ?message.position, %error, "not an entry of the register");
                }
            }
        }
    }
}
