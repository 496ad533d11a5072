//! Workers, by a gateway.

use super::{Gateway, queue_of, shown};
use crate::service::workers::{Seen, Worker, Workers, by_process};
use longhaul::WorkerIdentity;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Told {
    workers: Vec<ToldWorker>,
}

#[derive(Debug, Deserialize)]
struct ToldWorker {
    partition: i32,
    owner: String,
    worker: Option<WorkerIdentity>,
    last_heartbeat_at: Option<u64>,
    running: Vec<String>,
}

impl Workers for Gateway {
    async fn workers(&self, queue: &str) -> anyhow::Result<Vec<Worker>> {
        let (queue, _) = queue_of(queue)?;
        let told: Told = self.get(&["queues", &queue, "workers"], &[]).await?;
        let seen = |it: ToldWorker| Seen {
            partition: it.partition,
            owner: it.owner,
            identity: it.worker,
            last_heartbeat_ms: it.last_heartbeat_at,
            running: it.running.iter().map(|task| shown(&queue, task)).collect(),
        };
        Ok(by_process(told.workers.into_iter().map(seen)))
    }
}
