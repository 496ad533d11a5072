//! The ledger state of one task, read to the end and followed from there.

use crate::supervise::{
    Connections, KeptFollower, SessionSupervisor, TopicReadEvent, WholeFollower, no_answer,
};
use crate::transport::{
    Follow, Message, Start, TopicPartition, Transport, TransportError, TransportErrorKind,
};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_core::protocol::key::{Key, OnceKey};
use longhaul_core::task::TaskId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long to wait until the own entry is read back.
const READ_BACK_MAX: Duration = Duration::from_secs(30);

/// See the module's documentation. Keeps no state of other tasks.
pub(super) struct TaskLog {
    follower: WholeFollower,
    topic: TopicPartition,
    id: TaskId,
    pub(super) fold: TaskFold,
    /// From the last accepted claim.
    pub(super) batch_size: Option<u32>,
}

impl TaskLog {
    /// Reads the ledger to its end.
    pub(super) async fn open(
        transport: &Arc<dyn Transport>,
        connections: &Arc<Connections>,
        topic: &TopicPartition,
        id: TaskId,
    ) -> Result<Self, TransportError> {
        let service = SessionSupervisor::of_client(transport, topic, connections);
        let from_start = Follow { start: Start::Earliest, compacted: true };
        let mut follower = KeptFollower::new(service, from_start);
        follower.open_persistently().await?;
        let follower = WholeFollower::new(follower);
        let fold = TaskFold::default();
        let mut log = Self { follower, topic: topic.clone(), id, fold, batch_size: None };
        while log.read(None).await?.is_some() {}
        Ok(log)
    }

    /// Reads until an own entry is read back, and returns the fold's verdict on it.
    pub(super) async fn verdict_of(&mut self, key: OnceKey) -> Result<Verdict, TransportError> {
        let topic = self.topic.topic.clone();
        let verdict = async {
            loop {
                if let Some(Some(verdict)) = self.read(Some(key)).await? {
                    return Ok(verdict);
                }
            }
        };
        timeout(READ_BACK_MAX, verdict).await.unwrap_or_else(|_| Err(no_answer(&topic)))
    }

    /// Reads the next messages; `None` at the end that the ledger had at first. Returns the verdict
    /// on the entry with this key, if it was among them.
    async fn read(
        &mut self,
        key: Option<OnceKey>,
    ) -> Result<Option<Option<Verdict>>, TransportError> {
        match self.follower.next().await {
            Ok(TopicReadEvent::ToEnd) => Ok(None),
            Ok(TopicReadEvent::Messages(messages)) => {
                let mut found = None;
                for message in &messages {
                    found = self.take(message, key).or(found);
                }
                Ok(Some(found))
            }
            Err(error) if error.kind == TransportErrorKind::Unreachable => Ok(Some(None)),
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, message: &Message, key: Option<OnceKey>) -> Option<Verdict> {
        let entry = ledger::read(message).ok()?;
        if let Entry::Seal(seal) = &entry
            && seal.entries.get(self.id.entry_id()).is_some()
        {
            self.fold = TaskFold::SEALED;
        }
        if entry.task() != Some(self.id) || matches!(entry, Entry::Tombstone(_)) {
            return None;
        }
        let verdict = self.fold.apply(&entry);
        if let Entry::Claim(claim) = &entry
            && verdict == Verdict::Accepted
        {
            self.batch_size = claim.batch_size.or(self.batch_size);
        }
        key.is_some_and(|key| entry.key() == Key::Once(key)).then_some(verdict)
    }
}
