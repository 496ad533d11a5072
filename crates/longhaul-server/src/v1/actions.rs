//! Routes for operator actions on tasks: each takes a reason, which is logged.

use super::JsonAnswer;
use super::at::{QueryParams, SomeLevelAt, TaskAt};
use super::tasks::limit_of;
use crate::auth::TokenScope::{Admin, Read};
use crate::clock;
use crate::core::{ServiceError, name_of};
use crate::problem::ProblemDetails;
use crate::route::ApiRoute;
use crate::route::Method::{Delete, Get, Post};
use crate::shell::RawBody;
use axum::Json;
use axum::http::StatusCode;
use longhaul_api::action::{
    ActionBody, ActionList, ForceReason, ReasonBody, RescheduleBody, TaskAction,
};
use longhaul_api::task::Restarted;
use longhaul_api::values::Instant;
use serde::Deserialize;
use std::time::Duration;
use utoipa::IntoParams;

/// The most actions in a list.
const RECORDS_MAX: usize = 10_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct LogQuery {
    /// The most actions to return, the newest ones: 1 to 10,000, 100 by default.
    limit: Option<usize>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    let cancel = |at: TaskAt, body: RawBody| end(at, body, TaskAction::Cancel);
    let kill = |at: TaskAt, body: RawBody| end(at, body, TaskAction::Kill);
    let fail = |at: TaskAt, body: RawBody| force(at, body, TaskAction::ForceFail);
    let release = |at: TaskAt, body: RawBody| force(at, body, TaskAction::ForceRelease);
    let done = "The action is done and logged.";
    vec![
        ApiRoute::new(Post, "/v1/queues/{queue}/tasks/{task}:cancel", Admin, cancel)
            .does(
                "cancel_task",
                "Requests the end of a task. A running task may end in its own way.",
            )
            .optional_body::<ReasonBody>()
            .answers_empty(204, "The request is stored."),
        ApiRoute::new(Post, "/v1/queues/{queue}/tasks/{task}:kill", Admin, kill)
            .does("kill_task", "Requests the end of a task, without waiting for its processor.")
            .optional_body::<ReasonBody>()
            .answers_empty(204, "The request is stored."),
        ApiRoute::new(Delete, "/v1/queues/{queue}/tasks/{task}", Admin, delete)
            .does("delete_task", "Closes a task as cancelled, whatever its status.")
            .query::<ReasonQuery>()
            .answers_empty(204, done),
        ApiRoute::new(Post, "/v1/queues/{queue}/tasks/{task}:force-fail", Admin, fail)
            .does("force_fail_task", "Closes a task as failed for good.")
            .optional_body::<ForceReason>()
            .answers_empty(204, done),
        ApiRoute::new(Post, "/v1/queues/{queue}/tasks/{task}:force-release", Admin, release)
            .does(
                "force_release_task",
                "Takes a running task from its worker. Another attempt follows.",
            )
            .optional_body::<ForceReason>()
            .answers_empty(204, done),
        ApiRoute::new(Get, "/v1/queues/{queue}/actions", Read, log)
            .does(
                "list_actions",
                "Lists operators' actions on the queue, its tasks, workers and schedules.",
            )
            .of_some_level()
            .query::<LogQuery>()
            .answers::<ActionList>(200, "The newest actions, the oldest first."),
        ApiRoute::new(Post, "/v1/queues/{queue}/tasks/{task}:reschedule", Admin, reschedule)
            .does(
                "reschedule_task",
                "Starts a waiting task now, delays it, or holds it. The task may wait for its first attempt or another one.",
            )
            .body::<RescheduleBody>()
            .answers_empty(204, done),
        ApiRoute::new(Post, "/v1/queues/{queue}/tasks/{task}:retry", Admin, retry)
            .does("retry_task", "Restarts a task that failed for good, as a new task.")
            .optional_body::<ReasonBody>()
            .answers::<Restarted>(200, "The new task."),
    ]
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReasonQuery {
    /// The reason: up to 1,000 bytes, for the log of actions.
    pub(crate) reason: String,
}

/// Reads an optional body.
pub(crate) fn optional<T: serde::de::DeserializeOwned + Default>(
    body: &RawBody,
) -> Result<T, ProblemDetails> {
    if body.bytes.is_empty() { Ok(T::default()) } else { body.json() }
}

async fn act(
    TaskAt { queue, task, caller }: TaskAt,
    action: TaskAction,
    reason: &str,
) -> Result<StatusCode, ProblemDetails> {
    caller.service.act(&queue, task, action, caller.says(reason)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn end(at: TaskAt, body: RawBody, action: TaskAction) -> Result<StatusCode, ProblemDetails> {
    let ReasonBody { reason } = optional(&body)?;
    act(at, action, &reason).await
}

async fn delete(
    at: TaskAt,
    QueryParams(ReasonQuery { reason }): QueryParams<ReasonQuery>,
) -> Result<StatusCode, ProblemDetails> {
    act(at, TaskAction::Delete, &reason).await
}

async fn force(
    at: TaskAt,
    body: RawBody,
    action: fn(Option<u32>) -> TaskAction,
) -> Result<StatusCode, ProblemDetails> {
    let ForceReason { reason, epoch } = optional(&body)?;
    act(at, action(epoch), &reason).await
}

async fn reschedule(at: TaskAt, body: RawBody) -> Result<StatusCode, ProblemDetails> {
    let (body, now) = (body.json::<RescheduleBody>()?, clock::wall_ms());
    let until = |at: Instant| Duration::from_millis(at.ms().saturating_sub(now));
    let delay = match (body.delay, body.at) {
        (Some(delay), None) => delay.0,
        (None, Some(at)) => until(at),
        (Some(_), Some(_)) | (None, None) => {
            let detail = "no start time is given: set `delay` (`0s`: now) or `at`";
            return Err(ServiceError::Unfit(detail.to_owned()).into());
        }
    };
    act(at, TaskAction::Reschedule(delay), &body.reason).await
}

async fn retry(TaskAt { queue, task, caller }: TaskAt, body: RawBody) -> JsonAnswer<Restarted> {
    let ReasonBody { reason } = optional(&body)?;
    let id = caller.service.retry(&queue, task, caller.says(&reason)?).await?;
    Ok(Json(Restarted { id: id.to_string(), now: clock::wall_ms() }))
}

async fn log(
    SomeLevelAt { queue, level, caller }: SomeLevelAt,
    QueryParams(LogQuery { limit }): QueryParams<LogQuery>,
) -> JsonAnswer<ActionList> {
    let limit = limit_of(limit, RECORDS_MAX, "actions")?;
    let records = caller.service.action_log((&queue, level), limit).await?;
    let action = |it: longhaul::ops::ActionRecord| ActionBody {
        at: it.published_ms,
        task: it.task.map(|it| name_of(&it).to_string()),
        worker: it.worker,
        schedule: it.schedule,
        operator: it.operator,
        action: it.action,
        reason: it.reason,
        replay: it.replay.map(|it| name_of(&it).to_string()),
    };
    let actions = records.into_iter().map(action).collect();
    Ok(Json(ActionList { actions, now: clock::wall_ms() }))
}
