//! Tasks that operators ended: the worker that keeps the metadata topic shows their end, because
//! operators do not (`partition/ends.rs`).

use super::lane::PartitionDriver;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::moment::Moment;

impl PartitionDriver {
    /// Checks whether an entry ended a task from outside. Its publisher does not show the end.
    pub(super) fn watch_end_from_outside(&mut self, entry: &Entry, now: Moment) {
        let Entry::Claim(claim) = entry else { return };
        let (id, live) = (claim.key.task, self.core.machine().is_ready());
        let keeps = live && self.metadata.is_kept();
        if keeps && claim.kind.closes() && self.core.is_ended_from_outside(id) {
            self.metadata.keeper.ended_from_outside(id, now);
        }
    }

    /// Looks at tasks ended from outside when this worker becomes the keeper of the metadata topic:
    /// their ends may be missing there. Ends older than the retention of the metadata topic are not
    /// shown again.
    pub(super) fn recheck_ended_from_outside(&mut self, now: Moment, wall_ms: u64) {
        let retention = u64::try_from(self.config.retention.as_millis()).unwrap_or(u64::MAX);
        let since_ms = wall_ms.saturating_sub(retention);
        for task in self.core.ended_from_outside(since_ms) {
            self.metadata.keeper.ended_from_outside(task, now);
        }
    }
}
