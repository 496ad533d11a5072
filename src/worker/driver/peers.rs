//! Detects workers of one ledger with different settings for the number of attempts: the last
//! claimer's setting then applies to a task. This is logged but not refused, because a rolling
//! deployment may intend it.

use super::WorkerDriver;
use super::lanes::LaneId;
use longhaul_core::protocol::entry::Heartbeat;

/// Maximum number of different settings that are logged. A fleet has two during a change.
const TOLD_MAX: usize = 8;

impl WorkerDriver {
    /// Compares the settings in a heartbeat with this worker's own and logs each difference once.
    pub(super) fn compare(&mut self, id: LaneId, heartbeat: &Heartbeat) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let machine = lane.core.machine();
        let (own, ours) = (machine.owner(), self.config.attempts());
        let Some(theirs) = heartbeat.max_attempts.filter(|theirs| *theirs != ours) else { return };
        // A heartbeat read at the start may be the last one of a worker that is gone.
        let is_known = !machine.is_ready() || self.other_attempts.contains(&theirs);
        if is_known || self.other_attempts.len() >= TOLD_MAX {
            return;
        }
        self.other_attempts.push(theirs);
        tracing::warn!(
            topic = %lane.topics.task, worker = %own, max_attempts = ours,
            other_worker = %heartbeat.owner, other_max_attempts = theirs,
            "workers have different `max_attempts`: that of a task's last claimer applies. Set the same value on all workers, or set it for the queue"
        );
    }
}
