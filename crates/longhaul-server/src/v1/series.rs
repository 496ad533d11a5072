//! Throughput and latencies of a queue over the last hour, or another period.

use super::at::{LevelAt, QueryParams};
use super::values::Length;
use crate::auth::TokenScope;
use crate::clock;
use crate::core::GatewayService;
use crate::problem::ProblemDetails;
use crate::route::{ApiRoute, Method};
use axum::Json;
use axum::extract::State;
use longhaul::ops::TaskStep;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// The default length and number of steps.
const STEP: Duration = Duration::from_secs(60);
const STEPS: usize = 60;

/// The most steps per request.
const STEPS_MAX: usize = 1_440;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct SeriesQuery {
    /// How long a step is; a minute if it is not said, at least a second.
    step: Option<Length>,
    /// 1 to 1,440 steps; 60 if it is not said.
    steps: Option<usize>,
}

/// How a queue fared, by steps of equal length, the oldest first. The last one is the current one, which is not over yet. Tasks count as long as they are shown.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Series {
    step_ms: u64,
    steps: Vec<SeriesStep>,
    /// Now, by the gateway's clock.
    now: u64,
}

/// What happened in the time of a step.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SeriesStep)]
pub(crate) struct SeriesStep {
    /// When it began, in ms since the epoch.
    at: u64,
    submitted: u64,
    completed: u64,
    /// Failed for good, cancelled or expired.
    not_completed: u64,
    /// From submission to end, of half of those that completed at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_p50_ms: Option<u64>,
    /// The same for 95 of 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_p95_ms: Option<u64>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Method::Get, "/v1/queues/{queue}/series", TokenScope::Read, series)
            .does(
                "get_series",
                "How many tasks were submitted and ended, and how long they took, by minute or another step.",
            )
            .of_level()
            .query::<SeriesQuery>()
            .answers::<Series>(200, "The steps."),
    ]
}

async fn series(
    State(service): State<Arc<GatewayService>>,
    LevelAt { level, .. }: LevelAt,
    QueryParams(query): QueryParams<SeriesQuery>,
) -> Result<Json<Series>, ProblemDetails> {
    let step = query.step.map_or(STEP, |length| length.0);
    let steps = query.steps.unwrap_or(STEPS);
    if step < Duration::from_secs(1) || !(1..=STEPS_MAX).contains(&steps) {
        let detail = format!("a series has 1 to {STEPS_MAX} steps of at least a second");
        return Err(ProblemDetails::bad_request("query_invalid", detail));
    }
    let found = service.series(&level, step, steps).await?;
    let step_ms = u64::try_from(step.as_millis()).unwrap_or(u64::MAX);
    let steps = found.iter().map(SeriesStep::from).collect();
    Ok(Json(Series { step_ms, steps, now: clock::wall_ms() }))
}

impl From<&TaskStep> for SeriesStep {
    fn from(step: &TaskStep) -> Self {
        Self {
            at: step.from_ms,
            submitted: step.submitted,
            completed: step.completed,
            not_completed: step.not_completed,
            latency_p50_ms: step.latency_p50_ms,
            latency_p95_ms: step.latency_p95_ms,
        }
    }
}
