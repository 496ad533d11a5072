//! Routes that list workers and drain them by name.

use super::JsonAnswer;
use super::actions::optional;
use super::at::{LevelAt, NamedAt, NoParams, QueryParams};
use crate::auth::TokenScope::{Admin, Read};
use crate::clock;
use crate::core::ViewedTasks;
use crate::route::ApiRoute;
use crate::route::Method::{Get, Post};
use crate::shell::RawBody;
use axum::Json;
use longhaul::ops::{TaskView, WorkerInfo};
use longhaul_api::action::ReasonBody;
use longhaul_api::task::WorkerBody;
use longhaul_api::worker::{QueueWorker, ToldToDrain, WorkerList};

/// How long a silent worker that runs nothing is listed: it has died, and left its heartbeat.
const LISTED_MS: u64 = 3_600_000;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Get, "/v1/queues/{queue}/workers", Read, list)
            .does("list_workers", "Lists the workers of a queue and the tasks that they run.")
            .of_level()
            .answers::<WorkerList>(200, "The workers."),
        ApiRoute::new(Post, "/v1/queues/{queue}/workers/{name}:drain", Admin, drain)
            .does(
                "drain_worker",
                "Drains a worker, wherever it runs: it takes nothing new, finishes its tasks, and ends.",
            )
            .optional_body::<ReasonBody>()
            .answers::<ToldToDrain>(
                200,
                "The worker was told to drain. It has left when it is no longer listed.",
            ),
    ]
}

async fn list(
    LevelAt { level, caller }: LevelAt,
    QueryParams(NoParams {}): QueryParams<NoParams>,
) -> JsonAnswer<WorkerList> {
    let found = caller.service.ask(&level, ViewedTasks::Claimed, TaskView::workers).await?;
    let now = clock::wall_ms();
    let is_listed = |it: &WorkerInfo| {
        let silent_ms = now.saturating_sub(it.last_heartbeat_ms.unwrap_or(now));
        silent_ms < LISTED_MS || !it.running.is_empty()
    };
    let worker = |it: WorkerInfo| QueueWorker {
        partition: it.partition,
        owner: it.owner,
        worker: it.identity.as_deref().map(WorkerBody::from),
        started_at: it.started_ms,
        last_heartbeat_at: it.last_heartbeat_ms,
        missed_heartbeats: it.missed_heartbeats,
        holds_leases: it.holds_leases,
        running: it.running.into_iter().map(|id| level.task(id).to_string()).collect(),
    };
    let workers = found.into_iter().filter(is_listed).map(worker).collect();
    Ok(Json(WorkerList { workers, now }))
}

async fn drain(NamedAt { queue, name, caller }: NamedAt, body: RawBody) -> JsonAnswer<ToldToDrain> {
    let ReasonBody { reason } = optional(&body)?;
    let told = caller.service.drain_worker(&queue, &name, caller.says(&reason)?).await?;
    Ok(Json(ToldToDrain { worker: WorkerBody::from(&*told), now: clock::wall_ms() }))
}
