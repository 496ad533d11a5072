//! What is kept of an attempt that has ended, besides its outcome, until its end is shown: its log lines, and what the properties of its task's
//! message say, if the payload does not stay because it is too large to be shown. Most attempts leave nothing.

use super::held::Weigh;
use super::lane::{Lane, RunningAttempt, TaskPayload};
use crate::protocol::key::Epoch;
use crate::task::{TaskId, TaskMetadata};
use std::collections::BTreeMap;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Remains {
    log: Vec<String>,
    properties: BTreeMap<String, String>,
}

impl Weigh for (Epoch, Remains) {
    fn weight(&self) -> usize {
        let Remains { log, properties } = &self.1;
        let properties: usize =
            properties.iter().map(|(name, value)| name.len() + value.len()).sum();
        log.iter().map(String::len).sum::<usize>() + properties
    }
}

impl Lane {
    /// An attempt has ended, and its end will be shown.
    pub(super) fn keep_remains(&mut self, (task, epoch): (TaskId, Epoch), ran: &RunningAttempt) {
        let log = ran.checkpoints.reports.log();
        let payload = self.payloads.get(task).filter(|_| !self.is_shown(ran.payload_bytes));
        let properties = payload.map(|payload| payload.properties.clone()).unwrap_or_default();
        if !(log.is_empty() && properties.is_empty()) {
            self.remains.insert(task, (epoch, Remains { log, properties }));
        }
    }

    /// Completes the entry with which an attempt ends by what is left of it.
    pub(super) fn add_remains(&self, (task, epoch): (TaskId, Epoch), metadata: &mut TaskMetadata) {
        let remains = self.remains.get(task).filter(|(kept, _)| *kept == epoch);
        let Some((_, Remains { log, properties })) = remains else { return };
        metadata.log.clone_from(log);
        if !self.payloads.contains(task) {
            let properties = properties.clone();
            let payload = TaskPayload { properties, ..TaskPayload::default() };
            self.annotate_by(&payload, metadata);
        }
    }

    /// What was published of the task's end is of no more use.
    pub(super) fn drop_outcome(&mut self, id: TaskId) {
        self.outcome_bodies.remove(id);
        self.remains.remove(id);
    }
}
