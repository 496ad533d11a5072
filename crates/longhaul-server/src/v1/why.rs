//! Why a task does not run.

use super::at::TaskAt;
use crate::auth::TokenScope;
use crate::core::GatewayService;
use crate::problem::ProblemDetails;
use crate::route::{ApiRoute, Method};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

/// Why a task does not run, or who runs it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Why)]
pub(crate) struct WhyBody {
    task: String,
    status: &'static str,
    /// `over`, `running`, `leased`, `cancel_requested`, `scheduled`, `retrying`, `no_worker`, `no_request`, `dependencies`, `behind_key`, `key_lost`, `order`, `paused`, `limit`, `rate`, `no_slot` or `ready`.
    cause: String,
    /// The cause in one sentence, with what changes it.
    sentence: String,
    /// The parts of the cause. Times are in ms since the epoch.
    #[schema(value_type = Object)]
    details: Value,
    /// Now, by the gateway's clock.
    now: u64,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Method::Get, "/v1/queues/{queue}/tasks/{task}/why", TokenScope::Read, why)
            .does(
                "why_task",
                "Why a task does not run, in one sentence and in its parts; for a task that runs, who runs it and since when.",
            )
            .answers::<WhyBody>(200, "The reason."),
    ]
}

async fn why(
    State(service): State<Arc<GatewayService>>,
    TaskAt { queue, task, .. }: TaskAt,
) -> Result<Json<WhyBody>, ProblemDetails> {
    let why = service.why(&queue, task).await?;
    let (cause, details) = why.cause.parts();
    Ok(Json(WhyBody {
        task: task.to_string(),
        status: why.status.word(),
        cause,
        sentence: why.to_string(),
        details,
        now: why.at_ms,
    }))
}
