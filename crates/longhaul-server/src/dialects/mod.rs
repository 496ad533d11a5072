//! Dialects: routes, bodies and codes of other task queues, as thin adapters on the same service.
//! The configuration enables each of them, and names the one queue that they use.

mod dqueue;
mod held;
mod job_body;
mod job_id;
mod jobs;
mod task_body;

#[cfg(test)]
mod tests;

use crate::auth::TokenScope::Read;
use crate::config::{Dialect, ServerConfig};
use crate::core::{QueueName, ServiceError};
use crate::problem::ProblemDetails;
use crate::route::ApiRoute;
use crate::route::Method::Get;
use crate::shell::{Caller, RawBody};
use axum::http::StatusCode;
use serde::Deserialize;
use std::fmt;

/// The routes of the enabled dialects.
pub(crate) fn routes(config: &ServerConfig) -> Vec<ApiRoute> {
    let has = |dialect| config.dialects.contains(&dialect);
    let mut routes = Vec::new();
    if has(Dialect::Jobs) {
        routes.extend(jobs::routes());
    }
    if has(Dialect::DQueue) {
        routes.extend(dqueue::routes().into_iter().map(ApiRoute::names_peer));
    }
    if !routes.is_empty() {
        routes.push(ApiRoute::new(Get, "/health", Read, health).open());
    }
    routes
}

async fn health() -> &'static str {
    "ok\n"
}

/// The queue of the dialects, if the caller may use it.
fn queue(caller: &Caller) -> Result<&QueueName, ProblemDetails> {
    let queue = caller.service.dialect_queue().map_err(plain)?;
    caller.check_queue(queue)?;
    Ok(queue)
}

/// Reads JSON whatever its content type, and ignores unknown fields, like the servers whose dialects
/// these are.
fn read<'a, T: Deserialize<'a>>(body: &'a RawBody) -> Result<T, ProblemDetails> {
    if body.other_kind().is_some() {
        return Err(malformed("it is not a JSON object"));
    }
    serde_json::from_slice(&body.bytes).map_err(malformed)
}

/// The error for a body that is not what its route takes.
fn malformed(error: impl fmt::Display) -> ProblemDetails {
    let detail = format!("the body does not match what this route takes: {error}");
    ProblemDetails::bad_request("json_malformed", detail)
}

/// A required field.
fn given<T>(name: &str, value: Option<T>) -> Result<T, ProblemDetails> {
    value.ok_or_else(|| {
        ProblemDetails::bad_request("field_missing", format!("the field `{name}` is missing"))
    })
}

/// A required text that must not be empty.
fn word(name: &str, text: Option<String>) -> Result<String, ProblemDetails> {
    given(name, text.filter(|text| !text.is_empty()))
}

/// Converts an error to the codes of the dialects, which have 400 in place of 422.
fn plain(error: impl Into<ProblemDetails>) -> ProblemDetails {
    let problem = error.into();
    if problem.status != StatusCode::UNPROCESSABLE_ENTITY {
        return problem;
    }
    ProblemDetails { title: "Bad Request", status: StatusCode::BAD_REQUEST, ..problem }
}

/// The error for an id that no task has.
fn no_task(detail: &'static str) -> ProblemDetails {
    ProblemDetails::new(StatusCode::NOT_FOUND, "task_not_found", detail)
}

/// A report without effect, with the reason in the words of the dialect `jobs`.
fn conflict(reason: &'static str, id: &str) -> ProblemDetails {
    let detail = format!(
        "the lease does not hold {id}, or not any more: {reason}; stop working on it, and request \
         another one"
    );
    ProblemDetails::new(StatusCode::CONFLICT, reason, detail)
}

/// Whether the error means that the queue does not have this level, and so no tasks on it.
const fn is_no_level(error: &ServiceError) -> bool {
    matches!(
        error,
        ServiceError::NoLevels(_) | ServiceError::Read(longhaul::ReadError::NoLedger(_))
    )
}
