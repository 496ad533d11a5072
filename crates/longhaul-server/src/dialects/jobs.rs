//! The routes of the dialect `jobs`: `/enqueue`, `/poll`, `/ack`, `/fail`, `/jobs`, `/dead`.

use super::held::{DialectLeaseStatus, settle};
use super::job_body::{JOBS_MAX, JobBody, Which, jobs};
use super::job_id::{job_id, task_of};
use super::{conflict, given, no_task, plain, queue, read, word};
use crate::auth::TokenScope::{Read, Submit, Work};
use crate::core::{NewTask, QueueName, Reporter, TaskName, name_of};
use crate::problem::ProblemDetails;
use crate::route::Method::{Get, Post};
use crate::route::{ApiRoute, Size};
use crate::shell::{Caller, RawBody};
use crate::v1::new_task::idempotency_key;
use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use longhaul::lease::{KeepAlive, LeaseOutcome, LeaseRequest};
use longhaul_api::new_task::NewTaskBody;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// The header with the maximum length of a list, if the list is cut.
const CAP_HEADER: HeaderName = HeaderName::from_static("longhaul-list-limit");

/// How long a job whose id does not fit is released for.
const UNFIT_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
struct Enqueue {
    #[serde(default)]
    payload: String,
}

#[derive(Debug, Deserialize)]
struct Poll {
    worker_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct JobReportBody {
    worker_id: Option<String>,
    job_id: Option<String>,
    lease_id: Option<i64>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    let all = |caller: Caller| list(caller, Which::All);
    let dead = |caller: Caller| list(caller, Which::Dead);
    vec![
        ApiRoute::new(Post, "/enqueue", Submit, enqueue).takes(Size::Task),
        ApiRoute::new(Post, "/poll", Work, poll).waits(),
        ApiRoute::new(Post, "/ack", Work, ack).goes_first(),
        ApiRoute::new(Post, "/fail", Work, fail).goes_first(),
        ApiRoute::new(Get, "/jobs", Read, all),
        ApiRoute::new(Get, "/dead", Read, dead),
    ]
}

async fn enqueue(
    caller: Caller,
    headers: HeaderMap,
    body: RawBody,
) -> Result<Response, ProblemDetails> {
    let queue = queue(&caller)?;
    let key = idempotency_key(&headers)?.filter(|key| !key.is_empty()).map(str::to_owned);
    // Dropped on every return: a key in a malformed request is free again.
    let _reserved = match &key {
        None => None,
        Some(key) => match caller.service.reserved.reserve(key) {
            Some(reserved) => Some(reserved),
            None => return Ok(StatusCode::CONFLICT.into_response()),
        },
    };
    let Enqueue { payload } = read(&body)?;
    let terms = NewTaskBody { idempotency_key: key.clone(), ..NewTaskBody::default() };
    let task = NewTask { payload: payload.into(), terms, ..NewTask::default() };
    let name = caller.service.enqueue(queue, task).await.map_err(plain)?;
    Ok(Json(json!({"job_id": id_of(name)?})).into_response())
}

fn id_of(task: TaskName) -> Result<String, ProblemDetails> {
    let id = job_id(task).map(|id| id.to_string());
    id.ok_or_else(|| {
        let detail = format!(
            "the job is stored as the task {task}, whose id does not fit into a UUID; use the native API for this queue"
        );
        let problem = ProblemDetails::new(StatusCode::INTERNAL_SERVER_ERROR, "job_id_unfit", detail);
        ProblemDetails { task: Some(task.to_string()), ..problem }
    })
}

async fn poll(caller: Caller, body: RawBody) -> Result<Response, ProblemDetails> {
    let queue = queue(&caller)?;
    let Poll { worker_id } = read(&body)?;
    let worker = word("worker_id", worker_id)?;
    let request = LeaseRequest::of(worker.clone()).by_name(true).wait(caller.poll_time(None));
    let granted =
        caller.service.lease(queue, request, &worker, caller.draining()).await.map_err(plain)?;
    let (leases, mut unsent) = granted.into_parts();
    let Some(lease) = leases.into_iter().next() else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    match id_of(name_of(&lease.task)) {
        Ok(id) => {
            let answer = Json(JobBody::of_lease(id, worker, &lease)).into_response();
            Ok(unsent.in_answer(answer))
        }
        Err(problem) => {
            let by = Reporter { queue, worker: Some(&worker) };
            let back = LeaseOutcome::Released { after: UNFIT_AFTER };
            caller.service.end_lease(by, &lease.token, KeepAlive::default(), back).await?;
            unsent.sent();
            Err(problem)
        }
    }
}

async fn ack(caller: Caller, body: RawBody) -> Result<StatusCode, ProblemDetails> {
    report(&caller, &body, |_| LeaseOutcome::Succeeded(bytes::Bytes::new())).await
}

async fn fail(caller: Caller, body: RawBody) -> Result<StatusCode, ProblemDetails> {
    let failed = |worker: &str| LeaseOutcome::Failed {
        message: format!("reported by {worker}"),
        fatal: false,
        retry_after: None,
    };
    report(&caller, &body, failed).await
}

async fn report(
    caller: &Caller,
    body: &RawBody,
    outcome: impl FnOnce(&str) -> LeaseOutcome,
) -> Result<StatusCode, ProblemDetails> {
    let queue = queue(caller)?;
    let JobReportBody { worker_id, job_id, lease_id } = read(body)?;
    let worker = word("worker_id", worker_id)?;
    let (id, number) = (word("job_id", job_id)?, given("lease_id", lease_id)?);
    let task = task_of(&id).ok_or_else(|| no_task("there is no job with this id"))?;
    let settled = settle(&caller.service, (queue, &worker), task, Some(number), outcome(&worker));
    match settled.await.map_err(plain)? {
        DialectLeaseStatus::Yes(_) | DialectLeaseStatus::Done => Ok(StatusCode::OK),
        DialectLeaseStatus::No(reason) => {
            record_rejected(queue, (task, &id), &worker, number, reason);
            Err(conflict(reason, &id))
        }
    }
}

/// Logs both the id in other events of the job and the id that its worker knows.
fn record_rejected(
    queue: &QueueName,
    (task, uuid): (TaskName, &str),
    worker: &str,
    lease_id: i64,
    reason: &str,
) {
    tracing::info!(
        target: "longhaul::tasks",
        event = "ack_rejected",
        %queue,
        job_id = %task,
        uuid,
        worker_id = worker,
        lease_id,
        reason,
    );
}

async fn list(caller: Caller, which: Which) -> Result<Response, ProblemDetails> {
    let queue = queue(&caller)?;
    let (jobs, more) = jobs(&caller.service, queue, which, caller.is_blind()).await?;
    let mut response = Json(jobs).into_response();
    if more {
        response.headers_mut().insert(CAP_HEADER, HeaderValue::from(JOBS_MAX));
    }
    Ok(response)
}
