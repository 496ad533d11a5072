//! A scripted broker for the client's tests: in-memory logs, and failures on request.

use crate::transport::{
    Batching, Consumer, Follow, Follower, Message, OnReceipt, Outgoing, PublishError, Publisher,
    Start, SubscriptionType, TopicPartition, TopicSchema, Transport, TransportError,
    TransportErrorKind,
};
use async_trait::async_trait;
use bytes::Bytes;
use longhaul_core::task::{
    Position, TaskId, TaskMetadata, TaskOutcome, TaskState, view_properties,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// The outcome of the next publish.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScriptedFate {
    /// Stored with a receipt, as without a script.
    Stored,
    /// Stored, but the receipt is lost.
    Unknown,
    Refused,
    /// The publisher has failed before and reports it.
    PublisherLost,
}

#[derive(Debug)]
pub(super) struct Fake {
    world: Mutex<FakeBroker>,
    /// Notifies of every change.
    bell: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct FakeBroker {
    pub(super) logs: HashMap<TopicPartition, Vec<Message>>,
    pub(super) partitions: HashMap<String, u32>,
    /// Topics that do not exist.
    pub(super) missing: HashSet<String>,
    /// Topics opened by publishers, followers and fetches.
    pub(super) opened: Vec<String>,
    pub(super) fates: VecDeque<ScriptedFate>,
    /// Errors of the next followers to be opened.
    pub(super) refusals: VecDeque<TransportErrorKind>,
    pub(super) publishers_opened: usize,
    /// Errors of the next publishers to be opened.
    pub(super) publisher_refusals: VecDeque<TransportErrorKind>,
    pub(super) followers_opened: usize,
    /// Start positions of the followers of metadata topics.
    pub(super) starts: Vec<Start>,
    /// Errors of the next followers of task topics.
    pub(super) looker_refusals: VecDeque<TransportErrorKind>,
    /// Followers of task topics, failed opens included.
    pub(super) lookers_opened: usize,
    /// Fetches, including those that found nothing.
    pub(super) fetched: usize,
    /// A last position to report although its message is gone.
    pub(super) last_before: Option<Position>,
    /// Followers opened before this many breaks are broken.
    breaks: usize,
}

pub(super) fn error(kind: TransportErrorKind) -> TransportError {
    TransportError { kind, address: "fake".to_owned(), cause: "scripted".to_owned() }
}

impl FakeBroker {
    /// Counts the opening of a follower of a task topic. Returns the scripted error, if any.
    fn refuse_looker(&mut self) -> Option<TransportErrorKind> {
        self.lookers_opened += 1;
        self.looker_refusals.pop_front()
    }
}

impl Fake {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { world: Mutex::default(), bell: watch::channel(()).0 })
    }

    pub(super) fn world(&self) -> MutexGuard<'_, FakeBroker> {
        self.world.lock().unwrap()
    }

    /// Appends a message and sets its position.
    pub(super) fn append(&self, topic: &TopicPartition, mut message: Message) -> Position {
        let position = {
            let mut world = self.world();
            let log = world.logs.entry(topic.clone()).or_default();
            message.position = position(log.len() as u64);
            log.push(message.clone());
            message.position
        };
        self.bell.send_replace(());
        position
    }

    /// Ends every follower that is open.
    pub(super) fn break_followers(&self) {
        self.world().breaks += 1;
        self.bell.send_replace(());
    }
}

fn position(entry: u64) -> Position {
    Position { ledger: 7, entry, batch_index: None }
}

fn message(key: Option<String>, payload: Bytes) -> Message {
    Message { key, payload, ..Message::at(position(0)) }
}

/// An entry of the metadata topic at this position.
pub(super) fn entry(at: u64, metadata: &TaskMetadata, epoch: Option<u32>) -> Message {
    let json = serde_json::to_vec(metadata).unwrap();
    let properties = epoch.map(|epoch| view_properties(epoch, "owner")).unwrap_or_default();
    let message = message(Some(metadata.message_id.clone()), json.into());
    Message { position: position(at), properties, ..message }
}

pub(super) fn tombstone(at: u64, id: TaskId) -> Message {
    let message = message(Some(id.to_string()), Bytes::new());
    Message { position: position(at), null: true, ..message }
}

pub(super) fn processing(id: TaskId, attempts: u32) -> TaskMetadata {
    TaskMetadata::new(id.to_string(), TaskState::Processing, attempts, (1, 2))
}

pub(super) fn completed(id: TaskId, attempts: u32) -> TaskMetadata {
    let result = Some(Bytes::from_static(b"\"done\""));
    TaskMetadata { state: TaskState::Completed, result, ..processing(id, attempts) }
}

pub(super) fn failed(id: TaskId, attempts: u32, outcome: Option<TaskOutcome>) -> TaskMetadata {
    let failure_reason = Some("no luck".to_owned());
    let state = TaskState::Failed;
    TaskMetadata { state, failure_reason, outcome, ..processing(id, attempts) }
}

/// The transport of a client under test.
#[derive(Clone, Debug)]
pub(super) struct FakeTransport(pub(super) Arc<Fake>);

struct FakePublisher(Arc<Fake>, TopicPartition);

