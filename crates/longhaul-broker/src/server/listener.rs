//! Accepts connections, up to the limit.

use super::connection::{self, Rules};
use super::descriptors::{ConnectionClass, Crowded, DescriptorBudget};
use super::driver::{BrokerEvent, BrokerEventSender};
use super::messages::Messages;
use super::outbox::Outbox;
use crate::clock;
use crate::throttle::WarningThrottle;
use bytes::BytesMut;
use longhaul_http::ACCEPT_PAUSE;
use longhaul_wire::frame;
use longhaul_wire::messages::{CommandError, ServerError};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time limit for the last answers.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections that may wait to be accepted, if the system allows it (`somaxconn`). The default of
/// 128 is less than the number of clients that reconnect at once when a broker restarts, and
/// further connections are only retried after a second.
const BACKLOG: u32 = 4_096;

/// Starts to listen.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted broker may find connections of the previous one.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// State that all connections share.
#[derive(Debug)]
pub(super) struct House {
    events: BrokerEventSender,
    messages: Messages,
    rules: Rules,
    room: Arc<DescriptorBudget>,
    next: AtomicU64,
}

impl House {
    pub(super) fn new(
        events: BrokerEventSender,
        messages: Messages,
        rules: Rules,
        room: Arc<DescriptorBudget>,
    ) -> Arc<Self> {
        Arc::new(Self { events, messages, rules, room, next: AtomicU64::new(1) })
    }
}

/// A port.
pub(super) struct BrokerListener {
    pub(super) listener: TcpListener,
    /// The present TLS configuration, if connections are encrypted.
    pub(super) tls: Option<watch::Receiver<TlsAcceptor>>,
}

impl BrokerListener {
    /// Accepts connections until the stop.
    pub(super) async fn run(self, house: Arc<House>, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        let (mut crowd, mut failures) = (WarningThrottle::default(), WarningThrottle::default());
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if let Some(times) = failures.note(clock::monotonic()) {
                        tracing::warn!(%error, times, "cannot accept a connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let permit = match house.room.enter(ConnectionClass::Clients) {
                Ok(permit) => permit,
                Err(crowded) => {
                    // A connection above the limit is closed at once instead of waiting.
                    if self.tls.is_none() {
                        tell_why(&stream);
                    }
                    if let Some(closed) = crowd.note(clock::monotonic()) {
                        tell_operator(crowded, closed);
                    }
                    continue;
                }
            };
            let tls = self.tls.as_ref().map(|tls| tls.borrow().clone());
            let house = Arc::clone(&house);
            tasks.spawn(async move {
                connect(stream, tls, &house).await;
                drop(permit);
            });
        }
        tasks.close();
        if timeout(STOP_TIMEOUT, tasks.wait()).await.is_err() {
            tracing::debug!("some connections did not take their last answers in time");
        }
    }
}

fn tell_operator(crowded: Crowded, closed: u64) {
    match crowded {
        Crowded::Connections => {
            tracing::warn!(closed, "the limit of connections is reached: closing new ones");
        }
        Crowded::Descriptors => tracing::warn!(
            closed,
            "the limit on open files (ulimit -n) leaves no room for more connections: closing new ones"
        ),
    }
}

/// Sends the reason before the connection is closed. A new connection has room for it; losing it
/// does no harm, because it is only for people.
fn tell_why(stream: &TcpStream) {
    let mut out = BytesMut::new();
    let message = "the broker has reached its limit of connections: try again later".to_owned();
    let error = ServerError::ServiceNotReady.into();
    frame::encode(CommandError { request_id: u64::MAX, error, message }, &mut out);
    stream.try_write(&out).ok();
}

async fn connect(stream: TcpStream, tls: Option<TlsAcceptor>, house: &House) {
    // Without it, small answers could wait for an acknowledgement; if it cannot be set, they do.
    stream.set_nodelay(true).ok();
    let Ok(peer) = stream.peer_addr() else { return };
    let id = house.next.fetch_add(1, Ordering::Relaxed);
    let outbox = Arc::new(Outbox::new(house.rules.tell_after, Arc::clone(&house.rules.answers)));
    let opened = BrokerEvent::Opened(id, format!("/{peer}"), Arc::clone(&outbox));
    let (events, messages, rules) =
        (house.events.clone(), house.messages.clone(), house.rules.clone());
    let Some(tls) = tls else {
        if events.send(opened).await.is_ok() {
            let (incoming, outgoing) = connection::split(stream);
            connection::serve(id, incoming, outgoing, outbox, events, messages, rules).await;
        }
        return;
    };
    match timeout(rules.handshake_timeout, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            if events.send(opened).await.is_ok() {
                let (incoming, outgoing) = connection::split_tls(stream);
                connection::serve(id, incoming, outgoing, outbox, events, messages, rules).await;
            }
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
        Err(_) => tracing::debug!(%peer, "no TLS handshake in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    /// Sockets were created with a backlog of 128. When hundreds of clients reconnected at once,
    /// most of them waited for a second or more.
    #[tokio::test]
    async fn hundreds_may_connect_while_nothing_is_accepted() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(500));
        let connected: Vec<_> = (0..600).map(connect).collect();
        let refused = connected.iter().filter(|result| result.is_err()).count();
        assert_eq!(refused, 0, "of {}", connected.len());
    }
}
