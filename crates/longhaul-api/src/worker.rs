//! The workers of a queue.

use crate::task::WorkerBody;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// The workers of a queue.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct WorkerList {
    pub workers: Vec<QueueWorker>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// A worker on one partition of a queue.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct QueueWorker {
    pub partition: i32,
    /// The worker's id in the ledger of the partition; for a worker that holds leases, its name.
    pub owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerBody>,
    /// By the worker's clock; absent for a worker that holds leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// By the worker's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<u64>,
    /// How many heartbeats are missing since the last one, by the gateway's clock; one that is late by less than half an interval does not count. Other workers take over its tasks after a silence of two intervals, at the latest when this is 2.
    pub missed_heartbeats: u64,
    /// Whether the worker holds leases, as a worker over HTTP does; it is listed as long as it does. Its keep-alives count as heartbeats, of which two are due per lease time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds_leases: bool,
    /// The tasks that the worker runs.
    pub running: Vec<String>,
}

/// The worker that was told to drain.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ToldToDrain {
    pub worker: WorkerBody,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

impl WorkerList {
    /// The number of workers that are alive, other than gateways. A worker is listed for each
    /// partition.
    #[must_use]
    pub fn alive(&self) -> usize {
        let grants = |found: &QueueWorker| found.worker.as_ref().is_some_and(|it| it.grants_leases);
        let alive = self.workers.iter().filter(|found| !found.is_gone() && !grants(found));
        alive.map(QueueWorker::id).collect::<BTreeSet<_>>().len()
    }

    /// The tasks of workers that have fallen silent or left: others take them over.
    pub fn silent(&self) -> impl Iterator<Item = &str> {
        let left = self.workers.iter().filter(|found| found.leaves_tasks());
        left.flat_map(|found| &found.running).map(String::as_str)
    }

    /// The number of tasks that a worker runs on all its partitions.
    #[must_use]
    pub fn running(&self, id: &str) -> usize {
        let own = self.workers.iter().filter(|found| found.id() == id);
        own.map(|found| found.running.len()).sum()
    }
}

impl QueueWorker {
    /// Its instance, which is the same for all partitions and priority levels, or else its owner
    /// id, which is for one.
    #[must_use]
    pub fn id(&self) -> &str {
        let instance = self.worker.as_ref().map_or("", |worker| &worker.instance);
        if instance.is_empty() { &self.owner } else { instance }
    }

    /// Whether others take over what it runs: it has left, or was silent for two heartbeat
    /// intervals.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.last_heartbeat_at.is_none() || self.missed_heartbeats >= 2
    }

    /// Whether it is gone, and others take over tasks of it.
    #[must_use]
    pub const fn leaves_tasks(&self) -> bool {
        self.is_gone() && !self.running.is_empty()
    }

    /// The worker's name, or else its owner id.
    #[must_use]
    pub fn title(&self) -> String {
        self.worker.as_ref().map_or_else(|| self.owner.clone(), WorkerBody::title)
    }
}
