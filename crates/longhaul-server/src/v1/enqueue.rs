//! Routes that submit tasks.

use super::JsonAnswer;
use super::at::{QueryParams, QueueAt};
use super::batch::{BatchEntries, entry};
use super::new_task::{RawTerms, into_task, new_task};
use crate::auth::TokenScope::Submit;
use crate::clock;
use crate::core::{NewTask, QueueName, ServiceError, TaskName};
use crate::problem::ProblemDetails;
use crate::route::Method::Post;
use crate::route::{ApiRoute, Size};
use crate::shell::RawBody;
use axum::extract::RawQuery;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use longhaul_api::new_task::NewTaskBody;
use longhaul_api::task::SubmittedTaskBody;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// The most tasks per batch.
const TASKS_MAX: usize = 1_000;

/// Tasks that are submitted together.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTasks<'a> {
    /// Up to 1,000 tasks, usually stored in this order. An unreadable entry gets an error in its place; the others are submitted.
    #[serde(borrow)]
    #[schema(value_type = Vec<NewTaskBody>)]
    tasks: BatchEntries<'a, TASKS_MAX>,
}

/// The outcomes of the tasks of a batch, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubmittedTasks {
    outcomes: Vec<SubmitOutcomeBody>,
    /// The gateway's current time, in ms since the epoch.
    now: u64,
}

/// The outcome of an entry: the id of its task, or an error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Outcome)]
pub(crate) struct SubmitOutcomeBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ProblemDetails>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Post, "/v1/queues/{queue}/tasks", Submit, enqueue)
            .does("submit_task", "Submits a task. When the gateway answers, the task is stored.")
            .query::<RawTerms>()
            .header(
                "Idempotency-Key",
                "The idempotency key of the task, instead of `idempotency_key`.",
            )
            .body_or_raw::<NewTaskBody>()
            .answers::<SubmittedTaskBody>(201, "The task is stored."),
        ApiRoute::new(Post, "/v1/queues/{queue}/tasks:batch", Submit, enqueue_all)
            .does("submit_tasks", "Submits up to 1,000 tasks, and returns the outcome of each.")
            .body::<NewTasks<'_>>()
            .takes(Size::Batch)
            .answers::<SubmittedTasks>(200, "The outcome of each task, in their order."),
    ]
}

async fn enqueue(
    QueueAt { queue, caller }: QueueAt,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    QueryParams(terms): QueryParams<RawTerms>,
    body: RawBody,
) -> Result<Response, ProblemDetails> {
    let has_query = query.is_some_and(|query| !query.is_empty());
    let task = new_task(&headers, terms, has_query, body)?;
    let id = caller.service.enqueue(&queue, task).await?;
    Ok(stored(&queue, id))
}

fn stored(queue: &QueueName, id: TaskName) -> Response {
    let id = id.to_string();
    let location = format!("/v1/queues/{queue}/tasks/{id}");
    let body = axum::Json(SubmittedTaskBody { id, now: clock::wall_ms() });
    (StatusCode::CREATED, [(LOCATION, location)], body).into_response()
}

fn task_of(text: &RawValue) -> Result<NewTask, ServiceError> {
    into_task(entry::<NewTaskBody>(text)?)
}

async fn enqueue_all(
    QueueAt { queue, caller }: QueueAt,
    body: RawBody,
) -> JsonAnswer<SubmittedTasks> {
    let NewTasks { tasks } = body.json()?;
    let tasks = tasks.checked("tasks", "nothing was submitted")?;
    let outcomes = caller.service.enqueue_all(&queue, tasks.into_iter().map(task_of)).await?;
    let outcome = |outcome: Result<TaskName, ServiceError>| match outcome {
        Ok(id) => SubmitOutcomeBody { id: Some(id.to_string()), error: None },
        Err(error) => SubmitOutcomeBody { id: None, error: Some(error.into()) },
    };
    let outcomes = outcomes.into_iter().map(outcome).collect();
    Ok(axum::Json(SubmittedTasks { outcomes, now: clock::wall_ms() }))
}
