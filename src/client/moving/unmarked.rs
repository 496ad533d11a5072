//! Copies without a mark: an import was interrupted between their publishing and their marks.
//!
//! An idempotency key is kept long after the end of its task, so a second message with the key never
//! runs. A dedupe key is free as soon as its task is over: if a copy that is not bound to the key
//! were published again, both would run, one after the other. So copies with a dedupe key are looked
//! for in the task topics, and are bound instead.

use super::copy::{MOVED_FROM, MOVED_SOURCE};
use super::importing::Import;
use super::{MoveError, partition};
use crate::transport::Message;
use longhaul_core::protocol::register::QueueTask;
use longhaul_core::task::TaskId;
use longhaul_core::task::text::DEDUPE_KEY;
use std::collections::HashMap;

/// The first copy of each task of the source.
pub(super) type Unmarked = HashMap<QueueTask, QueueTask>;

impl Import {
    /// Reads the task topics for copies with a dedupe key that have no mark, and that nobody else
    /// has written about.
    pub(super) async fn read_unmarked(&self) -> Result<Unmarked, MoveError> {
        let logs = self.client.logs();
        let mut unmarked = Unmarked::new();
        for open in &self.levels {
            let level = open.level.priority();
            for ledger in &open.ledgers {
                let index = ledger.place.partition;
                let mut log = logs.open(&partition(open.names.task.clone(), index), false).await?;
                while let Some(message) = log.next().await? {
                    let Some(old) = self.copied_from(&message) else { continue };
                    let old = QueueTask { level, id: old };
                    let id = TaskId::new(message.position, index);
                    let is_own = self.writer.alone_wrote(&ledger.fold(id));
                    if is_own && self.marks.mark(old).is_none() {
                        unmarked.entry(old).or_insert(QueueTask { level, id });
                    }
                }
            }
        }
        Ok(unmarked)
    }

    /// The task of the source, if the message is a copy with a dedupe key.
    fn copied_from(&self, message: &Message) -> Option<TaskId> {
        let properties = &message.properties;
        properties.get(DEDUPE_KEY)?;
        let source = properties.get(MOVED_SOURCE)?;
        let old = properties.get(MOVED_FROM)?.parse().ok()?;
        (source == self.source.to_string()).then_some(old)
    }
}
