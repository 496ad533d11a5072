//! Publishes checkpoints of running attempts: the newest one, at most one per second and attempt.
//!
//! A checkpoint is stored once the worker has read its entry back and the log has accepted it. An
//! entry behind the end of its attempt is ignored, whatever its receipt says. Until a checkpoint is
//! stored the newest one is published again, each time under a fresh key.
//!
//! Invariants:
//! - At most one checkpoint of an attempt is in flight, apart from the one that is published before
//!   its outcome.
//! - A try ends: its checkpoint is read back, its publish fails, its timer ends, or the worker
//!   reads an own heartbeat that is stored behind it.

use super::lanes::LaneId;
use super::{WorkerDriver, WorkerEvent};
use crate::transport::OnReceipt;
use crate::worker::reports::AttemptReports;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::key::{Epoch, OnceKey};
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{Position, TaskId};
use std::sync::Arc;
use std::time::Duration;

/// Shortest interval between two checkpoints of a task.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// The checkpoints of one attempt.
pub(super) struct Checkpoints {
    pub(super) reports: Arc<AttemptReports>,
    /// When a checkpoint was last published, or failed to be.
    published_at: Option<Moment>,
    under_way: Option<Try>,
}

/// One try to store a checkpoint.
struct Try {
    /// The number of the try on this lane; distinguishes a late receipt from that of a later try.
    number: u64,
    /// The key of its entry; `None` while it is too early to publish.
    key: Option<OnceKey>,
    /// The number of the checkpoint among those of its attempt.
    checkpoint: u64,
    /// Position of the stored entry, if the receipt arrived before the entry.
    stored_at: Option<Position>,
}

impl Checkpoints {
    pub(super) const fn new(reports: Arc<AttemptReports>) -> Self {
        Self { reports, published_at: None, under_way: None }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.reports.end();
    }
}

impl WorkerDriver {
    /// Publishes the newest checkpoint of an attempt as soon as the interval allows it.
    pub(super) fn publish_checkpoint(&mut self, id: LaneId, task: TaskId, epoch: Epoch) {
        let now = self.env.clock.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task, epoch)) else { return };
        let checkpoints = &mut running.checkpoints;
        if checkpoints.under_way.is_some() {
            return;
        }
        let Some(given) = checkpoints.reports.take_unstored() else { return };
        let wait = checkpoints
            .published_at
            .map_or(Duration::ZERO, |at| CHECKPOINT_EVERY.saturating_sub(now.since(at)));
        let key = if wait.is_zero() {
            checkpoints.published_at = Some(now);
            lane.core.handle_checkpoint(task, epoch)
        } else {
            None
        };
        lane.checkpoint_tries += 1;
        let number = lane.checkpoint_tries;
        checkpoints.under_way =
            Some(Try { number, key, checkpoint: given.number, stored_at: None });
        let tried = move |stored_at| WorkerEvent::CheckpointTried {
            lane: id,
            id: task,
            epoch,
            number,
            stored_at,
        };
        match key {
            Some(key) => {
                let answers = self.env.answers.clone();
                let on_receipt =
                    OnReceipt::new(move |published| answers.put(tried(published.ok())));
                lane.publish(&Entry::Checkpoint(key), &given.bytes, None, on_receipt);
            }
            // Too early; or, after a self-fence, it is unknown whether the attempt still belongs to
            // this worker.
            None => {
                let pause = if wait.is_zero() { CHECKPOINT_EVERY } else { wait };
                self.later(pause, tried(None));
            }
        }
    }

    /// Handles the end of a try: its receipt arrived, its checkpoint may not be stored, or its
    /// timer ended.
    pub(super) fn handle_checkpoint_tried(
        &mut self,
        id: LaneId,
        (task, epoch): (TaskId, Epoch),
        number: u64,
        stored_at: Option<Position>,
    ) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task, epoch)) else { return };
        let under_way = &mut running.checkpoints.under_way;
        let Some(its) = under_way.as_mut().filter(|it| it.number == number) else { return };
        if stored_at.is_some() {
            its.stored_at = stored_at;
        } else {
            *under_way = None;
            self.publish_checkpoint(id, task, epoch);
        }
    }

    /// Handles an own checkpoint that was read back.
    pub(super) fn checkpoint_came_back(&mut self, id: LaneId, key: OnceKey) {
        let OnceKey { task, epoch, .. } = key;
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task, epoch)) else { return };
        let checkpoints = &mut running.checkpoints;
        if let Some(its) = checkpoints.under_way.take_if(|it| it.key == Some(key)) {
            checkpoints.reports.record_stored(its.checkpoint);
            self.publish_checkpoint(id, task, epoch);
        }
    }

    /// Finds lost checkpoints. The ledger is read up to `read_to`; a checkpoint stored before that
    /// and not read back is lost. A broker without retention may delete an entry before a reader
    /// gets it.
    pub(super) fn look_for_lost_checkpoints(&mut self, id: LaneId, read_to: Position) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let lost = lane.running.iter_mut().filter_map(|(attempt, running)| {
            let is_lost = |it: &mut Try| it.stored_at.is_some_and(|at| at < read_to);
            running.checkpoints.under_way.take_if(is_lost).map(|_| *attempt)
        });
        for (task, epoch) in lost.collect::<Vec<_>>() {
            self.publish_checkpoint(id, task, epoch);
        }
    }
}
