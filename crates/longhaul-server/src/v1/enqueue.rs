//! Routes that submit tasks.

use super::at::{QueryParams, QueueAt};
use super::new_task::{NewTaskBody, RawTerms, new_task};
use crate::auth::TokenScope;
use crate::clock;
use crate::core::{GatewayService, NewTask, QueueName, ServiceError, TaskName};
use crate::problem::ProblemDetails;
use crate::route::{ApiRoute, Method, Size};
use crate::shell::{Json, RawBody, in_plain_words};
use axum::extract::{RawQuery, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

/// The most tasks per batch.
const TASKS_MAX: usize = 1_000;

/// A task that was submitted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Submitted)]
pub(crate) struct SubmittedTaskBody {
    /// Its id in the queue; under a key that another task has, the id of that one.
    id: String,
    /// Now, by the gateway's clock.
    now: u64,
}

/// Tasks that are submitted together.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTasks {
    /// Up to 1,000; they are stored in this order as a rule. An entry that cannot be read is told in its place, and the others are submitted.
    #[schema(value_type = Vec<NewTaskBody>)]
    tasks: Vec<Value>,
}

/// What became of the tasks of a batch, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubmittedTasks {
    outcomes: Vec<SubmitOutcomeBody>,
    /// Now, by the gateway's clock.
    now: u64,
}

/// What became of an entry: its id, or why there is none.
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
        ApiRoute::new(Method::Post, "/v1/queues/{queue}/tasks", TokenScope::Submit, enqueue)
            .does("submit_task", "Submits a task; it is stored when this answers.")
            .query::<RawTerms>()
            .body_or_raw::<NewTaskBody>()
            .answers::<SubmittedTaskBody>(201, "It is stored."),
        ApiRoute::new(
            Method::Post,
            "/v1/queues/{queue}/tasks:batch",
            TokenScope::Submit,
            enqueue_all,
        )
        .does("submit_tasks", "Submits up to 1,000 tasks, and says of each what became of it.")
        .body::<NewTasks>()
        .takes(Size::Batch)
        .answers::<SubmittedTasks>(200, "What became of each, in their order."),
    ]
}

async fn enqueue(
    State(service): State<Arc<GatewayService>>,
    QueueAt { queue, .. }: QueueAt,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    QueryParams(terms): QueryParams<RawTerms>,
    body: RawBody,
) -> Result<Response, ProblemDetails> {
    let has_query = query.is_some_and(|query| !query.is_empty());
    let task = new_task(&headers, terms, has_query, body)?;
    let id = service.enqueue(&queue, task).await?;
    Ok(stored(&queue, id))
}

fn stored(queue: &QueueName, id: TaskName) -> Response {
    let id = id.to_string();
    let location = format!("/v1/queues/{queue}/tasks/{id}");
    let body = axum::Json(SubmittedTaskBody { id, now: clock::wall_ms() });
    (StatusCode::CREATED, [(LOCATION, location)], body).into_response()
}

async fn enqueue_all(
    State(service): State<Arc<GatewayService>>,
    QueueAt { queue, .. }: QueueAt,
    Json(NewTasks { tasks }): Json<NewTasks>,
) -> Result<axum::Json<SubmittedTasks>, ProblemDetails> {
    if tasks.len() > TASKS_MAX {
        let detail = format!(
            "a batch has up to {TASKS_MAX} tasks, this one has {}; nothing was submitted",
            tasks.len()
        );
        return Err(ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, "request_unfit", detail));
    }
    let read = |entry: Value| -> Result<NewTask, ServiceError> {
        if !entry.is_object() {
            return Err(ServiceError::Unfit("an entry of a batch is an object".to_owned()));
        }
        let body: Result<NewTaskBody, _> = serde_json::from_value(entry);
        body.map_err(|error| ServiceError::Unfit(in_plain_words(&error.to_string())))?.into_task()
    };
    let outcomes = service.enqueue_all(&queue, tasks.into_iter().map(read).collect()).await?;
    let outcome = |outcome: Result<TaskName, ServiceError>| match outcome {
        Ok(id) => SubmitOutcomeBody { id: Some(id.to_string()), error: None },
        Err(error) => SubmitOutcomeBody { id: None, error: Some(error.into()) },
    };
    let outcomes = outcomes.into_iter().map(outcome).collect();
    Ok(axum::Json(SubmittedTasks { outcomes, now: clock::wall_ms() }))
}
