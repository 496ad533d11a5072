//! Calls of the gateway's public routes in the same process.

use crate::trouble::PageError;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::{Extensions, HeaderValue, Method, Request};
use axum::response::Response;
use serde_json::Value;
use tower::ServiceExt;

/// The largest answer used for a page. A page of tasks has some hundred KiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The caller on whose behalf a route is called.
#[derive(Clone, Debug)]
pub(crate) struct ApiCaller {
    pub(crate) token: Option<String>,
    pub(crate) host: Option<HeaderValue>,
    /// The gateway's data about the connection, such as the peer's address.
    pub(crate) connection: Extensions,
}

/// Calls a route. Its answer is unread: it may be a stream of events.
pub(crate) async fn call(
    routes: &Router,
    caller: &ApiCaller,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<Response, PageError> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(host) = &caller.host {
        request = request.header(HOST, host);
    }
    if let Some(token) = &caller.token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let body = match body {
        Some(body) => {
            request = request.header(CONTENT_TYPE, "application/json");
            Body::from(body.to_string())
        }
        None => Body::empty(),
    };
    let mut request = request
        .body(body)
        .map_err(|error| PageError::ours(format!("cannot request {path}: {error}")))?;
    request.extensions_mut().extend(caller.connection.clone());
    let Ok(answer) = routes.clone().oneshot(request).await;
    if answer.status().is_success() {
        return Ok(answer);
    }
    Err(refused(answer).await)
}

/// Reads an answer.
pub(crate) async fn whole(answer: Response) -> Result<Bytes, PageError> {
    let bytes = to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await;
    bytes.map_err(|error| PageError::ours(format!("the gateway's answer was cut off: {error}")))
}

/// The error in a route's answer.
async fn refused(answer: Response) -> PageError {
    let status = answer.status();
    let said =
        whole(answer).await.ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let text = |name: &str| {
        said.as_ref().and_then(|said| said.get(name)?.as_str()).unwrap_or_default().to_owned()
    };
    let detail = match text("detail") {
        detail if detail.is_empty() => {
            status.canonical_reason().unwrap_or("the gateway refused it").to_owned()
        }
        detail => detail,
    };
    PageError { status, code: text("code"), detail }
}
