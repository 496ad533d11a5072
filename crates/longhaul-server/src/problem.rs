//! Errors for callers: `application/problem+json`, with a code for programs, the problem, and what
//! to do.

use crate::reach::ConnectionOutage;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::borrow::Cow;
use utoipa::ToSchema;

/// The maximum length of a problem's text, in bytes: it may quote the caller's input.
const DETAIL_BYTES_MAX: usize = 2_000;

/// Marks an answer to reports on leases that are not there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoLease;

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemDetails {
    /// The HTTP status of the answer.
    #[serde(serialize_with = "status_number")]
    #[schema(value_type = u16, example = 404)]
    pub(crate) status: StatusCode,
    /// The kind of the error, for programs. It is stable.
    #[schema(value_type = String, example = "task_not_found")]
    pub(crate) code: &'static str,
    /// The HTTP status in words.
    #[schema(value_type = String, example = "Not Found")]
    pub(crate) title: &'static str,
    /// What happened and what to do.
    pub(crate) detail: Cow<'static, str>,
    /// The current version, if the request expected another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current_version: Option<u64>,
    /// The current epoch of the task, if the request named another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current_epoch: Option<u32>,
    /// The task that the error is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<String>,
    /// The number of seconds after which to try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<u32>,
}

fn status_number<S: serde::Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

impl ProblemDetails {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self {
            status,
            code,
            title,
            detail: shortened(detail.into()),
            current_version: None,
            current_epoch: None,
            task: None,
            retry_after: None,
        }
    }

    /// The request cannot be understood.
    pub(crate) fn bad_request(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// Whether a report that gets this answer names a lease that is not there.
    pub(crate) fn is_no_lease(&self) -> bool {
        matches!(self.code, "task_not_found" | "queue_not_found" | "lease_invalid")
    }

    /// The request may be retried after about a second.
    pub(crate) fn unavailable(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { retry_after: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail) }
    }
}

fn shortened(text: Cow<'static, str>) -> Cow<'static, str> {
    if text.len() <= DETAIL_BYTES_MAX {
        return text;
    }
    let mut end = DETAIL_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let start = text.get(..end).unwrap_or_default();
    Cow::Owned(format!("{start}…"))
}

/// The request was not started, so nothing changed.
impl From<ConnectionOutage> for ProblemDetails {
    fn from(outage: ConnectionOutage) -> Self {
        let code = if outage.refused { "broker_refused" } else { "broker_unreachable" };
        let detail = format!(
            "the gateway cannot reach its broker: {}; nothing was done: try again, or ask another \
             gateway",
            outage.why
        );
        Self::unavailable(code, detail)
    }
}

impl IntoResponse for ProblemDetails {
    fn into_response(self) -> Response {
        // Every field has a JSON form.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        if self.is_no_lease() {
            response.extensions_mut().insert(NoLease);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"longhaul\""));
        }
        response
    }
}
