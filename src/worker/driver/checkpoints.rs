//! Publishes checkpoints of running attempts: the newest, at most one a second for each, again
//! under a fresh key until it is stored or a newer one has taken its place. A checkpoint is stored
//! when it was read back and the log has accepted it: what lands behind the end of its attempt is
//! for nobody, whatever its receipt says.
//!
//! Invariants:
//! - Of an attempt at most one checkpoint is on its way, but for the one that goes before its
//!   outcome.
//! - As long as a checkpoint is not stored, its receipt, its entry, a timer or a report of a newer
//!   one is waited for.

use super::lane::Lane;
use super::lanes::LaneId;
use super::{Driver, Event, PublishResult};
use crate::transport::OnReceipt;
use crate::worker::reports::Reports;
use longhaul_core::protocol::entry::{Entry, Outcome};
use longhaul_core::protocol::key::{Epoch, OnceKey};
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::TaskId;
use std::sync::Arc;
use std::time::Duration;

/// At most one checkpoint per task is published in this time.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// The checkpoints of one attempt.
pub(super) struct Checkpoints {
    pub(super) reports: Arc<Reports>,
    /// When one was tried last.
    tried_at: Option<Moment>,
    /// One is on its way, or the time of the next try is waited for.
    busy: bool,
    /// What was published last, and the number of what it says.
    sent: Option<(OnceKey, u64)>,
}

impl Checkpoints {
    pub(super) const fn new(reports: Arc<Reports>) -> Self {
        Self { reports, tried_at: None, busy: false, sent: None }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.reports.end();
    }
}

impl Driver {
    /// Publishes the newest checkpoint of an attempt as soon as it may be.
    pub(super) fn publish_checkpoint(&mut self, id: LaneId, task: TaskId, epoch: Epoch) {
        let now = self.env.clock.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task, epoch)) else { return };
        let checkpoints = &mut running.checkpoints;
        if checkpoints.busy {
            return;
        }
        let Some(given) = checkpoints.reports.take_unstored() else { return };
        checkpoints.busy = true;
        let wait = checkpoints
            .tried_at
            .map_or(Duration::ZERO, |at| CHECKPOINT_EVERY.saturating_sub(now.since(at)));
        let key = if wait.is_zero() {
            checkpoints.tried_at = Some(now);
            lane.core.handle_checkpoint(task, epoch)
        } else {
            None
        };
        match key {
            Some(key) => {
                checkpoints.sent = Some((key, given.number));
                let on_receipt = lane.tell(move |fate| {
                    let again = fate != PublishResult::Stored;
                    Event::CheckpointTried { lane: id, id: task, epoch, again }
                });
                lane.publish(&Entry::Checkpoint(key), &given.bytes, None, on_receipt);
            }
            // Too early. Or after a self-fence nobody knows yet whether the attempt is still this
            // worker's.
            None => self.pending.push(Box::pin(async move {
                tokio::time::sleep(if wait.is_zero() { CHECKPOINT_EVERY } else { wait }).await;
                Event::CheckpointTried { lane: id, id: task, epoch, again: true }
            })),
        }
    }

    /// A checkpoint has its receipt or will have none, or it is time for the next try. What stands
    /// on the log is read before the next one is published.
    pub(super) fn handle_checkpoint_tried(
        &mut self,
        id: LaneId,
        task: TaskId,
        epoch: Epoch,
        again: bool,
    ) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task, epoch)) else { return };
        if again {
            running.checkpoints.busy = false;
            self.publish_checkpoint(id, task, epoch);
        }
    }

    /// An entry was read, and the log has accepted it.
    pub(super) fn note_checkpoint(&mut self, id: LaneId, entry: &Entry) {
        let Entry::Checkpoint(key) = *entry else { return };
        let OnceKey { task, epoch, .. } = key;
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task, epoch)) else { return };
        let checkpoints = &mut running.checkpoints;
        if let Some((_, number)) = checkpoints.sent.take_if(|(sent, _)| *sent == key) {
            checkpoints.reports.note_stored(number);
            checkpoints.busy = false;
            self.publish_checkpoint(id, task, epoch);
        }
    }
}

impl Lane {
    /// An attempt has ended, and another one may follow: what it gave last stands on the ledger
    /// before its outcome does.
    pub(super) fn keep_last_checkpoint(
        &mut self,
        (task, epoch): (TaskId, Epoch),
        checkpoints: &Checkpoints,
        outcome: Outcome,
    ) {
        let follows = matches!(outcome, Outcome::Failed(_) | Outcome::Released(_));
        if let Some(given) = checkpoints.reports.take_unstored().filter(|_| follows) {
            self.last_checkpoints.insert(task, (epoch, given.bytes));
        }
    }

    /// The outcome of an attempt is about to be published, for the first time or again: what it
    /// gave last goes before it, under a fresh key. Nobody waits for the receipt: when it is lost
    /// so is, more often than not, that of the outcome, and both are published again.
    pub(super) fn publish_last_checkpoint(&mut self, OnceKey { task, epoch, .. }: OnceKey) {
        let last = self.last_checkpoints.get(task).filter(|(given_in, _)| *given_in == epoch);
        let Some(bytes) = last.map(|(_, bytes)| bytes.clone()) else { return };
        if let Some(key) = self.core.handle_checkpoint(task, epoch) {
            self.publish(&Entry::Checkpoint(key), &bytes, None, OnReceipt::ignored());
        }
    }
}
