//! The layer between the network and the routes: connections, TLS, and the checks of every request.

mod accept;
mod addresses;
mod body;
mod gate;
mod guard;
mod linger;
mod rate;
mod room;
mod tls;
mod tracked;

pub(crate) use accept::GatewayListener;
pub(crate) use body::{Json, RawBody, form, in_plain_words};
pub(crate) use gate::{Caller, RouteGate, gate};
pub(crate) use guard::guard;
pub(crate) use linger::linger;
pub(crate) use rate::{OnePage, Peer};
pub(crate) use room::LARGEST_BODIES_MIN;
pub(crate) use tls::Tls;
pub(crate) use tracked::tracked;

use crate::auth::GatewayAuth;
use crate::config::ServerConfig;
use crate::reach::BrokerReachability;
use crate::server::Stops;
use longhaul_http::HostGuard;
use rate::CallerBuckets;
use room::BodyRoom;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The state shared by all requests.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) auth: GatewayAuth,
    pub(crate) reach: BrokerReachability,
    guard: HostGuard,
    scheme: &'static str,
    rates: Option<CallerBuckets>,
    stops: Stops,
    requests: Arc<Semaphore>,
    reports: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    bodies: BodyRoom,
    /// Tasks that discard the rest of bodies.
    lingering: TaskTracker,
}

impl Shell {
    pub(crate) fn new(config: Arc<ServerConfig>, auth: GatewayAuth, stops: Stops) -> Self {
        let limits = &config.limits;
        let (hosts, origins) = (&config.allowed_hosts, &config.allowed_origins);
        let guard = HostGuard::new(config.listen.ip(), hosts, None, origins);
        let guard = if config.has_auth() { guard } else { guard.checking_hosts() };
        let permits = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            guard,
            scheme: if config.tls.is_some() { "https" } else { "http" },
            rates: config.rate_limit.map(CallerBuckets::new),
            requests: permits(limits.requests),
            reports: permits(limits.requests),
            waiting: permits(limits.waiting),
            bodies: BodyRoom::new(limits.all_body_bytes, limits.largest_body()),
            lingering: TaskTracker::new(),
            reach: BrokerReachability::new(config.broker_grace),
            auth,
            stops,
            config,
        }
    }

    /// Cancelled when the gateway drains: long polls and event streams end then.
    pub(crate) const fn draining(&self) -> &CancellationToken {
        &self.stops.drain
    }
}
