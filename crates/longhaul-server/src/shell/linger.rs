//! Reads over what is left of the body of a request that was refused.
//!
//! Many clients send a request whole before they read its answer. A connection that is closed while
//! they send is reset by the system, which takes the answer with it: they would see a broken pipe,
//! and not that the body is too long, or the token wrong. So the answer is sent at once, and the
//! rest of the body is thrown away behind it, within limits.

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
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the rest of a body is read over, for how long nothing may come of it, and how many
/// bytes it may have.
const LINGER_TIME: Duration = Duration::from_secs(10);
const LINGER_PAUSE: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024 * 1024;

/// A body that is lent to whoever serves the request, and comes back when that drops it.
struct Lent {
    body: Body,
    is_read: bool,
    back: Option<oneshot::Sender<(Body, bool)>>,
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_read = true;
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            back.send((std::mem::take(&mut self.body), self.is_read)).ok();
        }
    }
}

/// Serves a request; if it is refused before its body has come whole, the rest is read over.
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
    let request = request.map(|body| Body::new(Lent { body, is_read: false, back: Some(back) }));
    let response = next.run(request).await;
    let is_refused = response.status().is_client_error() || response.status().is_server_error();
    // Whoever was too slow has had his time.
    if is_refused
        && response.status() != StatusCode::REQUEST_TIMEOUT
        && let Ok((body, is_read)) = rest.try_recv()
        && !body.is_end_stream()
        // A client that asks before it sends a body sends none now.
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
