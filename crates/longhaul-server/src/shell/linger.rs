//! Discards the rest of the body of a refused request.
//!
//! Many clients send a whole request before they read the answer. If the connection is closed while
//! they send, the system resets it and discards the answer: they would see a broken pipe rather
//! than that the body is too long, or the token wrong. So the answer is sent at once, and the rest
//! of the body is read and discarded, within limits.

use super::Shell;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// Limits on discarding a body: the total time, the longest pause, and the number of bytes.
const LINGER_TIME: Duration = Duration::from_secs(10);
const LINGER_PAUSE: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024 * 1024;

/// A body lent to the handler, and whether it was read.
struct Lent(Arc<Mutex<(Body, bool)>>);

impl Lent {
    fn lock(&self) -> MutexGuard<'_, (Body, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let (body, is_read) = &mut *self.lock();
        *is_read = true;
        Pin::new(body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().0.size_hint()
    }
}

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
    let (parts, body) = request.into_parts();
    let body = Arc::new(Mutex::new((body, false)));
    let request = Request::from_parts(parts, Body::new(Lent(Arc::clone(&body))));
    let response = next.run(request).await;
    let is_refused = response.status().is_client_error() || response.status().is_server_error();
    // A client that timed out gets no more time.
    if is_refused
        && response.status() != StatusCode::REQUEST_TIMEOUT
        // The handler has dropped it.
        && let Some(Ok((body, is_read))) = Arc::into_inner(body).map(Mutex::into_inner)
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
