//! Throughput and latencies of a queue over the last hour, or another period.

use super::JsonAnswer;
use super::at::{LevelAt, QueryParams};
use crate::auth::TokenScope::Read;
use crate::clock;
use crate::core::ViewedTasks;
use crate::problem::ProblemDetails;
use crate::route::ApiRoute;
use crate::route::Method::Get;
use axum::Json;
use longhaul::ops::TaskStep;
use longhaul_api::queue::{Series, SeriesStep};
use longhaul_api::values::Length;
use serde::Deserialize;
use std::time::Duration;
use utoipa::IntoParams;

/// The default length and number of steps.
const STEP: Duration = Duration::from_secs(60);
const STEPS: usize = 60;

/// The most steps per request.
const STEPS_MAX: usize = 1_440;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct SeriesQuery {
    /// The length of a step: at least 1 s, 1 min by default.
    step: Option<Length>,
    /// The number of steps: 1 to 1,440, 60 by default.
    steps: Option<usize>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Get, "/v1/queues/{queue}/series", Read, series)
            .does(
                "get_series",
                "Counts the tasks submitted and ended per minute or another step, and measures how long they took.",
            )
            .of_level()
            .query::<SeriesQuery>()
            .answers::<Series>(200, "The steps."),
    ]
}

async fn series(
    LevelAt { level, caller }: LevelAt,
    QueryParams(query): QueryParams<SeriesQuery>,
) -> JsonAnswer<Series> {
    let step = query.step.map_or(STEP, |length| length.0);
    let steps = query.steps.unwrap_or(STEPS);
    if step < Duration::from_secs(1) || !(1..=STEPS_MAX).contains(&steps) {
        let detail = format!("a series needs 1 to {STEPS_MAX} steps of at least a second");
        return Err(ProblemDetails::bad_request("query_invalid", detail));
    }
    let found =
        caller.service.ask(&level, ViewedTasks::All, |view| view.series(step, steps)).await?;
    let step_ms = u64::try_from(step.as_millis()).unwrap_or(u64::MAX);
    let steps = found.iter().map(step_body).collect();
    Ok(Json(Series { step_ms, steps, now: clock::wall_ms() }))
}

const fn step_body(step: &TaskStep) -> SeriesStep {
    SeriesStep {
        at: step.from_ms,
        submitted: step.submitted,
        completed: step.completed,
        not_completed: step.not_completed,
        cancelled: step.cancelled,
        latency_p50_ms: step.latency_p50_ms,
        latency_p95_ms: step.latency_p95_ms,
    }
}
