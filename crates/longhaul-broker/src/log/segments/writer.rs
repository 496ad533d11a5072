//! Writes groups: one step per group, without a thread, so that a simulation can drive it.

use crate::clock;
use crate::log::error::WriteError;
use crate::log::segments::blocks::Blocks;
use crate::log::segments::composer::RecordGroup;
use crate::log::segments::segment;
use crate::log::shared::{BeginError, Segment, SharedLogState};
use std::sync::Arc;

/// Writes the groups of one log, one after the other.
#[derive(Debug)]
pub(in crate::log) struct LogWriter {
    /// The log.
    pub(in crate::log) shared: Arc<SharedLogState>,
    /// The segment that was last written.
    current: Arc<Segment>,
    /// Number of the next group.
    next: u64,
    /// Number of durable chunks of that group, if the disk had no room for the chunk after them.
    chunks_done: usize,
    /// The last block of the segment, which is written again with the next chunk.
    blocks: Blocks,
}

impl LogWriter {
    pub(in crate::log) fn new(
        shared: Arc<SharedLogState>,
        current: Arc<Segment>,
        next: u64,
    ) -> Self {
        Self { shared, current, next, chunks_done: 0, blocks: Blocks::default() }
    }

    /// Writes a group and waits until the disk confirms it. Each chunk is durable before the next
    /// segment gets its header, so a segment with a successor is always complete.
    pub(in crate::log) fn write(&mut self, group: &RecordGroup) -> Result<(), WriteError> {
        if let Some(reason) = self.shared.poison() {
            return Err(WriteError::Poisoned { reason: reason.to_owned() });
        }
        if group.number() != self.next {
            let reason =
                format!("group {} was submitted instead of group {}", group.number(), self.next);
            return Err(self.poisoned(reason));
        }
        for (chunk, bytes) in group.chunks().skip(self.chunks_done) {
            if let Some(header) = chunk.begins {
                match self.shared.begin_segment(header) {
                    Ok(segment) => self.current = segment,
                    Err(BeginError::Full(error)) => {
                        self.shared.room.set_stuck(true);
                        let file = segment::name(header.number);
                        let file = self.shared.storage.describe(&file);
                        return Err(WriteError::Full { file, reason: error.to_string() });
                    }
                    Err(BeginError::Failed(what, error)) => {
                        return Err(self.failed(chunk.segment, what, &error));
                    }
                }
            }
            if let Err(error) = self.blocks.write(&self.current, chunk.offset, bytes) {
                return Err(self.failed(chunk.segment, "a write", &error));
            }
            let began = clock::monotonic();
            let synced = self.current.file.sync_data();
            self.shared.record_sync(clock::monotonic().duration_since(began));
            if let Err(error) = synced {
                return Err(self.failed(chunk.segment, "a sync", &error));
            }
            self.chunks_done += 1;
        }
        self.shared.room.set_stuck(false);
        self.chunks_done = 0;
        self.next += 1;
        self.shared.set_durable(group.end());
        Ok(())
    }

    /// Whether the next segment should be prepared, or the current one listed in the inventory.
    pub(in crate::log) fn wants_prepare(&self) -> bool {
        // While the disk is full, another attempt only makes sense after space was freed or the
        // owner asked for it.
        !self.shared.room.is_full()
            && (self.shared.is_unlisted(self.current.header.number)
                || self.shared.spare.try_lock().is_ok_and(|spare| spare.is_none()))
    }

    fn failed(&self, number: u32, what: &str, error: &std::io::Error) -> WriteError {
        let file = self.shared.storage.describe(&segment::name(number));
        self.poisoned(format!("{what} failed in {file}: {error}"))
    }

    fn poisoned(&self, reason: String) -> WriteError {
        WriteError::Poisoned { reason: self.shared.set_poison(reason).to_owned() }
    }
}
