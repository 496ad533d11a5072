//! Bodies of attempts that do not end: they block their thread and ignore their cancellation.
//!
//! A cancelled one keeps its slot, so that a worker never runs more bodies than it has slots. A
//! killed one is left behind: its slot is free, and it goes on beside the others. At most as many
//! are left behind as the worker has slots; the next one keeps its slot until one of them has
//! ended.

use super::lanes::LaneId;
use super::{WorkerDriver, WorkerEvent};
use crate::worker::execution::StuckBody;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// Identifies an attempt of a worker.
type AttemptKey = (LaneId, TaskId, Epoch);

/// The bodies of a worker that do not end.
#[derive(Debug, Default)]
pub(super) struct StuckBodies {
    /// Bodies that keep their slots, and whether they were killed.
    in_slots: BTreeMap<AttemptKey, bool>,
    /// Bodies that were left behind.
    left_behind: BTreeSet<AttemptKey>,
}

impl WorkerDriver {
    /// Notes an attempt that is over while its body goes on.
    pub(super) fn record_stuck(&mut self, place: AttemptKey, body: StuckBody, killed: bool) {
        let (lane, id, epoch) = place;
        self.stats.counted().stuck += 1;
        self.stuck.in_slots.insert(place, killed);
        self.pending.push(Box::pin(async move {
            body.await;
            WorkerEvent::ProcessorGone { lane, id, epoch }
        }));
        if killed {
            self.leave_behind(place);
        } else {
            tracing::warn!(task = %id, %epoch, "processor blocks its thread and ignores its cancellation: it keeps its slot");
        }
    }

    /// Kills the attempts of a task: a client wants its end without waiting for its processor.
    pub(super) fn kill(&mut self, lane_id: LaneId, task: TaskId) {
        let Some(lane) = self.lanes.get(&lane_id) else { return };
        let (first, last) = (Epoch(0), Epoch(u32::MAX));
        for (_, running) in lane.running.range((task, first)..=(task, last)) {
            running.checkpoints.reports.kill();
        }
        let places = (lane_id, task, first)..=(lane_id, task, last);
        let stuck: Vec<AttemptKey> = self.stuck.in_slots.range(places).map(|(at, _)| *at).collect();
        for place in stuck {
            self.stuck.in_slots.insert(place, true);
            self.leave_behind(place);
        }
    }

    /// Frees the slot of a body that goes on.
    fn leave_behind(&mut self, place: AttemptKey) {
        let (id, task, epoch) = place;
        let (left, most) = (self.stuck.left_behind.len(), self.config.concurrency);
        if left >= most {
            tracing::warn!(%task, %epoch, left, "a killed processor does not end and keeps its slot: the limit, one abandoned processor per slot, is reached");
            return;
        }
        self.stuck.in_slots.remove(&place);
        self.stuck.left_behind.insert(place);
        self.stats.left_behind(left + 1);
        tracing::warn!(%task, %epoch, left = left + 1, "a killed processor does not end: it is abandoned, and its slot is free");
        let now = self.env.clock.now();
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.core.handle_processor_gone(task, epoch, now);
        }
    }

    /// Handles the end of a body.
    pub(super) fn handle_processor_gone(&mut self, place: AttemptKey) {
        let (id, task, epoch) = place;
        let now = self.env.clock.now();
        if self.stuck.left_behind.remove(&place) {
            self.stats.left_behind(self.stuck.left_behind.len());
            tracing::info!(%task, %epoch, "an abandoned processor has ended");
            let next = self.stuck.in_slots.iter().find(|(_, killed)| **killed);
            if let Some(next) = next.map(|(place, _)| *place) {
                self.leave_behind(next);
            }
        } else if self.stuck.in_slots.remove(&place).is_some()
            && let Some(lane) = self.lanes.get_mut(&id)
        {
            lane.core.handle_processor_gone(task, epoch, now);
        }
    }
}
