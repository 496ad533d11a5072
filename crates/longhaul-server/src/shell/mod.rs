//! What stands between the network and the routes: connections, TLS, and the checks that every
//! request goes through.

mod accept;
mod body;
mod gate;
mod guard;
mod linger;
mod rate;
mod tls;

pub(crate) use accept::Listener;
pub(crate) use body::{Body, Json, form, in_plain_words};
pub(crate) use gate::{Caller, Gate, gate};
pub(crate) use guard::guard;
pub(crate) use linger::linger;
pub(crate) use rate::Peer;
pub(crate) use tls::Tls;

use crate::auth::Auth;
use crate::config::ServerConfig;
use crate::reach::Reach;
use crate::server::Stops;
use longhaul_http::Guard;
use rate::Rates;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) config: ServerConfig,
    pub(crate) auth: Auth,
    pub(crate) reach: Reach,
    guard: Guard,
    scheme: &'static str,
    rates: Option<Rates>,
    stops: Stops,
    requests: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// In KiB.
    body_room: Arc<Semaphore>,
    /// Bodies that are read over.
    lingering: TaskTracker,
}

impl Shell {
    pub(crate) fn new(config: ServerConfig, auth: Auth, has_tls: bool, stops: Stops) -> Self {
        let limits = &config.limits;
        let permits = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            guard: Guard::new(
                config.listen.ip(),
                &config.allowed_hosts,
                None,
                &config.allowed_origins,
            ),
            scheme: if has_tls { "https" } else { "http" },
            rates: config.rate_limit.map(Rates::new),
            requests: permits(limits.requests),
            waiting: permits(limits.waiting),
            body_room: permits(body::kib(limits.all_body_bytes)),
            lingering: TaskTracker::new(),
            reach: Reach::new(config.broker_grace),
            auth,
            stops,
            config,
        }
    }

    /// Cancelled when the gateway is to end: long polls and event streams end then.
    pub(crate) const fn draining(&self) -> &CancellationToken {
        &self.stops.drain
    }
}
