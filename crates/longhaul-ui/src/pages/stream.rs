//! Answers passed through: events and downloads. Browsers request both with a cookie, while
//! programs send a token.

use crate::asked::{Path, QueryFields};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, task_route};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use longhaul_api::Priority;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
pub(super) struct EventStreamQuery {
    last_event_id: Option<String>,
    #[serde(default)]
    level: Priority,
}

pub(super) async fn events(
    visit: Visit,
    Path(queue): Path<String>,
    QueryFields(asked): QueryFields<EventStreamQuery>,
    headers: HeaderMap,
) -> Response {
    let behind = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok())
        .or(asked.last_event_id.as_deref());
    let mut path = format!("/v1/queues/{}/events?level={}", escaped(&queue), asked.level);
    if let Some(behind) = behind {
        path.push_str(&format!("&last_event_id={}", escaped(behind)));
    }
    let stream = visit.raw(&path).await;
    stream.unwrap_or_else(refused)
}

pub(super) async fn payload(
    visit: Visit,
    Path((queue, task)): Path<(String, String)>,
) -> PageResult {
    saved(&visit, &queue, &task, "payload").await
}

pub(super) async fn result(
    visit: Visit,
    Path((queue, task)): Path<(String, String)>,
) -> PageResult {
    saved(&visit, &queue, &task, "result").await
}

/// The bytes as a file, whatever their type: browsers must not run them.
async fn saved(visit: &Visit, queue: &str, task: &str, what: &str) -> PageResult {
    let path = format!("{}/{what}", task_route(queue, task));
    let answer = visit.raw(&path).await?;
    let name: String = task
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character } else { '-' })
        .collect();
    let mut response = answer.into_body().into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers
        .insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    let disposition = format!("attachment; filename=\"{what}-{name}.bin\"");
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

/// A stream cannot show an error page.
fn refused(trouble: PageError) -> Response {
    (trouble.status, trouble.detail).into_response()
}
