//! Routes that lease tasks to workers and take their reports.

use super::JsonAnswer;
use super::at::{LeaseAt, QueueAt, TaskAt};
use super::batch::{BatchEntries, entry};
use super::lease_body::{
    ConfirmBody, KeepAliveBody, LeaseHolder, LeaseReport, LeaseRequestBody, LeasesBody, ReportBody,
    ReportedBody,
};
use crate::auth::TokenScope::{Read, Work};
use crate::clock;
use crate::core::{GatewayService, QueueName, Reporter, ServiceError};
use crate::problem::{NoLease, ProblemDetails};
use crate::route::Method::{Get, Post};
use crate::route::{ApiRoute, Size};
use crate::shell::{Json, RawBody};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt};
use longhaul::lease::LeaseToken;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;
use utoipa::ToSchema;

/// The most reports per batch.
const REPORTS_MAX: usize = 100;

/// Reports on several leases.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reports)]
pub(crate) struct ReportsBody<'a> {
    /// Up to 100 reports, one for each lease: several for one lease may count in any order. An unreadable report gets an error in its place; the others count.
    #[serde(borrow)]
    #[schema(value_type = Vec<ReportBody>)]
    reports: BatchEntries<'a, REPORTS_MAX>,
}

/// The outcomes of the reports of a batch, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportOutcomes {
    outcomes: Vec<ReportOutcome>,
    /// The gateway's current time, in ms since the epoch.
    now: u64,
}

/// The outcome of a report.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportOutcome {
    /// `RESULT_OK`: the report counts. `NOT_FOUND`: there is no such task. `NOT_IN_PROGRESS`: the lease has expired, or the task is over. `STALE_ATTEMPT`: another worker has the task. `REJECTED`: the report cannot be used. `UNKNOWN`: the report may count or not; send it again.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<ReportedBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ProblemDetails>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Post, "/v1/queues/{queue}/leases", Work, lease)
            .waits()
            .does("lease_tasks", "Leases up to `count` tasks to a worker, as soon as there is one.")
            .body::<LeaseRequestBody>()
            .answers::<LeasesBody>(200, "The leased tasks.")
            .answers_empty(204, "No task came in time."),
        ApiRoute::new(Post, "/v1/queues/{queue}/leases:confirm", Work, confirm)
            .goes_first()
            .does(
                "confirm_leases",
                "Confirms that a worker has got its leases, and returns which of them it still has.",
            )
            .body::<ConfirmBody>()
            .answers::<ReportOutcomes>(200, "The outcome for each lease, in their order."),
        ApiRoute::new(Post, "/v1/queues/{queue}/leases:report", Work, report_named)
            .goes_first()
            .does("report", "Reports the state or the end of the work under a lease.")
            .body::<ReportBody>()
            .takes(Size::Task)
            .answers::<ReportedBody>(200, "The report counts."),
        ApiRoute::new(Post, "/v1/queues/{queue}/leases:report-batch", Work, report_all)
            .goes_first()
            .does(
                "report_batch",
                "Reports on up to 100 leases, and returns the outcome of each report.",
            )
            .body::<ReportsBody<'_>>()
            .takes(Size::Batch)
            .answers::<ReportOutcomes>(200, "The outcome of each report, in their order."),
        ApiRoute::new(Post, "/v1/queues/{queue}/leases/{lease}:report", Work, report)
            .goes_first()
            .does(
                "report_lease",
                "Reports the state or the end of the work under the lease in the path.",
            )
            .body::<ReportBody>()
            .takes(Size::Task)
            .answers::<ReportedBody>(200, "The report counts."),
        ApiRoute::new(Post, "/v1/queues/{queue}/leases/{lease}:keep-alive", Work, keep)
            .goes_first()
            .does(
                "keep_lease_alive",
                "Keeps a lease alive, and takes progress, log lines and a checkpoint.",
            )
            .body::<KeepAliveBody>()
            .answers::<ReportedBody>(200, "The lease continues."),
        ApiRoute::new(Get, "/v1/queues/{queue}/tasks/{task}/lease", Read, find)
            .does("get_lease_holder", "Returns the worker that has leased a task.")
            .answers::<LeaseHolder>(200, "The current lease of the task."),
    ]
}

async fn lease(
    QueueAt { queue, caller }: QueueAt,
    Json(body): Json<LeaseRequestBody>,
) -> Result<Response, ProblemDetails> {
    let wait = body.wait.map_or(Duration::ZERO, |wait| caller.poll_time(Some(wait.0)));
    let worker = body.worker.clone();
    let request = body.into_request(wait)?;
    let granted = caller.service.lease(&queue, request, &worker, caller.draining()).await?;
    let (leases, unsent) = granted.into_parts();
    if leases.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let leases = leases.into_iter().map(Into::into).collect();
    let answer = axum::Json(LeasesBody { leases, now: clock::wall_ms() }).into_response();
    Ok(unsent.in_answer(answer))
}

