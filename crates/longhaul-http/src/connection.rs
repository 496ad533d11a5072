//! One HTTP/1.1 connection.

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::error::Error;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// The pause when no connection can be accepted, usually for lack of file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The time limit for a request's head, and for an idle connection.
    pub head_time: Duration,
    /// The maximum size of a request's head, in bytes.
    pub head_bytes: usize,
    /// The most headers per request.
    pub headers: usize,
    /// Whether a client may close its sending side and still get its answer.
    pub half_close: bool,
}

/// Serves requests until the connection ends. When `stop` is cancelled, the request in progress is
/// answered first.
///
/// # Errors
/// When the connection breaks.
pub async fn converse<I, S, B>(
    stream: I,
    service: S,
    limits: ConnectionLimits,
    stop: &CancellationToken,
) -> Result<(), hyper::Error>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(limits.headers)
        .max_buf_size(limits.head_bytes)
        .half_close(limits.half_close)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}
