//! A connection to a gateway. It does as little as possible: what is measured is the gateway, and
//! both share the machine.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A connection that is kept.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// Moves its bytes.
    _driver: JoinSet<()>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Whoever has asked is told.
            let _ended = connection.await;
        });
        Ok(Self { sender, host: address.to_string(), _driver: driver })
    }

    /// Posts JSON, and returns what is answered if that is a success: nothing for 204.
    pub(super) async fn post(&mut self, path: &str, body: Bytes) -> Result<Option<Bytes>> {
        let request = Request::post(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await.with_context(|| path.to_owned())?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        let said =
            || format!("{path} was answered with {status}: {}", String::from_utf8_lossy(&body));
        ensure!(status.is_success(), said());
        Ok((status != StatusCode::NO_CONTENT).then_some(body))
    }
}
