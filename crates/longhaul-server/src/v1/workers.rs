//! Routes that list workers and drain them by name.

use super::actions::optional;
use super::at::{LevelAt, NamedAt, NoParams, QueryParams, ReasonBody};
use super::task_body::WorkerBody;
use crate::auth::TokenScope;
use crate::clock;
use crate::core::GatewayService;
use crate::problem::ProblemDetails;
use crate::route::{ApiRoute, Method};
use crate::shell::RawBody;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The workers of a queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerList {
    workers: Vec<QueueWorker>,
    /// Now, by the gateway's clock.
    now: u64,
}

/// A worker on one partition of a queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueueWorker {
    partition: i32,
    owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerBody>,
    /// By its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_heartbeat_at: Option<u64>,
    /// How many heartbeats were due since the last one, by the gateway's clock; one that is late by less than half an interval is not counted. Others take over what it runs when it is silent for two intervals, so at the latest when this is 2.
    missed_heartbeats: u64,
    /// The tasks that it runs.
    running: Vec<String>,
}

/// Who was told to drain.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToldToDrain {
    worker: WorkerBody,
    /// Now, by the gateway's clock.
    now: u64,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Method::Get, "/v1/queues/{queue}/workers", TokenScope::Read, list)
            .does("list_workers", "Who works on a queue, and on what.")
            .of_level()
            .answers::<WorkerList>(200, "The workers."),
        ApiRoute::new(Method::Post, "/v1/queues/{queue}/workers/{name}:drain", TokenScope::Admin, drain)
            .does(
                "drain_worker",
                "Has a worker drain, wherever it runs: it takes nothing new, lets its tasks end, and ends.",
            )
            .optional_body::<ReasonBody>()
            .answers::<ToldToDrain>(200, "It is told; it has left when it is not listed any more."),
    ]
}

async fn list(
    State(service): State<Arc<GatewayService>>,
    LevelAt { level, .. }: LevelAt,
    QueryParams(NoParams {}): QueryParams<NoParams>,
) -> Result<Json<WorkerList>, ProblemDetails> {
    let found = service.workers(&level).await?;
    let worker = |it: longhaul::ops::WorkerInfo| QueueWorker {
        partition: it.partition,
        owner: it.owner,
        worker: it.identity.as_deref().map(WorkerBody::from),
        last_heartbeat_at: it.last_heartbeat_ms,
        missed_heartbeats: it.missed_heartbeats,
        running: it.running.into_iter().map(|id| level.task(id).to_string()).collect(),
    };
    let workers = found.into_iter().map(worker).collect();
    Ok(Json(WorkerList { workers, now: clock::wall_ms() }))
}

async fn drain(
    State(service): State<Arc<GatewayService>>,
    NamedAt { queue, name, caller }: NamedAt,
    body: RawBody,
) -> Result<Json<ToldToDrain>, ProblemDetails> {
    let ReasonBody { reason } = optional(&body)?;
    let told = service.drain_worker(&queue, &name, caller.says(&reason)?).await?;
    Ok(Json(ToldToDrain { worker: WorkerBody::from(&*told), now: clock::wall_ms() }))
}
