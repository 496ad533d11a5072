//! The end of a worker: takes nothing new, gives back what does not end in time, and leaves.

use super::lanes::LaneId;
use super::{StopRequest, WorkerDriver};
use crate::transport::OnReceipt;
use futures::future::{join, join_all};
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::key::Key;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::TaskId;
use std::ops::Bound;
use std::time::Duration;
use tokio::time::timeout;

/// How long the end of a drain waits for work in progress.
const LEAVING_MAX: Duration = Duration::from_secs(10);

impl WorkerDriver {
    /// Takes nothing new, and gives back running attempts at the deadline. Returns when to look
    /// again.
    pub(super) fn drain(&mut self, deadline: Moment, now: Moment) -> Moment {
        #[cfg(feature = "schedules")]
        for queue in &mut self.queues {
            queue.core.stop_firing();
        }
        for lane in self.lanes.values_mut() {
            lane.core.drain(now);
            lane.leave_line();
        }
        self.let_go_of_leases(now);
        if now < deadline {
            return deadline;
        }
        if self.gives_up_at.is_none() {
            self.release_running();
        }
        *self.gives_up_at.get_or_insert(now + LEAVING_MAX)
    }

    /// Whether the wait for work in progress after the deadline has ended without success.
    pub(super) fn has_given_up(&self, now: Moment) -> bool {
        let given_up = self.gives_up_at.is_some_and(|until| now >= until);
        if given_up {
            tracing::warn!("drain: gave up waiting for running work");
        }
        given_up
    }

    /// Whether no work of this worker is in progress.
    ///
    /// This runs at every turn of the loop, and the ledger may know 100,000 finished tasks. So the
    /// search begins at the task that it found last, and goes round only after that one has ended.
    pub(super) fn is_quiet(&mut self) -> bool {
        if self.metadata_in_flight > 0 || self.lanes.values().any(|lane| lane.core.has_processors())
        {
            return false;
        }
        let next = self.busy.and_then(|last| self.busy_from(Some(last)));
        self.busy = next.or_else(|| self.busy_from(None));
        self.busy.is_none()
    }

    fn busy_from(&self, first: Option<(LaneId, TaskId)>) -> Option<(LaneId, TaskId)> {
        let lane = first.map_or(Bound::Unbounded, |(lane, _)| Bound::Included(lane));
        self.lanes.range((lane, Bound::Unbounded)).find_map(|(id, lane)| {
            let task = first.filter(|(first, _)| first == id).map(|(_, task)| task);
            Some((*id, lane.core.busy_task(task)?))
        })
    }

    /// Publishes last heartbeats and tombstones for the heartbeat keys, which are no longer needed.
    /// Limited in time, and ended by a request to stop at once.
    pub(super) async fn leave(&mut self) {
        let now = self.env.clock.now();
        let requests = self.remove_drain_requests();
        for lane in self.lanes.values_mut() {
            let heartbeat = lane.core.last_heartbeat(now);
            lane.publish(&heartbeat, b"", None, OnReceipt::ignored());
        }
        let goodbyes = self.lanes.values().map(|lane| async {
            let owner = lane.core.machine().owner();
            let tombstone = Entry::Tombstone(Key::Heartbeat(owner));
            let (on_receipt, receipt) = OnReceipt::awaited();
            lane.publish(&tombstone, b"", None, on_receipt);
            if receipt.await.is_err() {
                tracing::debug!(%owner, "heartbeat key not tombstoned: other workers will do it");
            }
        });
        let goodbyes = timeout(LEAVING_MAX, join(join_all(goodbyes), requests));
        tokio::select! {
            biased;
            // This resolves also when the handle was dropped: then no stop can be requested.
            _ = self.stop_request.wait_for(|stop_request| *stop_request == StopRequest::Stop) => {}
            said = goodbyes => if said.is_err() {
                tracing::debug!("obsolete entries not removed in time: other workers will do it");
            }
        }
    }
}
