//! A TCP forwarder between clients and a broker that simulates network faults: it delays or holds
//! bytes, and cuts connections within frames.
//!
//! A client's topic lookup would bypass it, since the answer names the broker. So the forwarder
//! parses the frames to the client and puts its own address into lookup answers; all other bytes
//! pass unchanged. That works with any broker, needs no setting there, and does not affect other
//! clients.
//!
//! Invariant: bytes are never changed, duplicated or reordered, since TCP never does that. Bytes
//! that a fault loses are lost together with the connection.

mod line;
mod lookup;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use line::Line;

/// How long the broker may take to accept a connection.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// The behaviour of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The minimum delay.
    pub latency: Duration,
    /// The maximum random addition to the delay. Bytes keep their order.
    pub jitter: Duration,
    /// The most bytes per second.
    pub bytes_per_second: Option<NonZeroU32>,
    /// Bytes are accepted and kept: the sender notices nothing, the receiver gets nothing. They
    /// continue when this ends.
    pub held: bool,
}

/// The behaviour of both directions. The default forwards at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// From the client to the broker.
    pub to_broker: Way,
    /// From the broker to the client.
    pub to_client: Way,
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// By RST; otherwise by FIN.
    pub reset: bool,
    /// The number of bytes that still pass before the cut, in either direction, if they come soon:
    /// the cut then falls within a frame.
    pub after_bytes: usize,
    /// How much later the broker notices. Bytes sent before, held ones included, still reach the
    /// broker, and so may arrive after bytes on the client's next connection.
    pub broker_later: Option<Duration>,
}

/// The connections affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All; for weather, also future ones.
    All,
    /// The open connection of this index, counted from the oldest and wrapping.
    One(usize),
}

/// A forwarder in front of one broker. Dropping it closes its port and all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

/// The state shared by the forwarder and its connections.
#[derive(Debug)]
struct Shared {
    /// `host:port` of the broker.
    broker: String,
    /// The URL in lookup answers in place of the broker's.
    service_url: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// For future connections.
    weather: Weather,
    lines: BTreeMap<u64, Handle>,
    /// The number of connections ever opened.
    opened: u64,
    rng: fastrand::Rng,
}

/// The handle of one connection.
#[derive(Debug)]
struct Handle {
    weather: watch::Sender<Weather>,
    /// Taken by the cut, since a connection has only one.
    cut: Option<oneshot::Sender<Cut>>,
}

impl Proxy {
    /// Listens on a free port of this machine and forwards to the broker at `service_url`,
    /// `pulsar://host:port`. The seed decides the jitter.
    ///
    /// # Errors
    /// The URL names no plain broker, or there is no free port.
    pub async fn start(service_url: &str, seed: u64) -> Result<Self> {
        let broker = service_url.strip_prefix("pulsar://");
        let broker = broker.with_context(|| format!("no plain broker: {service_url}"))?.to_owned();
        ensure!(!broker.contains(','), "{service_url} has several brokers, this stands before one");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = State {
            weather: Weather::default(),
            lines: BTreeMap::new(),
            opened: 0,
            rng: fastrand::Rng::with_seed(seed),
        };
        let service_url = format!("pulsar://{address}");
        let shared = Arc::new(Shared { broker, service_url, state: Mutex::new(state) });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, _accepting: accepting })
    }

    /// The URL for clients that use the forwarder.
    #[must_use]
    pub fn service_url(&self) -> &str {
        &self.shared.service_url
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the weather.
    pub fn set(&self, scope: Scope, weather: Weather) {
        let mut state = self.shared.lock();
        if scope == Scope::All {
            state.weather = weather;
        }
        for line in state.chosen(scope) {
            line.weather.send_replace(weather);
        }
    }

    /// Cuts connections. Returns how many.
    pub fn cut(&self, scope: Scope, cut: Cut) -> usize {
        let mut state = self.shared.lock();
        let cuts = state.chosen(scope).into_iter().filter_map(|line| line.cut.take());
        // A connection that has just ended accepts no cut.
        cuts.filter_map(|order| order.send(cut).ok()).count()
    }

    /// The number of connections ever opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.shared.lock().opened
    }

    /// The number of open connections, at least on the client's side.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.lock().chosen(Scope::All).len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The uncut connections in this scope.
    fn chosen(&mut self, scope: Scope) -> Vec<&mut Handle> {
        let whole = self.lines.values_mut().filter(|line| line.cut.is_some());
        let mut chosen: Vec<&mut Handle> = whole.collect();
        match scope {
            Scope::One(number) if !chosen.is_empty() => {
                let index = number % chosen.len();
                vec![chosen.swap_remove(index)]
            }
            Scope::All | Scope::One(_) => chosen,
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut lines = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = lines.join_next(), if !lines.is_empty() => {}
            accepted = listener.accept() => {
                // Ignore a connection that was gone before it was accepted.
                if let Ok((client, _)) = accepted {
                    lines.spawn(forward(client, Arc::clone(&shared)));
                }
            }
        }
    }
}

/// Serves one connection.
async fn forward(client: TcpStream, shared: Arc<Shared>) {
    // If the broker refuses, so does the forwarder, a moment later.
    let Ok(Ok(broker)) = timeout(DIAL_LIMIT, TcpStream::connect(&shared.broker)).await else {
        return;
    };
    let (order, cut) = oneshot::channel();
    let (number, line) = {
        let mut state = shared.lock();
        let (weather, rng) = (watch::Sender::new(state.weather), state.rng.fork());
        let line = Line::new(client, broker, weather.clone(), rng, &shared.service_url);
        let number = state.opened;
        state.opened += 1;
        state.lines.insert(number, Handle { weather, cut: Some(order) });
        (number, line)
    };
    // A connection that cannot be served is closed.
    if let Ok(line) = line {
        line.serve(cut).await;
    }
    shared.lock().lines.remove(&number);
}

#[cfg(test)]
mod tests;