async fn confirm(
    QueueAt { queue, caller }: QueueAt,
    Json(body): Json<ConfirmBody>,
) -> Result<Response, ProblemDetails> {
    let by = Reporter { queue: &queue, worker: None };
    let one = |token: Result<LeaseToken, ServiceError>| {
        let service = &caller.service;
        async move {
            let kept = service.confirm_lease(by, &token?).await?;
            Ok(ReportedBody::kept(&kept, Vec::new(), clock::wall_ms()))
        }
    };
    Ok(outcomes(body.tokens()?.into_iter().map(one)).await)
}

/// Processes the reports of a batch concurrently, and answers them in their order.
async fn outcomes<F>(reports: impl Iterator<Item = F>) -> Response
where
    F: Future<Output = Result<ReportedBody, ServiceError>>,
{
    let told = stream::iter(reports).buffered(REPORTS_MAX);
    let outcomes: Vec<_> = told.map(outcome).collect().await;
    let no_lease = |it: &ReportOutcome| it.error.as_ref().is_some_and(ProblemDetails::is_no_lease);
    let no_lease = outcomes.iter().all(no_lease);
    let mut response =
        axum::Json(ReportOutcomes { outcomes, now: clock::wall_ms() }).into_response();
    if no_lease {
        response.extensions_mut().insert(NoLease);
    }
    response
}

async fn tell(
    service: &GatewayService,
    queue: &QueueName,
    token: &LeaseToken,
    report: LeaseReport,
) -> Result<ReportedBody, ServiceError> {
    let by = Reporter { queue, worker: None };
    match report.outcome {
        Some(outcome) => {
            service.end_lease(by, token, report.keep, outcome).await?;
            Ok(ReportedBody::over(report.warnings, clock::wall_ms()))
        }
        None => {
            let kept = service.keep_alive(by, token, report.keep).await?;
            Ok(ReportedBody::kept(&kept, report.warnings, clock::wall_ms()))
        }
    }
}

async fn report_named(
    QueueAt { queue, caller }: QueueAt,
    Json(body): Json<ReportBody>,
) -> JsonAnswer<ReportedBody> {
    let token = body.token()?;
    Ok(axum::Json(tell(&caller.service, &queue, &token, body.into_report()?).await?))
}

async fn report(
    LeaseAt { queue, lease, caller }: LeaseAt,
    Json(body): Json<ReportBody>,
) -> JsonAnswer<ReportedBody> {
    body.check_unnamed()?;
    Ok(axum::Json(tell(&caller.service, &queue, &lease, body.into_report()?).await?))
}

async fn keep(
    LeaseAt { queue, lease, caller }: LeaseAt,
    Json(body): Json<KeepAliveBody>,
) -> JsonAnswer<ReportedBody> {
    Ok(axum::Json(tell(&caller.service, &queue, &lease, body.into_report()).await?))
}

async fn report_all(
    QueueAt { queue, caller }: QueueAt,
    body: RawBody,
) -> Result<Response, ProblemDetails> {
    let ReportsBody { reports } = body.json()?;
    let reports = reports.checked("reports", "none of them counts")?;
    let one = |report: &RawValue| {
        let body = entry::<ReportBody>(report);
        let (service, queue) = (&caller.service, &queue);
        async move {
            let body = body?;
            let token = body.token()?;
            tell(service, queue, &token, body.into_report()?).await
        }
    };
    Ok(outcomes(reports.into_iter().map(one)).await)
}

fn outcome(told: Result<ReportedBody, ServiceError>) -> ReportOutcome {
    let error = match told {
        Ok(lease) => {
            return ReportOutcome { outcome: "RESULT_OK", lease: Some(lease), error: None };
        }
        Err(error) => ProblemDetails::from(error),
    };
    let outcome = match error.code {
        "task_not_found" => "NOT_FOUND",
        "lease_expired" | "task_ended" => "NOT_IN_PROGRESS",
        "stale_lease_id" | "not_current_lease_owner" => "STALE_ATTEMPT",
        _ if error.status.is_server_error() => "UNKNOWN",
        _ => "REJECTED",
    };
    ReportOutcome { outcome, lease: None, error: Some(error) }
}

async fn find(TaskAt { queue, task, caller }: TaskAt) -> JsonAnswer<LeaseHolder> {
    match caller.service.lease_of(&queue, task).await? {
        Some(view) => Ok(axum::Json(LeaseHolder::of(task, view, clock::wall_ms()))),
        None => {
            let detail = format!("the task {task} is not leased now");
            Err(ProblemDetails::new(StatusCode::NOT_FOUND, "lease_not_found", detail))
        }
    }
}
