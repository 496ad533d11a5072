//! A TCP forwarder between clients and a broker that does to their bytes what networks do: it lets
//! them wait, keeps them, and cuts connections in the middle of frames.
//!
//! A client that asks where a topic is would go around it: the answer names the broker. So the
//! forwarder reads the frames that go to the client and puts its own address into answers to
//! lookups; everything else passes byte by byte. That works on any broker, needs no setting there,
//! and leaves the way of those alone who do not come through here.
//!
//! Invariant: bytes are never changed, doubled or put into another order, as TCP does none of that.
//! What a fault loses, it loses together with the connection.

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

/// What one direction does with its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// How much later they arrive, at least.
    pub latency: Duration,
    /// How much later than that they may arrive, by chance. They keep their order.
    pub jitter: Duration,
    /// How many may pass in a second.
    pub bytes_per_second: Option<NonZeroU32>,
    /// They are taken and kept: the sender notices nothing, the receiver hears nothing. They go on
    /// when this ends.
    pub held: bool,
}

/// What both directions do. The default forwards at once.
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
    /// So many bytes still pass before, in either direction, if they come soon: the cut then falls
    /// into the middle of a frame.
    pub after_bytes: usize,
    /// How much later the broker notices. What the client had sent before, held bytes included,
    /// still reaches the broker then, and so may come after what the client has sent on its next
    /// connection.
    pub broker_later: Option<Duration>,
}

/// Which connections are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All, and for weather also those that are opened later.
    All,
    /// The one of this number among those that are open, counted from the oldest and round.
    One(usize),
}

/// A forwarder in front of one broker. Dropping it closes its port and all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

/// What the forwarder and its connections share.
#[derive(Debug)]
struct Shared {
    /// `host:port` of the broker.
    broker: String,
    /// What answers to lookups name instead of the broker.
    service_url: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// For connections to come.
    weather: Weather,
    lines: BTreeMap<u64, Handle>,
    /// Connections there have ever been.
    opened: u64,
    rng: fastrand::Rng,
}

/// One connection, seen from outside.
#[derive(Debug)]
struct Handle {
    weather: watch::Sender<Weather>,
    /// Taken by the cut: a connection has only one.
    cut: Option<oneshot::Sender<Cut>>,
}

impl Proxy {
    /// Listens on a free port of this machine and forwards to the broker of `service_url`,
    /// `pulsar://host:port`. The seed decides how bytes jitter.
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

    /// URL for clients that shall come through here.
    #[must_use]
    pub fn service_url(&self) -> &str {
        &self.shared.service_url
    }

    /// Where it listens.
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
        // One that has just ended by itself takes no order any more.
        cuts.filter_map(|order| order.send(cut).ok()).count()
    }

    /// Connections there have ever been.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.shared.lock().opened
    }

    /// Connections that are open, on the client's side at least.
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
    /// Connections of this scope that have not been cut.
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
                // A connection that is gone before it was accepted is nobody's.
                if let Ok((client, _)) = accepted {
                    lines.spawn(forward(client, Arc::clone(&shared)));
                }
            }
        }
    }
}

/// Serves one connection from its first byte to its last.
async fn forward(client: TcpStream, shared: Arc<Shared>) {
    // A broker that is away refuses, and so do we, a moment later.
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
    // A connection that cannot be served any more is closed; that is all there is to say.
    if let Ok(line) = line {
        line.serve(cut).await;
    }
    shared.lock().lines.remove(&number);
}

#[cfg(test)]
mod tests;
