//! Workers, through a gateway.

use super::{GatewayClient, GatewayRoute, level_of, shown};
use crate::service::workers::{PartitionWorker, WorkerLookup, Workers};
use longhaul::WorkerIdentity;
use longhaul_api::QueueLevel;
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

/// Queries a gateway.
pub(crate) struct GatewayLook {
    gateway: GatewayClient,
    of: QueueLevel,
}

impl Workers for GatewayClient {
    type Look = GatewayLook;

    async fn look(&self, queue: &str) -> anyhow::Result<GatewayLook> {
        Ok(GatewayLook { gateway: self.clone(), of: level_of(queue)? })
    }
}

impl WorkerLookup for GatewayLook {
    async fn seen(&self) -> anyhow::Result<Vec<PartitionWorker>> {
        let Self { gateway, of } = self;
        let from = GatewayRoute::below(of, &["workers"]);
        let told: WorkerListResponse = gateway.get(&from, &[]).await?;
        let seen = |it: ToldWorker| PartitionWorker {
            partition: it.partition,
            owner: it.owner,
            identity: it.worker.map(Into::into),
            last_heartbeat_ms: it.last_heartbeat_at,
            missed_heartbeats: it.missed_heartbeats,
            running: it.running.iter().map(|task| shown(of.queue(), task)).collect(),
        };
        Ok(told.workers.into_iter().map(seen).collect())
    }

    async fn drain(&self, name: &str, reason: &str) -> anyhow::Result<String> {
        let to = GatewayRoute::below(&self.of, &["workers", name]).verb("drain");
        let told: DrainResponse = self.gateway.post(&to, &json!({ "reason": reason })).await?;
        Ok(told.worker.instance)
    }

    async fn pause(&self, failure: anyhow::Error) -> anyhow::Result<()> {
        self.gateway.way.pause(failure).await
    }

    fn back(&self) {
        self.gateway.way.back();
    }
}
