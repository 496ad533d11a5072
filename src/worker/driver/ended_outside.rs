//! What operators have ended: whoever keeps the metadata topic sees to it that it is shown, for
//! they do not (`partition/ends.rs`).

use super::lane::PartitionDriver;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::moment::Moment;

impl PartitionDriver {
    /// An entry was read: it may have ended a task, and nobody who has published such a thing shows
    /// it.
    pub(super) fn watch_end_from_outside(&mut self, entry: &Entry, now: Moment) {
        let Entry::Claim(claim) = entry else { return };
        let (id, live) = (claim.key.task, self.core.machine().is_ready());
        let keeps = live && self.metadata.is_kept();
        if keeps && claim.kind.closes() && self.core.is_ended_from_outside(id) {
            self.metadata.keeper.ended_from_outside(id, now);
        }
    }

    /// This worker keeps M from now on: what was ended from outside before may not be there. What M
    /// showed for its retention is not shown again.
    pub(super) fn look_at_ended_from_outside(&mut self, now: Moment, wall_ms: u64) {
        let retention = u64::try_from(self.config.retention.as_millis()).unwrap_or(u64::MAX);
        let since_ms = wall_ms.saturating_sub(retention);
        for task in self.core.ended_from_outside(since_ms) {
            self.metadata.keeper.ended_from_outside(task, now);
        }
    }
}
