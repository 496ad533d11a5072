//! Writes entries of many tasks to a partition of a ledger, and reads back the verdict on each.

use super::MoveError;
use crate::client::Client;
use crate::client::logs::{LogReader, read_back};
use crate::client::publishers::PublishFailure;
use crate::transport::{Message, Outgoing, TopicPartition, TransportError};
use bytes::Bytes;
use futures::future::join_all;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, Entry};
use longhaul_core::protocol::entry_set::EntrySet;
use longhaul_core::protocol::fold::{IgnoredReason, Phase, TaskFold, Verdict};
use longhaul_core::protocol::key::{Key, OnceKey};
use longhaul_core::task::TaskId;
use std::collections::HashMap;

/// Messages that are read before a caller looks again at the time and at what it waits for.
const TOGETHER_MAX: usize = 256;

/// The state of an unsealed task on the ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownTask {
    pub(super) fold: TaskFold,
    /// When it was first claimed, if still known.
    pub(super) claimed_ms: u64,
    /// The last accepted claim.
    pub(super) claim: Option<Claim>,
    /// The content of the last entry that parked it.
    pub(super) waits: Option<String>,
    pub(super) checkpoint: Option<Bytes>,
    /// It was closed here because it was moved.
    pub(super) moved: bool,
}

/// See the module's documentation.
pub(super) struct Ledger {
    pub(super) place: TopicPartition,
    log: LogReader,
    pub(super) tasks: HashMap<TaskId, KnownTask>,
    pub(super) sealed: EntrySet,
    /// Own entries, and their verdicts once they are read back.
    awaited: HashMap<OnceKey, Option<Verdict>>,
}

impl Ledger {
    /// Reads a partition to its end.
    pub(super) async fn open(client: &Client, place: TopicPartition) -> Result<Self, MoveError> {
        let log = client.inner.logs.open(&place, true).await?;
        let (tasks, sealed, awaited) = (HashMap::new(), EntrySet::default(), HashMap::new());
        let mut ledger = Self { place, log, tasks, sealed, awaited };
        while let Some(message) = ledger.log.next().await? {
            ledger.take(&message);
        }
        Ok(ledger)
    }

    /// A task's fold.
    pub(super) fn fold(&self, id: TaskId) -> TaskFold {
        if self.sealed.get(id.entry_id()).is_some() {
            return TaskFold::SEALED;
        }
        self.tasks.get(&id).map(|task| task.fold).unwrap_or_default()
    }

    /// The number of running tasks.
    pub(super) fn running(&self) -> usize {
        self.running_tasks().count()
    }

    /// The running tasks.
    pub(super) fn running_tasks(&self) -> impl Iterator<Item = TaskId> {
        let running = self.tasks.iter().filter(|(_, task)| task.fold.phase == Phase::Running);
        running.map(|(id, _)| *id)
    }

    /// Reads the next message, and some of the others that are already here.
    pub(super) async fn read(&mut self) -> Result<(), TransportError> {
        let message = self.log.follow().await?;
        self.take(&message);
        for _ in 1..TOGETHER_MAX {
            let Some(message) = self.log.more() else { break };
            self.take(&message);
        }
        Ok(())
    }

    /// Publishes entries, in this order per task, and returns the fold's verdict on each.
    pub(super) async fn write(
        &mut self,
        client: &Client,
        entries: Vec<(OnceKey, Outgoing)>,
    ) -> Result<Vec<(OnceKey, Verdict)>, MoveError> {
        let keys: Vec<OnceKey> = entries.iter().map(|(key, _)| *key).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.awaited = keys.iter().map(|key| (*key, None)).collect();
        for wave in waves(entries) {
            let publishers = &client.inner.publishers;
            let sent = wave.into_iter().map(|entry| publishers.publish(&self.place, entry));
            for sent in join_all(sent).await {
                match sent {
                    // If the fate of an entry is unknown, reading back tells whether it is stored.
                    Ok(_) | Err(PublishFailure::Sent(_)) => {}
                    Err(PublishFailure::NotSent(error)) => return Err(error.into()),
                }
            }
        }
        let topic = self.place.topic.clone();
        let reading = async {
            while self.awaited.values().any(Option::is_none) {
                self.read().await?;
            }
            Ok::<_, MoveError>(())
        };
        read_back(&topic, reading).await?;
        let awaited = std::mem::take(&mut self.awaited);
        let verdict = |key: OnceKey| Some((key, awaited.get(&key).copied().flatten()?));
        Ok(keys.into_iter().filter_map(verdict).collect())
    }

    fn take(&mut self, message: &Message) {
        let Ok(entry) = ledger::read(message) else { return };
        if let Entry::Seal(seal) = &entry {
            for range in seal.entries.ranges() {
                self.tasks.retain(|id, _| !range.tasks().contains(id));
            }
            self.sealed.extend(&seal.entries);
        }
        let Some(id) = entry.task().filter(|_| !matches!(entry, Entry::Tombstone(_))) else {
            return;
        };
        let verdict = if self.sealed.get(id.entry_id()).is_some() {
            Verdict::Ignored(IgnoredReason::Sealed)
        } else {
            self.tasks.entry(id).or_default().take(&entry, message)
        };
        if let Key::Once(key) = entry.key()
            && let Some(awaited) = self.awaited.get_mut(&key)
        {
            *awaited = Some(verdict);
        }
    }
}

/// The first entries of all tasks, then their second ones, and so on: entries published together
/// may be stored in any order.
fn waves(entries: Vec<(OnceKey, Outgoing)>) -> Vec<Vec<Outgoing>> {
    let (mut waves, mut before) = (Vec::<Vec<Outgoing>>::new(), HashMap::<TaskId, usize>::new());
    for (key, entry) in entries {
        let wave = before.entry(key.task).or_default();
        match waves.get_mut(*wave) {
            Some(together) => together.push(entry),
            None => waves.push(vec![entry]),
        }
        *wave += 1;
    }
    waves
}

impl KnownTask {
    fn take(&mut self, entry: &Entry, message: &Message) -> Verdict {
        let verdict = self.fold.apply(entry);
        if verdict != Verdict::Accepted {
            return verdict;
        }
        let text = || {
            let content = ledger::content(message)?;
            String::from_utf8(content.to_vec()).ok()
        };
        match entry {
            Entry::Claim(claim) => {
                if self.claimed_ms == 0 {
                    self.claimed_ms = message.publish_time_ms;
                }
                if let Some(base) = claim.base {
                    self.claimed_ms = base.created_ms;
                }
                self.claim = Some(*claim);
                self.moved = ledger::operator(message).is_some_and(|(_, act)| act == super::MOVE);
                self.waits = text().filter(|_| self.fold.is_parked());
            }
            Entry::Done(_) => self.waits = text().filter(|_| self.fold.is_parked()),
            Entry::Checkpoint(_) => self.checkpoint = ledger::content(message),
            Entry::Cancel(_)
            | Entry::Renewal(_)
            | Entry::Heartbeat(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => {}
        }
        verdict
    }
}
