//! The routes of the dialect `dqueue`: `/tasks`, `/tasks/lease`, `/tasks/{id}`, `/tasks/{id}/ack`,
//! `/tasks/{id}/nack`, `/stats`.
//!
//! DQueue defines the routes, the states and their transitions; the body fields are our own.

use super::held::{DialectLeaseStatus, settle};
use super::task_body::{DialectTaskBody, priority_of, stats, task};
use super::{conflict, malformed, no_task, plain, queue, read, word};
use crate::auth::TokenScope::{Read, Submit, Work};
use crate::core::{NewTask, QueueName, TaskName, with};
use crate::problem::ProblemDetails;
use crate::route::Method::{Get, Post};
use crate::route::{ApiRoute, Size};
use crate::shell::{Caller, RawBody};
use crate::v1::new_task::{CONTENT_TYPE_PROPERTY, idempotency_key};
use crate::v1::values::json_bytes;
use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use longhaul::lease::{LeaseOutcome, LeaseRequest};
use longhaul_api::new_task::NewTaskBody;
use longhaul_api::values::{Length, present};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// The content type of a JSON payload.
pub(super) const JSON: &str = "application/json";

#[derive(Debug, Deserialize)]
struct SubmitTaskBody {
    /// `null` is a payload, too.
    #[serde(default, deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    #[serde(default)]
    priority: i64,
    max_retries: Option<u32>,
    idempotency_key: Option<String>,
}

#[derive(Debug, Deserialize)]
struct TaskLeaseBody {
    worker_id: Option<String>,
    /// How long the task is invisible to other workers.
    visibility_timeout: Option<Length>,
    wait: Option<Length>,
}

#[derive(Debug, Deserialize)]
struct TaskReportBody {
    worker_id: Option<String>,
    lease_id: Option<i64>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    reason: Option<String>,
}

type DialectResult = Result<Response, ProblemDetails>;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Post, "/tasks", Submit, submit).takes(Size::Task),
        ApiRoute::new(Post, "/tasks/lease", Work, lease).waits(),
        ApiRoute::new(Get, "/tasks/{task}", Read, show),
        ApiRoute::new(Post, "/tasks/{task}/ack", Work, ack).takes(Size::Task).goes_first(),
        ApiRoute::new(Post, "/tasks/{task}/nack", Work, nack).goes_first(),
        ApiRoute::new(Get, "/stats", Read, statistics),
    ]
}

fn is_text(json: &RawValue) -> bool {
    json.get().starts_with('"')
}

/// The stored bytes of a JSON value: a text without its quotes, anything else as it was sent.
fn text_or_json(json: Option<Box<RawValue>>) -> Result<Bytes, ProblemDetails> {
    match json {
        None => Ok(Bytes::new()),
        Some(json) if is_text(&json) => {
            let text: Result<String, _> = serde_json::from_str(json.get());
            text.map(Bytes::from).map_err(malformed)
        }
        Some(json) => Ok(json_bytes(json)),
    }
}

fn name(text: &str) -> Result<TaskName, ProblemDetails> {
    text.parse().map_err(|_| no_task("there is no task with this id"))
}

async fn submit(caller: Caller, headers: HeaderMap, body: RawBody) -> DialectResult {
    let queue = queue(&caller)?;
    let new: SubmitTaskBody = read(&body)?;
    let header = idempotency_key(&headers)?;
    let key = new.idempotency_key.as_deref().or(header).filter(|key| !key.is_empty());
    let mut properties = BTreeMap::new();
    if new.payload.as_deref().is_some_and(|json| !is_text(json)) {
        properties.insert(CONTENT_TYPE_PROPERTY.to_owned(), JSON.to_owned());
    }
    let payload = text_or_json(new.payload)?;
    let terms = NewTaskBody {
        properties,
        priority: priority_of(new.priority),
        max_attempts: new.max_retries.map(|retries| retries.saturating_add(1)),
        idempotency_key: key.map(str::to_owned),
        ..NewTaskBody::default()
    };
    let new = NewTask { payload, terms, ..NewTask::default() };
    let name = caller.service.enqueue(queue, new).await.map_err(plain)?;
    Ok((StatusCode::CREATED, task_answer(&caller, queue, name).await?).into_response())
}

async fn lease(caller: Caller, body: RawBody) -> DialectResult {
    let queue = queue(&caller)?;
    let TaskLeaseBody { worker_id, visibility_timeout, wait } = read(&body)?;
    let worker = word("worker_id", worker_id)?;
    let wait = wait.map_or(Duration::ZERO, |wait| caller.poll_time(Some(wait.0)));
    let request = LeaseRequest::of(worker.clone()).by_name(true).wait(wait);
    let request = with(request, visibility_timeout.map(|it| it.0), LeaseRequest::lease_time);
    let granted = caller.service.lease(queue, request, &worker, caller.draining()).await;
    let (leases, unsent) = granted.map_err(plain)?.into_parts();
    Ok(match leases.into_iter().next() {
        Some(lease) => {
            unsent.in_answer(Json(DialectTaskBody::of_lease(worker, &lease)).into_response())
        }
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// The answer with a task in its current state.
async fn task_answer(caller: &Caller, queue: &QueueName, name: TaskName) -> DialectResult {
    let task = task(&caller.service, queue, name, caller.is_blind()).await.map_err(plain)?;
    Ok(Json(task).into_response())
}

async fn show(caller: Caller, Path(id): Path<String>) -> DialectResult {
    task_answer(&caller, queue(&caller)?, name(&id)?).await
}

async fn ack(caller: Caller, Path(id): Path<String>, body: RawBody) -> DialectResult {
    let outcome = |_: &str, report: &mut TaskReportBody| {
        Ok(LeaseOutcome::Succeeded(text_or_json(report.result.take())?))
    };
    report(&caller, &id, &body, outcome).await
}

async fn nack(caller: Caller, Path(id): Path<String>, body: RawBody) -> DialectResult {
    let outcome = |worker: &str, report: &mut TaskReportBody| {
        let message = report.reason.take().unwrap_or_else(|| format!("nack by {worker}"));
        Ok(LeaseOutcome::Failed { message, fatal: false, retry_after: None })
    };
    report(&caller, &id, &body, outcome).await
}

async fn report(
    caller: &Caller,
    id: &str,
    body: &RawBody,
    outcome: impl FnOnce(&str, &mut TaskReportBody) -> Result<LeaseOutcome, ProblemDetails>,
) -> DialectResult {
    let queue = queue(caller)?;
    let mut report: TaskReportBody = read(body)?;
    let worker = word("worker_id", report.worker_id.take())?;
    let task = name(id)?;
    let outcome = outcome(&worker, &mut report)?;
    let is_ack = matches!(outcome, LeaseOutcome::Succeeded(_));
    let settled = settle(&caller.service, (queue, &worker), task, report.lease_id, outcome);
    match settled.await.map_err(plain)? {
        DialectLeaseStatus::Done if is_ack => {}
        DialectLeaseStatus::Done => return Err(conflict("task_ended", id)),
        DialectLeaseStatus::No(reason) => return Err(conflict(reason, id)),
        DialectLeaseStatus::Yes(_) => {}
    }
    task_answer(caller, queue, task).await
}

async fn statistics(caller: Caller) -> DialectResult {
    let counted = stats(&caller.service, queue(&caller)?).await.map_err(plain)?;
    Ok(Json(counted).into_response())
}
