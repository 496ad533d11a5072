//! Reads whole topics, and follows the ledger until a condition holds.

use anyhow::{Context, Result, bail};
use longhaul::{EntryId, Position, TaskId};
use longhaul_core::ledger;
use longhaul_core::protocol::fold::TaskFold;
use longhaul_core::protocol::key::parse_owner;
use longhaul_session::PulsarTransport;
use longhaul_transport::{Follow, Follower, Message, Start, TopicPartition, Transport};
use proofs::checkers::{LedgerEntry, ViewEntry};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const WHOLE: Follow = Follow { start: Start::Earliest, compacted: false };
const COMPACTED: Follow = Follow { start: Start::Earliest, compacted: true };
/// The time limit for reading a topic, and the most restarts of the read when the broker goes away.
const READ_LIMIT: Duration = Duration::from_secs(120);
const READS_MAX: usize = 20;
/// The pause before a lost follower is replaced.
const AGAIN: Duration = Duration::from_millis(300);

/// Reads a topic from its first message to its last.
pub(super) async fn read_whole(
    transport: &PulsarTransport,
    topic: &TopicPartition,
) -> Result<Vec<Message>> {
    read(transport, topic, WHOLE).await
}

/// Reads the compacted view of a topic, and the messages behind it.
pub(super) async fn read_compacted(
    transport: &PulsarTransport,
    topic: &TopicPartition,
) -> Result<Vec<Message>> {
    read(transport, topic, COMPACTED).await
}

async fn read(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    follow: Follow,
) -> Result<Vec<Message>> {
    let mut cause = None;
    for _ in 0..READS_MAX {
        let mut far = Far::default();
        match timeout(READ_LIMIT, try_read(transport, topic, follow, &mut far)).await {
            Ok(Ok(messages)) => return Ok(messages),
            Ok(Err(error)) => cause = Some(error),
            Err(_) => bail!("{topic} was not read within {READ_LIMIT:?}: {far:?}"),
        }
        sleep(AGAIN).await;
    }
    Err(cause.context("nothing tried")?.context(topic.to_string()))
}

/// The last entry of a topic; `None` if it has none.
pub(super) async fn last_entry(
    transport: &PulsarTransport,
    topic: &TopicPartition,
) -> Result<Option<EntryId>> {
    let mut follower = transport.follower(topic, WHOLE).await?;
    Ok(follower.last_position().await?.map(Position::entry_id))
}

/// The progress of a read.
#[derive(Debug, Default)]
struct Far {
    count: usize,
    at: Option<Position>,
    last: Option<Position>,
}

async fn try_read(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    follow: Follow,
    far: &mut Far,
) -> Result<Vec<Message>> {
    let mut follower = transport.follower(topic, follow).await?;
    let Some(last) = follower.last_position().await? else { return Ok(Vec::new()) };
    far.last = Some(last);
    let mut messages: Vec<Message> = Vec::new();
    loop {
        let message = follower.next().await?;
        let at = message.position;
        (far.count, far.at) = (far.count + 1, Some(at));
        if messages.last().is_none_or(|before| before.position < at) {
            messages.push(message);
        }
        // The batch index of the last message may be left out.
        if at >= last && at.entry_id() >= last.entry_id() {
            return Ok(messages);
        }
    }
}

/// A message of the ledger, for the checkers.
pub(super) fn ledger_entry(message: Message) -> LedgerEntry {
    let entry = ledger::read(&message).map_err(|error| error.to_string());
    let body = ledger::content(&message).unwrap_or_default();
    let Message { position, key, publish_time_ms, .. } = message;
    LedgerEntry { position, key: key.unwrap_or_default(), entry, body, publish_time_ms }
}

/// A message of the metadata topic, for the checkers.
pub(super) fn view_entry(message: &Message) -> ViewEntry {
    ViewEntry {
        position: message.position,
        key: message.key.clone().unwrap_or_default(),
        epoch: message.properties.get("epoch").and_then(|epoch| epoch.parse().ok()),
        owner: message.properties.get("owner").and_then(parse_owner),
        metadata: serde_json::from_slice(&message.payload).ok(),
        publish_time_ms: message.publish_time_ms,
    }
}

/// Follows the ledger through all faults of the broker.
#[derive(Debug)]
pub(super) struct Tail {
    transport: PulsarTransport,
    topic: TopicPartition,
    follower: Option<Following>,
    last: Option<Position>,
    /// The fold of each task.
    pub(super) folds: BTreeMap<TaskId, TaskFold>,
    /// The number of ended tasks.
    pub(super) ended: usize,
}

struct Following(Box<dyn Follower>);

impl std::fmt::Debug for Following {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Following")
    }
}

impl Tail {
    pub(super) fn new(transport: PulsarTransport, topic: TopicPartition) -> Self {
        Self { transport, topic, follower: None, last: None, folds: BTreeMap::new(), ended: 0 }
    }

    /// Follows until `done` holds. Returns whether it did within the limit.
    pub(super) async fn until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let follow = async {
            while !done(self) {
                self.step().await;
            }
        };
        timeout(limit, follow).await.is_ok()
    }

    async fn step(&mut self) {
        let following = match &mut self.follower {
            Some(following) => following,
            None => match self.transport.follower(&self.topic, WHOLE).await {
                Ok(follower) => self.follower.insert(Following(follower)),
                Err(_) => return sleep(AGAIN).await,
            },
        };
        match following.0.next().await {
            Ok(message) => self.take(&message),
            Err(_) => {
                self.follower = None;
                sleep(AGAIN).await;
            }
        }
    }

    fn take(&mut self, message: &Message) {
        if self.last.is_some_and(|last| message.position <= last) {
            return;
        }
        self.last = Some(message.position);
        let Ok(entry) = ledger::read(message) else { return };
        let Some(task) = entry.task() else { return };
        let fold = self.folds.entry(task).or_default();
        let before = fold.phase.is_terminal();
        fold.apply(&entry);
        self.ended += usize::from(!before && fold.phase.is_terminal());
    }
}
