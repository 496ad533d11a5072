//! Discards the rest of the body of a refused request.
//!
//! Many clients send a whole request before they read the answer. If the connection is closed while
//! they send, the system resets it and discards the answer: they would see a broken pipe rather
//! than that the body is too long, or the token wrong. So the answer is sent at once, and the rest
//! of the body is read and discarded, within limits.

use super::Shell;
use super::tracked::tracked;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Limits on discarding a body: the total time, the longest pause, and the number of bytes.
const LINGER_TIME: Duration = Duration::from_secs(10);
const LINGER_PAUSE: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024 * 1024;

/// Serves a request. If it is refused before its body has arrived, the rest is discarded.
pub(crate) async fn linger(
    State(shell): State<Arc<Shell>>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let asks_first = request.headers().contains_key(EXPECT);
    let (back, mut rest) = oneshot::channel();
    // The handler borrows the body.
    let request = request.map(|body| {
        tracked(body, move |body, is_read| {
            // This side may have gone.
            back.send((body, is_read)).ok();
        })
    });
    let response = next.run(request).await;
    let is_refused = response.status().is_client_error() || response.status().is_server_error();
    // A client that timed out gets no more time.
    if is_refused
        && response.status() != StatusCode::REQUEST_TIMEOUT
        && let Ok((body, is_read)) = rest.try_recv()
        && !body.is_end_stream()
        // A client that waits for `100 Continue` will not send its body.
        && (is_read || !asks_first)
    {
        let draining = shell.draining().clone();
        let reading = tokio::time::timeout(LINGER_TIME, read_over(body));
        shell.lingering.spawn(async move { draining.run_until_cancelled(reading).await });
    }
    response
}

async fn read_over(body: Body) {
    let mut body = Limited::new(body, LINGER_BYTES);
    while let Ok(Some(Ok(_))) = tokio::time::timeout(LINGER_PAUSE, body.frame()).await {}
}
