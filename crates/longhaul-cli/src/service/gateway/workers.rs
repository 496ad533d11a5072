//! Workers.

use super::GatewayClient;
use super::address::QueueAddress;
use crate::service::workers::{PartitionWorker, WorkerProcess, by_process};
use longhaul::WorkerIdentity;
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
struct WorkerListResponse {
    workers: Vec<ToldWorker>,
}

#[derive(Debug, Deserialize)]
struct ToldWorker {
    partition: i32,
    owner: String,
    worker: Option<WorkerIdentityResponse>,
    last_heartbeat_at: Option<u64>,
    /// Older gateways do not send it.
    #[serde(default)]
    missed_heartbeats: u64,
    running: Vec<String>,
}

/// The identity of a worker. A gateway names fields differently.
#[derive(Debug, Deserialize)]
struct WorkerIdentityResponse {
    #[serde(flatten)]
    identity: WorkerIdentity,
    #[serde(default)]
    grants_leases: bool,
}

impl From<WorkerIdentityResponse> for WorkerIdentity {
    fn from(
        WorkerIdentityResponse { mut identity, grants_leases }: WorkerIdentityResponse,
    ) -> Self {
        identity.grants_leases |= grants_leases;
        identity
    }
}

#[derive(Debug, Deserialize)]
struct DrainResponse {
    worker: WorkerIdentity,
}

impl GatewayClient {
    /// The workers of a queue, once per owner id.
    pub(crate) async fn owners(&self, queue: &str) -> anyhow::Result<Vec<PartitionWorker>> {
        let of = QueueAddress::of(queue)?;
        let told: WorkerListResponse = self.get(&of.below(&["workers"]), &[]).await?;
        let seen = |it: ToldWorker| PartitionWorker {
            partition: it.partition,
            owner: it.owner,
            identity: it.worker.map(Into::into),
            last_heartbeat_ms: it.last_heartbeat_at,
            missed_heartbeats: it.missed_heartbeats,
            running: it.running.iter().map(|task| of.shown(task)).collect(),
        };
        Ok(told.workers.into_iter().map(seen).collect())
    }

    /// The workers of a queue, one per process, by name.
    pub(crate) async fn workers(&self, queue: &str) -> anyhow::Result<Vec<WorkerProcess>> {
        Ok(by_process(self.owners(queue).await?.into_iter()))
    }

    /// Drains the worker of this name. Returns its instance.
    pub(crate) async fn drain(
        &self,
        queue: &str,
        name: &str,
        reason: &str,
    ) -> anyhow::Result<String> {
        let to = QueueAddress::of(queue)?.below(&["workers", name]).verb("drain");
        let told: DrainResponse = self.post(&to, &json!({ "reason": reason })).await?;
        Ok(told.worker.instance)
    }
}
