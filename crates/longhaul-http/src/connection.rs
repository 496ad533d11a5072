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
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

/// The pause when no connection can be accepted, usually for lack of file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection is kept whose peer reads nothing of an answer.
const WRITE_TIME: Duration = Duration::from_secs(30);

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
/// answered first. A peer that reads nothing of an answer for 30 s has ended it.
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
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(WRITE_TIME));
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

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::service::service_fn;
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn limits() -> ConnectionLimits {
        let head_time = Duration::from_secs(10);
        ConnectionLimits { head_time, head_bytes: 64 * 1024, headers: 100, half_close: false }
    }

    /// Anybody could hold all connections by asking for documents without reading them.
    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_its_answers_loses_its_connection() {
        let (mut client, server) = tokio::io::duplex(1024);
        let answer =
            async |_: Request<Incoming>| Ok::<_, Infallible>(Response::new("x".repeat(100_000)));
        let stop = CancellationToken::new();
        client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let ended = converse(server, service_fn(answer), limits(), &stop);
        let ended = tokio::time::timeout(2 * WRITE_TIME, ended).await;
        assert!(ended.expect("the connection is kept").is_err());
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        assert_eq!(read.len(), 1024, "what was under way");
    }
}
