//! What the ledger says of tasks beside their states.

use super::{Queue, ReadError, partition};
use crate::topics::TopicNames;
use crate::transport::{Message, Transport};
use bytes::Bytes;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_core::protocol::key::OnceKey;
use longhaul_core::protocol::waits::WaitsFor;
use longhaul_core::task::{Position, TaskId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The last checkpoints of the tasks of a queue, and what they wait for, as of one reading: see
/// [`Queue::ledger_notes`].
pub struct LedgerNotes {
    transport: Arc<dyn Transport>,
    names: TopicNames,
    tasks: BTreeMap<TaskId, LedgerTaskNotes>,
}

/// The notes of one task.
#[derive(Debug, Default)]
struct LedgerTaskNotes {
    fold: TaskFold,
    checkpoint: Option<(Position, OnceKey)>,
    /// The content of the entry that parked it.
    parked: Option<Bytes>,
}

impl fmt::Debug for LedgerNotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerNotes").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

impl Queue {
    /// Reads the ledger once, for the checkpoints of unfinished tasks and the tasks that they wait
    /// for. It needs about 200 bytes for each task that the ledger has; checkpoints are read when
    /// they are asked for.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    #[doc(hidden)]
    pub async fn ledger_notes(&self) -> Result<LedgerNotes, ReadError> {
        let (client, names) = (&self.client, self.existing().await?);
        let mut tasks = BTreeMap::<TaskId, LedgerTaskNotes>::new();
        for index in client.past_partitions(&names).await? {
            let mut log = client.logs().open(&partition(names.ledger.clone(), index), true).await?;
            while let Some(message) = log.next().await? {
                let Ok(entry) = ledger::read(&message) else { continue };
                if let Entry::Seal(seal) = &entry {
                    for range in seal.entries.ranges() {
                        let sealed = tasks.range(range.tasks()).map(|(id, _)| *id);
                        for id in sealed.collect::<Vec<_>>() {
                            tasks.remove(&id);
                        }
                    }
                } else if let Some(id) = entry.task()
                    && !matches!(entry, Entry::Tombstone(_))
                {
                    tasks.entry(id).or_default().take(&entry, &message);
                }
            }
        }
        Ok(LedgerNotes { transport: Arc::clone(&client.inner.transport), names, tasks })
    }
}

impl LedgerTaskNotes {
    fn take(&mut self, entry: &Entry, message: &Message) {
        if self.fold.apply(entry) != Verdict::Accepted {
            return;
        }
        match entry {
            Entry::Claim(_) | Entry::Done(_) if self.fold.is_parked() => {
                self.parked = ledger::content(message);
            }
            // A checkpoint that was given up when its session ended may be stored behind a later one.
            Entry::Checkpoint(key)
                if self.checkpoint.is_none_or(|(_, kept)| {
                    (kept.epoch, kept.serial) < (key.epoch, key.serial)
                }) =>
            {
                self.checkpoint = Some((message.position, *key));
            }
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Heartbeat(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => {}
        }
    }
}

impl LedgerNotes {
    /// Reads the last checkpoint of a task, as it is stored: encoded, if the task has a codec.
    /// `None` if there is none, or it is no longer on the ledger.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn checkpoint(&self, task: TaskId) -> Result<Option<Bytes>, ReadError> {
        let Some((at, _)) = self.tasks.get(&task).and_then(|notes| notes.checkpoint) else {
            return Ok(None);
        };
        let place = partition(self.names.ledger.clone(), task.partition);
        let message = self.transport.fetch(&place, at).await?;
        Ok(message.and_then(|message| ledger::content(&message)))
    }

    /// The tasks for which a parked task waits; `None` if the task is not parked.
    #[must_use]
    pub fn waits_for(&self, task: TaskId) -> Option<WaitsFor> {
        let notes = self.tasks.get(&task).filter(|notes| notes.fold.is_parked())?;
        WaitsFor::of_content(notes.parked.as_ref()?)
    }
}
