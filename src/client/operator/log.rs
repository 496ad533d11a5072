//! The ledger state of one task, read to the end and followed from there.

use crate::client::logs::{LogReader, Logs, read_back};
use crate::transport::{Message, TopicPartition, TransportError};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, Entry};
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_core::protocol::key::{Key, OnceKey};
use longhaul_core::task::TaskId;

/// See the module's documentation. Keeps no state of other tasks.
pub(super) struct TaskLog {
    log: LogReader,
    topic: String,
    id: TaskId,
    pub(super) fold: TaskFold,
    /// The last accepted claim.
    pub(super) claim: Option<Claim>,
}

impl TaskLog {
    /// Reads the ledger to its end.
    pub(super) async fn open(
        logs: &Logs,
        topic: &TopicPartition,
        id: TaskId,
    ) -> Result<Self, TransportError> {
        let (log, topic_name) = (logs.open(topic, true).await?, topic.topic.clone());
        let fold = TaskFold::default();
        let mut task = Self { log, topic: topic_name, id, fold, claim: None };
        while let Some(message) = task.log.next().await? {
            task.take(&message);
        }
        Ok(task)
    }

    /// Reads until an own entry is read back, and returns the fold's verdict on it.
    pub(super) async fn verdict_of(&mut self, key: OnceKey) -> Result<Verdict, TransportError> {
        let topic = self.topic.clone();
        let reading = async {
            loop {
                let message = self.log.follow().await?;
                match self.take(&message) {
                    Some((read, verdict)) if read == Key::Once(key) => return Ok(verdict),
                    _ => {}
                }
            }
        };
        read_back(&topic, reading).await
    }

    /// Folds an entry of the task, and returns its key and the verdict on it.
    fn take(&mut self, message: &Message) -> Option<(Key, Verdict)> {
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
            let before = self.claim.and_then(|last| last.batch_size);
            let batch_size = claim.batch_size.or(before);
            self.claim = Some(Claim { batch_size, ..*claim });
        }
        Some((entry.key(), verdict))
    }
}
