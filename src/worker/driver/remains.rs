//! Data of an ended attempt that is kept, besides its outcome, until its end is shown: its log
//! lines, and the properties of the task's message if the payload is too large to be shown and is
//! dropped. Most attempts leave nothing.

use super::held::Weigh;
use super::lane::{PartitionDriver, RunningAttempt, TaskPayload};
use bytes::Bytes;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::task::{TaskId, TaskMetadata};

/// Data of an ended attempt. See the module's documentation.
#[derive(Debug)]
pub(super) struct Remains {
    log: Vec<String>,
    /// The payload without its bytes.
    payload: Option<TaskPayload>,
}

impl Weigh for (Epoch, Remains) {
    fn weight(&self) -> usize {
        let Remains { log, payload } = &self.1;
        log.iter().map(String::len).sum::<usize>() + payload.as_ref().map_or(0, Weigh::weight)
    }
}

impl PartitionDriver {
    /// Keeps the remains of an ended attempt whose end will be shown.
    pub(super) fn keep_remains(&mut self, (task, epoch): (TaskId, Epoch), ran: &RunningAttempt) {
        let log = ran.checkpoints.reports.log();
        let is_large = !self.is_shown(ran.payload_bytes);
        let payload = if is_large { self.payloads.get(task) } else { None };
        let payload = payload.filter(|payload| !payload.properties.is_empty());
        let without_bytes =
            |payload: &TaskPayload| TaskPayload { bytes: Bytes::new(), ..payload.clone() };
        let payload = payload.map(without_bytes);
        if !log.is_empty() || payload.is_some() {
            self.remains.insert(task, (epoch, Remains { log, payload }));
        }
    }

    /// Completes the metadata entry of an ended attempt by its remains.
    pub(super) fn add_remains(&self, (task, epoch): (TaskId, Epoch), metadata: &mut TaskMetadata) {
        let remains = self.remains.get(task).filter(|(kept, _)| *kept == epoch);
        let Some((_, Remains { log, payload })) = remains else { return };
        metadata.log.clone_from(log);
        if let Some(payload) = payload
            && !self.payloads.contains(task)
        {
            self.annotate_by(payload, metadata);
        }
    }

    /// Drops the outcome and remains of a task; they are no longer needed.
    pub(super) fn drop_outcome(&mut self, id: TaskId) {
        self.outcome_bodies.remove(id);
        self.remains.remove(id);
    }
}
