//! Why a task does not run.

use super::JsonAnswer;
use super::at::TaskAt;
use crate::auth::TokenScope::Read;
use crate::route::ApiRoute;
use crate::route::Method::Get;
use axum::Json;
use longhaul_api::task::{TaskLimitsBody, WhyBody};
use longhaul_api::values::Length;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Get, "/v1/queues/{queue}/tasks/{task}/why", Read, why)
            .does(
                "why_task",
                "Explains in one sentence and in details why a task does not run. For a running task, it names the worker and the start.",
            )
            .answers::<WhyBody>(200, "The reason."),
    ]
}

async fn why(TaskAt { queue, task, caller }: TaskAt) -> JsonAnswer<WhyBody> {
    let why = caller.service.why(&queue, task).await?;
    let (cause, details) = why.cause.parts();
    Ok(Json(WhyBody {
        task: task.to_string(),
        status: why.status.word().into(),
        cause,
        sentence: why.to_string(),
        details,
        limits: TaskLimitsBody {
            max_attempts: why.limits.max_attempts,
            max_duration: why.limits.max_duration.map(Length),
            max_total_duration: why.limits.max_total_duration.map(Length),
            expires_at: why.limits.expires_ms,
        },
        now: why.at_ms,
    }))
}
