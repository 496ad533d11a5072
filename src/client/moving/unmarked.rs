//! Copies without a mark: an import was interrupted between their publishing and their marks.
//!
//! An idempotency key is kept long after the end of its task, so a second message with the key never
//! runs. A dedupe key is free as soon as its task is over: if a copy that is not bound to the key
//! were published again, both would run, one after the other. So an import notes the tasks with a
//! dedupe key before it publishes their copies, and the next import looks for these copies in the
//! task topics, and binds them instead of publishing others.

use super::copy::{MOVED_FROM, MOVED_SOURCE, has_dedupe_key};
use super::importing::Import;
use super::record::TaskRecord;
use super::{MoveError, partition};
use crate::transport::Message;
use longhaul_core::protocol::register::QueueTask;
use longhaul_core::task::TaskId;
use longhaul_core::task::text::DEDUPE_KEY;
use std::collections::HashMap;

/// The first copy of each task of the source.
pub(super) type Unmarked = HashMap<QueueTask, UnmarkedCopy>;

/// A copy without a mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnmarkedCopy {
    /// The copy.
    pub(super) task: QueueTask,
    /// A worker or an operator has written about it.
    pub(super) is_begun: bool,
}

impl Import {
    /// Reads the task topics for the copies of tasks that an earlier import has begun to copy, if
    /// there are such tasks.
    pub(super) async fn read_unmarked(&mut self) -> Result<(), MoveError> {
        if self.marks.begun().is_empty() {
            return Ok(());
        }
        let logs = self.client.logs();
        for open in &self.levels {
            let level = open.level;
            for ledger in &open.ledgers {
                let index = ledger.place.partition;
                let mut log = logs.open(&partition(open.names.task.clone(), index), false).await?;
                while let Some(message) = log.next().await? {
                    let Some(old) = self.copied_from(&message) else { continue };
                    let old = QueueTask { level, id: old };
                    if self.marks.begun().contains(&old) {
                        let id = TaskId::new(message.position, index);
                        let is_begun = !self.writer.alone_wrote(&ledger.fold(id));
                        let task = QueueTask { level, id };
                        self.unmarked.entry(old).or_insert(UnmarkedCopy { task, is_begun });
                    }
                }
            }
        }
        // Nothing tells whether the copy of a task that the export does not have may run.
        let strays =
            self.unmarked.iter().filter(|(old, copy)| !copy.is_begun && !self.tasks.contains(old));
        self.kept_out.extend(strays.map(|(old, UnmarkedCopy { task, .. })| {
            let cause = format!(
                "an interrupted import published its copy {task}, but the task is not in the export: delete the copy, or let it run"
            );
            (*old, cause)
        }));
        Ok(())
    }

    /// The task of the source, if the message is a copy with a dedupe key.
    fn copied_from(&self, message: &Message) -> Option<TaskId> {
        let properties = &message.properties;
        properties.get(DEDUPE_KEY)?;
        let source = properties.get(MOVED_SOURCE)?;
        let old = properties.get(MOVED_FROM)?.parse().ok()?;
        (source == self.source.to_string()).then_some(old)
    }

    /// Notes the tasks of a batch whose copies will have a dedupe key, before they are published.
    pub(super) async fn begin(&self, batch: &[(QueueTask, TaskRecord)]) -> Result<(), MoveError> {
        let marks = &self.marks;
        let keyed = batch.iter().filter(|(_, record)| has_dedupe_key(record));
        let new = keyed.map(|(old, _)| *old);
        let new = new.filter(|old| marks.mark(*old).is_none() && !marks.begun().contains(old));
        marks.begin(&self.client, &self.register, new).await
    }
}
