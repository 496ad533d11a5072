//! Registers, followed from the first submit with a key on: one follower per register, shared by
//! all submits. The content of a register is under a lock that is never held across an await.

use super::keyed::Turns;
use super::logs::{Logs, READ_BACK_MAX};
use super::partition;
use super::publishers::{PublishFailure, Publishers};
use super::service::BackgroundTasks;
use crate::chance::system_random;
use crate::clock::Clock;
use crate::supervise::{Landmark, TopicReadEvent, WholeFollower, no_answer};
use crate::transport::{Message, PublishError, TopicPartition, TransportError, TransportErrorKind};
use longhaul_core::protocol::key::OwnerId;
use longhaul_core::protocol::register::{
    Digest, Documents, KeyName, Keys, QueueTask, Register, RegisterEntry, RegisterKey,
    RegisterVerdict, Stamp,
};
use longhaul_core::register;
use longhaul_core::task::Position;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::timeout;

/// The registers that a client follows.
#[derive(Debug)]
pub(super) struct Registers {
    logs: Logs,
    followed: Mutex<HashMap<String, FollowedRegister>>,
    tasks: BackgroundTasks,
    writer: OwnerId,
    serial: AtomicU64,
    /// The turns of submits with keys.
    pub(super) turns: Turns,
}

/// A followed register.
#[derive(Clone, Debug)]
pub(super) struct FollowedRegister {
    topic: TopicPartition,
    read: Arc<Mutex<RegisterView>>,
    seen: watch::Receiver<RegisterProgress>,
}

/// The content of the register.
#[derive(Debug, Default)]
struct RegisterView {
    fold: Register,
    /// Documents published by this client, and their verdict once they are read back.
    awaited: BTreeMap<Stamp, Option<RegisterVerdict>>,
}

/// How far the register was read.
#[derive(Clone, Debug)]
enum RegisterProgress {
    /// Not yet to its end.
    NotYet,
    /// To its end, and up to this position.
    To(Option<Position>),
    /// The register cannot be read, and the service has ended.
    Failed(TransportError),
}

impl Registers {
    pub(super) fn new(logs: Logs) -> Self {
        Self {
            logs,
            followed: Mutex::default(),
            tasks: BackgroundTasks::default(),
            writer: OwnerId(system_random()),
            serial: AtomicU64::new(1),
            turns: Turns::default(),
        }
    }

    /// The register of this name, read to its end.
    pub(super) async fn read(&self, topic: &str) -> Result<FollowedRegister, TransportError> {
        let mut followed = self.follow(topic);
        let seen = followed.seen.wait_for(|seen| !matches!(seen, RegisterProgress::NotYet)).await;
        match seen.as_deref() {
            Ok(RegisterProgress::To(_)) => {}
            Ok(RegisterProgress::Failed(error)) => return Err(error.clone()),
            Ok(RegisterProgress::NotYet) | Err(_) => return Err(no_answer(topic)),
        }
        drop(seen);
        Ok(followed)
    }

    fn follow(&self, topic: &str) -> FollowedRegister {
        let mut all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        // The service ends when the first read fails; then this starts another.
        if let Some(followed) =
            all.get(topic).filter(|followed| followed.seen.has_changed().is_ok())
        {
            return followed.clone();
        }
        let (sender, seen) = watch::channel(RegisterProgress::NotYet);
        let place = partition(topic.to_owned(), -1);
        let followed = FollowedRegister { topic: place.clone(), read: Arc::default(), seen };
        let reader = RegisterReader {
            logs: self.logs.clone(),
            place,
            read: Arc::clone(&followed.read),
            seen: sender,
            landmark: Landmark::default(),
        };
        self.tasks.spawn(reader.run());
        all.insert(topic.to_owned(), followed.clone());
        followed
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
        let awaited = followed.awaited(entry);
        let stored = followed.put(publishers, entry).await?;
        let mut seen = followed.seen.clone();
        let read =
            seen.wait_for(|seen| matches!(seen, RegisterProgress::To(to) if *to >= Some(stored)));
        match timeout(READ_BACK_MAX, read).await {
            Ok(Ok(_)) => Ok(awaited.and_then(|awaited| awaited.verdict())),
            Ok(Err(_)) | Err(_) => {
                let unread = format!("{}: it was not read back", followed.topic);
                Err(PublishFailure::Sent(PublishError::Unknown(unread)))
            }
        }
    }
}

/// A document of this client that awaits its read-back. Its verdict is kept until this is dropped.
struct AwaitedDocument {
    read: Arc<Mutex<RegisterView>>,
    stamp: Stamp,
}

impl AwaitedDocument {
    fn verdict(&self) -> Option<RegisterVerdict> {
        lock(&self.read).awaited.get(&self.stamp).copied().flatten()
    }
}

impl Drop for AwaitedDocument {
    fn drop(&mut self) {
        lock(&self.read).awaited.remove(&self.stamp);
    }
}

impl FollowedRegister {
    /// Looks at the register's keys.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Keys) -> T) -> T {
        look(lock(&self.read).fold.keys())
    }

    /// Looks at the whole register.
    pub(super) fn with_register<T>(&self, look: impl FnOnce(&Register) -> T) -> T {
        look(&lock(&self.read).fold)
    }

    /// The stamp of the register's first entry, which identifies the register.
    pub(super) fn start_stamp(&self) -> Option<Stamp> {
        lock(&self.read).fold.start()
    }

    /// Looks at the register's documents.
    pub(super) fn with_documents<T>(&self, look: impl FnOnce(&Documents) -> T) -> T {
        look(lock(&self.read).fold.documents())
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
        lock(&self.read).awaited.insert(key.stamp, None);
        Some(AwaitedDocument { read: Arc::clone(&self.read), stamp: key.stamp })
    }
}

fn lock(read: &Mutex<RegisterView>) -> MutexGuard<'_, RegisterView> {
    read.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The service of one register.
struct RegisterReader {
    logs: Logs,
    place: TopicPartition,
    read: Arc<Mutex<RegisterView>>,
    seen: watch::Sender<RegisterProgress>,
    landmark: Landmark,
}

impl RegisterReader {
    /// The first read is tried for a limited time; after it succeeds, the register is followed
    /// until the client is gone.
    async fn run(self) {
        let mut follower = self.logs.whole(&self.place);
        if let Err(error) = follower.open_persistently().await {
            self.seen.send_replace(RegisterProgress::Failed(error));
            return;
        }
        follower = follower.only_where(Some(self.landmark.clone()));
        loop {
            self.follow(WholeFollower::new(follower)).await;
            // The topic was replaced by another register.
            lock(&self.read).fold = Register::default();
            self.landmark.set(None);
            self.seen.send_replace(RegisterProgress::NotYet);
            follower = self.logs.whole(&self.place).only_where(Some(self.landmark.clone()));
        }
    }

    /// Reads until the topic is replaced by another one.
    async fn follow(&self, mut follower: WholeFollower) {
        let mut to_end = false;
        loop {
            match follower.next().await {
                Ok(TopicReadEvent::Messages(messages)) => self.take(&messages),
                Ok(TopicReadEvent::ToEnd) => {
                    lock(&self.read).fold.read_to_end(Clock::System.wall_ms());
                    to_end = true;
                }
                Err(error) if error.kind == TransportErrorKind::NotFound && follower.has_read() => {
                    return;
                }
                Err(_) => {}
            }
            if to_end {
                let position = lock(&self.read).fold.position();
                self.seen.send_replace(RegisterProgress::To(position));
            }
        }
    }

    fn take(&self, messages: &[Message]) {
        let mut read = lock(&self.read);
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
