//! Shows on M that attempts run: when they start, at every keep-alive, and when they have progress to report.
//!
//! Invariants:
//! - Nothing walks the running attempts: an agenda says which one is next, and a report of progress comes as an event.
//! - Of an attempt at most one entry is on its way. What comes meanwhile is shown once, after its receipt.
//! - After every look at an attempt its next time lies ahead, or its receipt or its end is waited for.

use super::{Driver, Event, Showing};
use crate::protocol::invariants::phase_shown;
use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use crate::worker::driver::view;
use crate::worker::reports::News;
use std::time::Duration;

/// At most one report of progress per task is published in this time.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Each entry carries the payload: a large one is published less often.
const PROGRESS_BYTES_PER_SECOND: usize = 64 * 1024;

/// How often progress is shown, where the entry carries a payload of this size.
fn progress_every(payload_bytes: usize) -> Duration {
    let seconds = payload_bytes / PROGRESS_BYTES_PER_SECOND;
    PROGRESS_EVERY.max(Duration::from_secs(u64::try_from(seconds).unwrap_or(1)))
}

impl Driver {
    /// Renews the entries on M of the attempts whose time has come.
    pub(super) fn renew(&mut self, id: i32, now: Moment) {
        while let Some((task, epoch)) =
            self.lanes.get_mut(&id).and_then(|lane| lane.renewals.pop_due(now))
        {
            self.show_processing(id, task, epoch);
        }
    }

    /// Shows on M that the attempt runs, unless an entry that says so is on its way.
    pub(super) fn show_processing(&mut self, id: i32, task_id: TaskId, epoch: Epoch) {
        let (now, wall_ms) = (self.env.clock.now(), self.env.clock.wall_ms());
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task_id, epoch)) else { return };
        if running.showing {
            running.missed = true;
            return;
        }
        let machine = lane.core.machine();
        let task = machine.task(task_id).filter(|_| machine.works_on(task_id, epoch));
        let Some(task) = task else {
            // The ledger is being read again and will say whether it is still this worker's.
            lane.renewals.set((task_id, epoch), now + PROGRESS_EVERY);
            return;
        };
        lane.renewals.set((task_id, epoch), now + self.config.keep_alive);
        running.shown_at = now;
        running.showing = true;
        let progress = running.checkpoints.reports.take_progress();
        let payload = lane.payload(task_id);
        let mut metadata = view::processing(task_id, &task, payload, progress, wall_ms);
        lane.remark(task_id, &mut metadata);
        // It rests on the heartbeats of now: as long as others bear a silence it must not land later than that.
        let expires = Some(now + self.config.heartbeat);
        let message = view::message(&metadata, &task);
        if !lane.core.may_show(task_id, phase_shown(&metadata)) {
            return;
        }
        let kind = Showing::Processing;
        let shown = move |fate| Event::ShownReceipt { lane: id, id: task_id, epoch, kind, fate };
        lane.show(message, expires, lane.tell(shown));
        self.showing += 1;
    }

    /// Shows the attempt again as soon as it may be.
    pub(super) fn show_again(&mut self, id: i32, task_id: TaskId, epoch: Epoch) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(bytes) = lane.running.get(&(task_id, epoch)).map(|it| it.payload_bytes) else {
            return;
        };
        let every = progress_every(if lane.is_shown(bytes) { bytes } else { 0 });
        let Some(running) = lane.running.get_mut(&(task_id, epoch)) else { return };
        if running.showing {
            running.missed = true;
        } else {
            lane.renewals.set_by((task_id, epoch), running.shown_at + every);
        }
    }

    /// The entry is on M, or will not come there: the next one may follow.
    pub(super) fn handle_processing_receipt(&mut self, id: i32, task_id: TaskId, epoch: Epoch) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task_id, epoch)) else { return };
        running.showing = false;
        if std::mem::take(&mut running.missed) {
            self.show_again(id, task_id, epoch);
        }
    }

    /// An attempt has reported something.
    pub(super) fn handle_reported(&mut self, id: i32, task_id: TaskId, epoch: Epoch) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task_id, epoch)) else { return };
        let News { progress, checkpoint } = running.checkpoints.reports.news();
        if progress {
            self.show_again(id, task_id, epoch);
        }
        if checkpoint {
            self.publish_checkpoint(id, task_id, epoch);
        }
    }
}