struct FakeFollower {
    fake: Arc<Fake>,
    topic: TopicPartition,
    next: usize,
    bell: watch::Receiver<()>,
    breaks: usize,
}

#[async_trait]
impl Transport for FakeTransport {
    async fn partitions(&self, topic: &str) -> Result<Option<u32>, TransportError> {
        Ok(self.0.world().partitions.get(topic).copied())
    }

    async fn exists(&self, topic: &str) -> Result<bool, TransportError> {
        Ok(!self.0.world().missing.contains(topic))
    }

    async fn publisher(
        &self,
        topic: &TopicPartition,
        batching: Batching,
        _: TopicSchema,
    ) -> Result<Box<dyn Publisher>, TransportError> {
        assert_eq!(batching, Batching::Off);
        let mut world = self.0.world();
        if let Some(kind) = world.publisher_refusals.pop_front() {
            return Err(error(kind));
        }
        world.publishers_opened += 1;
        world.opened.push(topic.topic.clone());
        drop(world);
        Ok(Box::new(FakePublisher(Arc::clone(&self.0), topic.clone())))
    }

    async fn subscribe(
        &self,
        _: &TopicPartition,
        _: &str,
        _: SubscriptionType,
    ) -> Result<Box<dyn Consumer>, TransportError> {
        panic!("a client consumes nothing")
    }

    async fn follower(
        &self,
        topic: &TopicPartition,
        follow: Follow,
    ) -> Result<Box<dyn Follower>, TransportError> {
        self.0.world().opened.push(topic.topic.clone());
        // Followers of task topics are opened to ask for the last id.
        let looks = !topic.topic.ends_with("-metadata") && !topic.topic.ends_with("-register");
        let refusal = looks.then(|| self.0.world().refuse_looker()).flatten();
        if let Some(kind) = refusal {
            // The delay lets other callers wait for the same answer.
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            return Err(error(kind));
        }
        let mut world = self.0.world();
        if !looks {
            if let Some(kind) = world.refusals.pop_front() {
                return Err(error(kind));
            }
            world.followers_opened += 1;
            world.starts.push(follow.start);
        }
        let end = world.logs.get(topic).map_or(0, Vec::len);
        let log = world.logs.get(topic).map(Vec::as_slice).unwrap_or_default();
        let next = match follow.start {
            Start::Earliest => 0,
            Start::Latest => end,
            Start::After(last) => log.iter().filter(|message| message.position <= last).count(),
        };
        let (fake, topic, breaks) = (Arc::clone(&self.0), topic.clone(), world.breaks);
        let bell = fake.bell.subscribe();
        Ok(Box::new(FakeFollower { fake, topic, next, bell, breaks }))
    }

    async fn fetch(
        &self,
        topic: &TopicPartition,
        at: Position,
    ) -> Result<Option<Message>, TransportError> {
        let mut world = self.0.world();
        world.fetched += 1;
        world.opened.push(topic.topic.clone());
        if let Some(kind) = world.refusals.pop_front() {
            return Err(error(kind));
        }
        let log = world.logs.get(topic);
        Ok(log.and_then(|log| log.iter().find(|message| message.position == at)).cloned())
    }
}

#[async_trait]
impl Publisher for FakePublisher {
    async fn ended(&mut self) -> TransportError {
        std::future::pending().await
    }

    async fn ready(&mut self) -> Result<(), TransportError> {
        let mut world = self.0.world();
        if let Some(ScriptedFate::PublisherLost) = world.fates.front() {
            world.fates.pop_front();
            return Err(error(TransportErrorKind::Unreachable));
        }
        Ok(())
    }

    fn put(&mut self, outgoing: Outgoing, on_receipt: OnReceipt) -> bool {
        let fate = self.0.world().fates.pop_front();
        if let Some(ScriptedFate::Refused) = fate {
            on_receipt.tell(Err(PublishError::Refused("scripted".to_owned())));
            return true;
        }
        let Outgoing { key, properties, payload, null, .. } = outgoing;
        let stored = self.0.append(&self.1, Message { properties, null, ..message(key, payload) });
        let unknown = PublishError::Unknown("scripted".to_owned());
        let known = matches!(fate, None | Some(ScriptedFate::Stored));
        on_receipt.tell(if known { Ok(stored) } else { Err(unknown) });
        true
    }
}

#[async_trait]
impl Follower for FakeFollower {
    async fn next(&mut self) -> Result<Message, TransportError> {
        loop {
            self.bell.mark_unchanged();
            {
                let world = self.fake.world();
                if world.breaks > self.breaks {
                    return Err(error(TransportErrorKind::Unreachable));
                }
                let log = world.logs.get(&self.topic);
                if let Some(message) = log.and_then(|log| log.get(self.next)) {
                    self.next += 1;
                    return Ok(message.clone());
                }
            }
            self.bell.changed().await.unwrap();
        }
    }

    fn more(&mut self) -> Option<Message> {
        None
    }

    async fn last_position(&mut self) -> Result<Option<Position>, TransportError> {
        let world = self.fake.world();
        let last = world.logs.get(&self.topic).and_then(|log| log.last());
        Ok(world.last_before.or_else(|| last.map(|last| last.position)))
    }
}
