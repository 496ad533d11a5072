//! The metrics page of a process that is not a gateway: a worker.

use crate::telemetry;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_http::ACCEPT_PAUSE;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// The most connections; further ones wait in the system's backlog.
const CONNECTIONS_MAX: usize = 16;

/// The time limit of a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// The maximum size of a request's head, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Serves `/metrics` for Prometheus and `/livez`, to everybody who can reach the address. Stops on
/// drop.
#[derive(Debug)]
pub struct MetricsPage {
    address: SocketAddr,
    _end: DropGuard,
}

impl MetricsPage {
    /// Starts to listen. Installs a recorder of metrics if the process has none: call this before
    /// anything that records metrics.
    ///
    /// # Errors
    /// When it cannot listen on the address.
    pub async fn start(listen: SocketAddr) -> io::Result<Self> {
        telemetry::install();
        let socket = TcpListener::bind(listen).await?;
        let address = socket.local_addr()?;
        let (end, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(telemetry::keep_up(end.clone()));
        tasks.spawn(serve(socket, end.clone(), tasks.clone()));
        Ok(Self { address, _end: end.drop_guard() })
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(socket: TcpListener, end: CancellationToken, tasks: TaskTracker) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Some(Ok(permit)) =
        end.run_until_cancelled(Arc::clone(&connections).acquire_owned()).await
    {
        let Some(accepted) = end.run_until_cancelled(socket.accept()).await else { return };
        match accepted {
            Ok((stream, _)) => {
                let end = end.clone();
                tasks.spawn(async move {
                    let served = tokio::time::timeout(CONNECTION_TIME, serve_connection(stream));
                    end.run_until_cancelled(served).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(event = "accept_failed", %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream) {
    let answer = |request: Request<Incoming>| async move { Ok::<_, Infallible>(answer(&request)) };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIME)
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection ended");
    }
}

fn answer<B>(request: &Request<B>) -> Response {
    let known = match request.uri().path() {
        "/livez" => Some("ok\n".to_owned()),
        "/metrics" => telemetry::render(),
        _ => None,
    };
    let (status, body) = match (request.method(), known) {
        (&Method::GET | &Method::HEAD, Some(body)) => (StatusCode::OK, body),
        (_, Some(_)) => (StatusCode::METHOD_NOT_ALLOWED, "only GET is supported\n".to_owned()),
        (_, None) => (
            StatusCode::NOT_FOUND,
            "not found: only /metrics and /livez are served here\n".to_owned(),
        ),
    };
    (status, [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_page_has_metrics_and_a_sign_of_life_and_ends_when_it_is_dropped() {
        let page = MetricsPage::start("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = page.address();
        metrics::counter!("longhaul_page_test_total").increment(3);
        let metrics = ask(address, "GET /metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("\nlonghaul_page_test_total 3\n"), "{metrics}");
        assert!(ask(address, "GET /livez").await.ends_with("\r\n\r\nok\n"));
        assert!(ask(address, "GET /").await.starts_with("HTTP/1.1 404 "));
        assert!(ask(address, "POST /livez").await.starts_with("HTTP/1.1 405 "));
        // An idle connection does not block others.
        let _idle = TcpStream::connect(address).await.unwrap();
        assert!(ask(address, "GET /livez").await.ends_with("ok\n"));
        drop(page);
        // The port is free once the loop has ended.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
