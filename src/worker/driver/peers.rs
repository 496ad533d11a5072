//! Workers of one ledger that go by different numbers of attempts: how many a task has then depends
//! on who claimed it last. Nothing is refused for that, for a rolling deploy may want just this;
//! but somebody should know.

use super::WorkerDriver;
use super::lanes::LaneId;
use longhaul_core::protocol::entry::Heartbeat;

/// The most different numbers that are told. A fleet has two while it changes.
const TOLD_MAX: usize = 8;

impl WorkerDriver {
    /// A heartbeat was read: what its sender says of its settings is compared, and each difference
    /// told once.
    pub(super) fn compare(&mut self, id: LaneId, heartbeat: &Heartbeat) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let machine = lane.core.machine();
        let (own, ours) = (machine.owner(), self.config.attempts());
        let Some(theirs) = heartbeat.max_attempts.filter(|theirs| *theirs != ours) else { return };
        // What is read at the start may be the last word of a worker that is gone.
        let is_known = !machine.is_ready() || self.other_attempts.contains(&theirs);
        if is_known || self.other_attempts.len() >= TOLD_MAX {
            return;
        }
        self.other_attempts.push(theirs);
        tracing::warn!(
            topic = %lane.topics.task, worker = %own, max_attempts = ours,
            other_worker = %heartbeat.owner, other_max_attempts = theirs,
            "two workers give tasks different numbers of attempts: a task has as many as the one gives it that claimed it last. Set `max_attempts` to the same on all of them, or for the queue"
        );
    }
}
