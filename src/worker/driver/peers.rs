//! Detects workers of one ledger with different settings for the number of attempts: the last
//! claimer's setting then applies to a task. This is logged but not refused, because a rolling
//! deployment may intend it.

use super::WorkerDriver;
use super::lanes::LaneId;
use crate::transport::Message;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Heartbeat;
use longhaul_core::task::WorkerIdentity;

/// Maximum number of different settings that are logged. A fleet has two during a change.
const TOLD_MAX: usize = 8;

impl WorkerDriver {
    /// Compares the settings in a heartbeat with this worker's own and logs each difference once.
    /// The setting of a queue applies before those of its workers. A gateway claims only for
    /// workers over HTTP, and that of `longhaul dev` stands beside workers with other settings.
    pub(super) fn compare(&mut self, id: LaneId, heartbeat: &Heartbeat, message: &Message) {
        let ours = self.config.attempts();
        let Some(theirs) = heartbeat.max_attempts.filter(|theirs| *theirs != ours) else { return };
        let of_queue = self.defaults_of(id);
        let of_queue = of_queue.is_some_and(|it| it.max_attempts.is_some() || it.retry.is_some());
        let sender = ledger::content(message).and_then(|content| WorkerIdentity::read(&content));
        let is_gateway = sender.is_some_and(|it| it.grants_leases);
        if of_queue || is_gateway != self.config.identity.grants_leases {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let machine = lane.core.machine();
        let own = machine.owner();
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
