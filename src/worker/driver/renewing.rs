//! Publishes the entries of running attempts on the metadata topic. `metadata/running.rs` decides
//! when.

use super::lanes::LaneId;
use super::{PublishResult, Showing, WorkerDriver, WorkerEvent};
use crate::telemetry::{self, spans};
use crate::worker::reports::PendingReports;
use longhaul_core::metadata::entry;
use longhaul_core::protocol::invariants::phase_shown;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::TaskId;

impl WorkerDriver {
    /// Publishes the entries of the attempts that are due.
    pub(super) fn renew(&mut self, id: LaneId, now: Moment) {
        while let Some((task, epoch)) =
            self.lanes.get_mut(&id).and_then(|lane| lane.metadata.running.poll(now))
        {
            self.show_processing(id, task, epoch);
        }
    }

    /// Shows on the metadata topic that the attempt runs.
    fn show_processing(&mut self, id: LaneId, task_id: TaskId, epoch: Epoch) {
        let (now, wall_ms) = (self.env.clock.now(), self.env.clock.wall_ms());
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get(&(task_id, epoch)) else { return };
        let machine = lane.core.machine();
        let task = machine.task(task_id).filter(|_| machine.works_on(task_id, epoch));
        let Some(task) = task else {
            // The ledger is being read again and will tell whether the attempt still belongs to
            // this worker.
            return lane.metadata.running.put_off((task_id, epoch), now);
        };
        let shown = running.checkpoints.reports.take_shown();
        let payload = lane.payload(task_id);
        let mut metadata = entry::processing(task_id, &task, payload, shown, wall_ms);
        lane.annotate(task_id, &mut metadata);
        let holder = lane.shown_holder(task_id);
        let worker = holder.as_deref().unwrap_or(&self.shown_worker);
        let message = entry::message(&metadata, &task, worker);
        let is_keep_alive = lane.metadata.running.published((task_id, epoch), now);
        if !lane.core.may_show(task_id, phase_shown(&metadata)) {
            return;
        }
        // The entry relies on the current heartbeats: it must not be stored later than the silence
        // that other workers tolerate.
        let expires = Some(now + self.config.heartbeat);
        let kind = Showing::Processing;
        let shown =
            move |fate| WorkerEvent::ShownReceipt { lane: id, id: task_id, epoch, kind, fate };
        telemetry::kept_alive(&lane.topics.task.topic);
        if is_keep_alive && let Some(running) = lane.running.get(&(task_id, epoch)) {
            spans::kept_alive(&running.span);
        }
        lane.show(message, expires, lane.tell(shown));
        self.metadata_in_flight += 1;
    }

    /// Handles a report of an attempt.
    pub(super) fn handle_reported(&mut self, id: LaneId, task_id: TaskId, epoch: Epoch) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.get_mut(&(task_id, epoch)) else { return };
        let PendingReports { shown, checkpoint } = running.checkpoints.reports.news();
        if shown {
            lane.metadata.running.show_again((task_id, epoch));
        }
        if checkpoint {
            self.publish_checkpoint(id, task_id, epoch);
        }
    }
}

impl PublishResult {
    /// The result in terms of the rules of the metadata topic.
    pub(super) const fn answer(&self) -> longhaul_core::metadata::ended::ShowingResult {
        use longhaul_core::metadata::ended::ShowingResult;
        match self {
            Self::Stored => ShowingResult::Stored,
            Self::Unknown => ShowingResult::Unknown,
            Self::Refused(_) => ShowingResult::Refused,
        }
    }
}
