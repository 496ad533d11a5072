//! Accepts connections, as many as are allowed.

use super::connection::{self, Rules};
use super::driver::{Event, Events};
use super::messages::Messages;
use super::outbox::Outbox;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Pause after a connection could not be accepted, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For the last answers.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What all connections share.
#[derive(Debug)]
pub(super) struct House {
    events: Events,
    messages: Messages,
    rules: Rules,
    room: Arc<Semaphore>,
    next: AtomicU64,
}

impl House {
    pub(super) fn new(
        events: Events,
        messages: Messages,
        rules: Rules,
        connections_max: usize,
    ) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(connections_max));
        Arc::new(Self { events, messages, rules, room, next: AtomicU64::new(1) })
    }
}

/// A port.
pub(super) struct Listener {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
}

impl Listener {
    /// Accepts until it is told to stop.
    pub(super) async fn run(self, house: Arc<House>, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&house.room).try_acquire_owned() else {
                // Who is one too many learns it at once instead of waiting.
                tracing::warn!("too many connections: one more was closed");
                continue;
            };
            let (house, tls) = (Arc::clone(&house), self.tls.clone());
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

async fn connect(stream: TcpStream, tls: Option<TlsAcceptor>, house: &House) {
    // Without it small answers could wait for an acknowledgement; where it cannot be set they do.
    stream.set_nodelay(true).ok();
    let Ok(peer) = stream.peer_addr() else { return };
    let id = house.next.fetch_add(1, Ordering::Relaxed);
    let outbox = Arc::new(Outbox::new(house.rules.tell_after));
    let opened = Event::Opened(id, format!("/{peer}"), Arc::clone(&outbox));
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
