//! Accepts connections and serves HTTP/1.1 on them.
//!
//! Axum's plain `serve` has no timer: a client may send the head of its request arbitrarily slowly.
//! This loop has a timer, and a limit on connections.

use super::addresses::{AddressLimit, AddressPermit};
use super::{Peer, Shell, Tls};
use crate::config::ServerLimits;
use axum::Router;
use hyper::body::Incoming;
use hyper_util::service::TowerToHyperService;
use longhaul_http::{ACCEPT_PAUSE, ConnectionLimits};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tower::util::MapRequest;

/// The maximum size of a request's head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The most headers per request.
const HEADERS_MAX: usize = 100;

/// Connections that may wait to be accepted, as far as the system allows (`somaxconn`). The default
/// of 128 is less than the number of workers that reconnect at once when a gateway restarts; a
/// connection beyond it is retried only after a second.
const BACKLOG: u32 = 4_096;

/// A gateway's listening socket.
pub(crate) struct GatewayListener {
    socket: TcpListener,
    tls: Option<Arc<Tls>>,
    connections: Arc<Semaphore>,
    addresses: Arc<AddressLimit>,
}

/// An accepted connection. It holds its permits until it ends.
struct AcceptedConnection {
    stream: TcpStream,
    peer: SocketAddr,
    permits: (Option<OwnedSemaphorePermit>, AddressPermit),
}

impl GatewayListener {
    /// Starts to listen.
    pub(crate) fn bind(
        address: SocketAddr,
        tls: Option<Tls>,
        limits: &ServerLimits,
    ) -> io::Result<Self> {
        let socket = listen(address)?;
        let connections = limits.connections.min(Semaphore::MAX_PERMITS);
        let connections = Arc::new(Semaphore::new(connections));
        let addresses = Arc::new(AddressLimit::new(limits.connections_of_address(), true));
        Ok(Self { socket, tls: tls.map(Arc::new), connections, addresses })
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts connections until the gateway drains.
    pub(crate) async fn serve(self, router: Router, shell: Arc<Shell>, tasks: TaskTracker) {
        let draining = shell.draining().clone();
        while let Some(accepted) = draining.run_until_cancelled(self.accept()).await {
            let AcceptedConnection { stream, peer, permits } = accepted;
            let (tls, shell, router) = (self.tls.clone(), Arc::clone(&shell), router.clone());
            tasks.spawn(async move {
                let served = async {
                    match tls {
                        None => serve_connection(stream, peer, router, &shell).await,
                        Some(tls) => {
                            let time = shell.config.limits.handshake_time;
                            let Some(stream) = tls.accept(stream, peer, time).await else { return };
                            serve_connection(stream, peer, router, &shell).await;
                        }
                    }
                };
                shell.stops.end.run_until_cancelled(served).await;
                drop(permits);
            });
        }
    }

    /// The next connection, once there is room for it.
    async fn accept(&self) -> AcceptedConnection {
        let permit = Arc::clone(&self.connections).acquire_owned().await.ok();
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%peer, %error, "the connection is gone");
                    }
                    let Some(address) = self.addresses.admit(peer.ip()) else {
                        self.addresses.refuse(&stream, self.tls.is_some());
                        continue;
                    };
                    return AcceptedConnection { stream, peer, permits: (permit, address) };
                }
                Err(error) => {
                    tracing::warn!(event = "accept_failed", %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted gateway finds connections of the previous one.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn serve_connection<I>(stream: I, peer: SocketAddr, router: Router, shell: &Shell)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = MapRequest::new(router, move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer.ip()));
        request
    });
    let limits = ConnectionLimits {
        head_time: shell.config.limits.header_time,
        head_bytes: HEAD_BYTES_MAX,
        headers: HEADERS_MAX,
        half_close: false,
    };
    let service = TowerToHyperService::new(service);
    let ended = longhaul_http::converse(stream, service, limits, shell.draining()).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncReadExt;

    /// One address that opened all connections kept everybody else out.
    #[tokio::test]
    async fn an_address_with_too_many_connections_is_told_so_and_others_are_served() {
        let limits = ServerLimits { connections_per_address: Some(2), ..ServerLimits::default() };
        let any = "127.0.0.1:0".parse().unwrap();
        let mut listener = GatewayListener::bind(any, None, &limits).unwrap();
        let address = listener.address().unwrap();
        listener.addresses = Arc::new(AddressLimit::new(limits.connections_of_address(), false));
        let connect = async |from: &str| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
            socket.connect(address).await.unwrap()
        };
        let mut held = Vec::new();
        for _ in 0..2 {
            let client = connect("127.0.0.1").await;
            held.push((client, listener.accept().await));
        }
        let mut refused = connect("127.0.0.1").await;
        let (other, accepted) = tokio::join!(connect("127.0.0.2"), listener.accept());
        assert_eq!(accepted.peer, other.local_addr().unwrap());
        let mut answer = String::new();
        refused.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1"),
            "{answer}"
        );
        assert!(answer.contains(r#""code":"too_many_connections""#), "{answer}");
        held.pop();
        let again = connect("127.0.0.1").await;
        let accepted = tokio::time::timeout(Duration::from_secs(10), listener.accept()).await;
        assert_eq!(accepted.unwrap().peer, again.local_addr().unwrap());
    }

    /// With a backlog of 128, 10,000 long polls took 15 s to connect: each connection beyond it was
    /// retried after a second.
    #[tokio::test]
    async fn hundreds_may_connect_while_nothing_is_accepted() {
        let limits = ServerLimits::default();
        let listener =
            GatewayListener::bind("127.0.0.1:0".parse().unwrap(), None, &limits).unwrap();
        let address = listener.address().unwrap();
        let connect =
            |_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(500));
        let connected: Vec<_> = (0..600).map(connect).collect();
        let refused = connected.iter().filter(|it| it.is_err()).count();
        assert_eq!(refused, 0, "of {}", connected.len());
    }
}
