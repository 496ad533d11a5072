//! The connections of a transport: one per broker and purpose, opened on first use.
//!
//! A connection is opened in a task of its own, so that a caller that gives up does not affect the
//! other callers that wait for it.

use super::credentials::DATA_TIME_MAX;
use super::detours::{Detour, Detours};
use super::dial::dial_within;
use super::driver::{ConnectionContext, ConnectionDriver};
use super::error;
use super::link::ConnectionHandle;
use super::machine::call::{BrokerRequest, BrokerResponse, Lookup, LookupQuestion, TopicRedirect};
use super::machine::{ConnectionMachine, Greeting};
use super::options::{ConnectOptions, Endpoint, endpoints};
use futures::future::{BoxFuture, Shared};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use longhaul_transport::clock::Clock;
use longhaul_transport::{TransportError, TransportErrorKind};
use longhaul_types::moment::Moment;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// Longest time to connect and be greeted; all hosts of a service URL share it.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(8);
/// Time limits for the hosts and for the credentials.
const TIMES: (Duration, Duration) = (CONNECT_TIME_MAX, DATA_TIME_MAX);
/// The part of a host's time that is reserved for the greeting when connecting takes long: 1/8.
const GREETING_PARTS: u32 = 8;
/// How long a host of the service URL may be silent before the next one is tried in parallel, where
/// any host will do.
const HEAD_START: Duration = Duration::from_millis(250);
/// Shortest time that a host gets.
const SHARE_MIN: Duration = Duration::from_millis(250);
/// Redirects that a lookup follows before it gives up.
const REDIRECTS_MAX: usize = 8;

/// Purpose of a connection. Tasks are large, and heartbeats must not wait behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Deliveries of tasks, and reading them again.
    Tasks,
    /// Everything else.
    Records,
}

/// Target of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ConnectionTarget {
    endpoint: Endpoint,
    /// The broker behind the endpoint, if the endpoint is a proxy: `host:port`.
    behind_proxy: Option<String>,
    purpose: Purpose,
}

/// The time that is left for connecting.
#[derive(Clone, Debug)]
struct Budget {
    until: Moment,
    /// Hosts that share the time. Time that one host does not use is left for the others.
    untried: u32,
    /// Time spent on credentials, in µs. A slow issuer is not a host's fault and does not reduce
    /// the hosts' time.
    credentials_us: Arc<AtomicU64>,
    /// Longest time for credentials, for all hosts together.
    credentials_max: Duration,
}

impl Budget {
    fn new((hosts_max, credentials_max): (Duration, Duration), hosts: usize) -> Self {
        let untried = u32::try_from(hosts).unwrap_or(u32::MAX).max(1);
        let until = Clock::System.now() + hosts_max;
        Self { until, untried, credentials_us: Arc::default(), credentials_max }
    }

    fn left(&self) -> Duration {
        (self.until + self.spent_on_credentials()).since(Clock::System.now())
    }

    fn spent_on_credentials(&self) -> Duration {
        Duration::from_micros(self.credentials_us.load(Ordering::Relaxed))
    }

    fn record_credentials(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.credentials_us.fetch_add(took, Ordering::Relaxed);
    }

    /// The next host's share of the time, at least [`SHARE_MIN`]: a caller that waited for another
    /// caller's attempt may have no time left, and a healthy host must still be tried.
    fn share(&self) -> Duration {
        (self.left() / self.untried).max(SHARE_MIN)
    }

    /// Time left for credentials.
    fn for_credentials(&self) -> Duration {
        self.credentials_max.saturating_sub(self.spent_on_credentials()).max(SHARE_MIN)
    }

    fn without_one_host(self) -> Self {
        Self { untried: self.untried.saturating_sub(1).max(1), ..self }
    }
}

/// Why there is no connection.
#[derive(Clone, Debug)]
enum ConnectFailure {
    /// No credentials can be obtained, for any host, or no trusted authority is known.
    Credentials(TransportError),
    /// This host failed.
    Host(TransportError),
}

impl From<ConnectFailure> for TransportError {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Credentials(cause) | ConnectFailure::Host(cause) => cause,
        }
    }
}

type ConnectionOpening = Shared<BoxFuture<'static, Result<Arc<ConnectionHandle>, ConnectFailure>>>;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Pool {
    options: ConnectOptions,
    hosts: Vec<Endpoint>,
    tracker: TaskTracker,
    places: Mutex<HashMap<ConnectionTarget, ConnectionOpening>>,
    /// The host of the service URL that is tried first: the one that answered last, or the next one
    /// if that host could not help.
    preferred: AtomicUsize,
    detours: Arc<Detours>,
}

/// A host of the service URL, connected.
struct ConnectedHost {
    index: usize,
    endpoint: Endpoint,
    link: Arc<ConnectionHandle>,
}

impl Pool {
    /// Tries the hosts in random order, so that many clients do not all use the first.
    pub(super) fn new(options: ConnectOptions) -> Result<Self, TransportError> {
        Self::shuffled(options, &mut fastrand::Rng::new())
    }

    fn shuffled(options: ConnectOptions, rng: &mut fastrand::Rng) -> Result<Self, TransportError> {
        let mut pool = Self::in_order(options)?;
        rng.shuffle(&mut pool.hosts);
        Ok(pool)
    }

    fn in_order(options: ConnectOptions) -> Result<Self, TransportError> {
        let hosts = options.prepare()?;
        let (places, preferred) = (Mutex::default(), AtomicUsize::new(0));
        let (tracker, detours) = (TaskTracker::new(), Arc::default());
        Ok(Self { options, hosts, tracker, places, preferred, detours })
    }

    pub(super) const fn answer_time(&self) -> Duration {
        self.options.answer_time
    }

    /// Checks that a broker answers and accepts our credentials.
    pub(super) async fn greet(&self) -> Result<(), TransportError> {
        self.connected().await.map(drop)
    }

    /// A connection to any broker that answers. The hosts are tried in parallel, each a moment
    /// after the previous one, so that silent hosts cost no time.
    pub(super) async fn connected(&self) -> Result<Arc<ConnectionHandle>, TransportError> {
        let hosts = &self.hosts;
        let first = self.preferred.load(Ordering::Relaxed);
        let mut next = hosts.iter().enumerate().cycle().skip(first).take(hosts.len());
        let (mut asked, mut failures) = (FuturesUnordered::new(), Vec::new());
        loop {
            asked.extend(next.next().map(|(index, endpoint)| {
                let host = self.host(endpoint, Budget::new(TIMES, 1));
                host.map(move |link| (index, link))
            }));
            match timeout(HEAD_START, asked.next()).await {
                Ok(Some((index, Ok(link)))) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(link);
                }
                Ok(Some((_, Err(ConnectFailure::Credentials(error))))) => return Err(error),
                Ok(Some((_, Err(ConnectFailure::Host(error))))) => failures.push(error),
                Ok(None) => return Err(nobody_answers(&self.options.service_url, failures)),
                // Try the next host too.
                Err(_) => {}
            }
        }
    }

    /// Asks any broker.
    pub(super) async fn ask(
        &self,
        question: BrokerRequest,
    ) -> Result<BrokerResponse, TransportError> {
        let service = self.service().await?;
        let answer = service.link.ask(question).await;
        self.judge(&service, &answer);
        answer
    }

    /// A connection to the broker that serves a topic, after a new lookup.
    pub(super) async fn owner(
        &self,
        topic: &str,
        purpose: Purpose,
    ) -> Result<Arc<ConnectionHandle>, TransportError> {
        if let Some(detour) = self.detours.take(topic, Clock::System.now()) {
            match self.follow(&detour, topic, purpose).await {
                Ok(link) => return Ok(link),
                Err(error) => {
                    tracing::warn!(topic, %error, "the address given by the broker cannot be used: looking up the topic again");
                }
            }
        }
        let service = self.service().await?;
        let found = self.find(&service, topic, purpose).await;
        self.judge(&service, &found);
        found
    }

    /// Connects to the place that a broker has named for the topic, by the rules for lookups.
    async fn follow(
        &self,
        detour: &Detour,
        topic: &str,
        purpose: Purpose,
    ) -> Result<Arc<ConnectionHandle>, TransportError> {
        let Detour { moved: TopicRedirect { url, url_tls, migrated, .. }, by, proxied } = detour;
        let (url, url_tls, redirect) = (url.clone(), url_tls.clone(), *migrated);
        // Another cluster is not behind this cluster's proxy.
        let proxied = *proxied && !migrated;
        let lookup = Lookup { url, url_tls, redirect, authoritative: false, proxied };
        let (endpoint, behind_proxy) = next(&lookup, by)?;
        let purpose_here = if redirect { Purpose::Records } else { purpose };
        let place =
            ConnectionTarget { endpoint: endpoint.clone(), behind_proxy, purpose: purpose_here };
        let link = self.link(place, Budget::new(TIMES, 1)).await?;
        if !redirect {
            return Ok(link);
        }
        let link = self.find(&ConnectedHost { index: 0, endpoint, link }, topic, purpose).await?;
        // Later callers that open the topic use this place too.
        self.detours.note(detour.clone(), Clock::System.now());
        Ok(link)
    }

    async fn find(
        &self,
        service: &ConnectedHost,
        topic: &str,
        purpose: Purpose,
    ) -> Result<Arc<ConnectionHandle>, TransportError> {
        let ConnectedHost { endpoint, link, .. } = service;
        let (mut asked, mut authoritative) = (Arc::clone(link), false);
        for _ in 0..REDIRECTS_MAX {
            let question = BrokerRequest::Lookup(LookupQuestion {
                topic: topic.to_owned(),
                authoritative,
                listener_name: self.options.listener_name.clone(),
            });
            let answer = asked.ask(question).await?;
            let BrokerResponse::Lookup(lookup) = answer else {
                return Err(error::refused(endpoint, "an unexpected answer to a lookup"));
            };
            let (place, behind_proxy) = next(&lookup, endpoint)?;
            let purpose = if lookup.redirect { Purpose::Records } else { purpose };
            let place = ConnectionTarget { endpoint: place, behind_proxy, purpose };
            let link = self.link(place, Budget::new(TIMES, 1)).await?;
            if !lookup.redirect {
                return Ok(link);
            }
            (asked, authoritative) = (link, lookup.authoritative);
        }
        Err(error::refused(endpoint, format_args!("too many redirects for {topic}")))
    }

    /// If a host accepts the connection and yet cannot help, the next host is tried first the next
    /// time.
    fn judge<T>(&self, service: &ConnectedHost, outcome: &Result<T, TransportError>) {
        if outcome.as_ref().is_err_and(|error| error.kind == TransportErrorKind::Unreachable) {
            // The index wraps around after the last host.
            let next = service.index + 1;
            // If many callers see the same failure, only the first advances: two steps may lead
            // back to the failed host.
            let (order, index) = (Ordering::Relaxed, service.index);
            self.preferred.compare_exchange(index, next, order, order).ok();
        }
    }

    /// A host of the service URL that answers.
    async fn service(&self) -> Result<ConnectedHost, TransportError> {
        self.service_within(TIMES).await
    }

    async fn service_within(
        &self,
        times_max: (Duration, Duration),
    ) -> Result<ConnectedHost, TransportError> {
        let hosts = &self.hosts;
        let first = self.preferred.load(Ordering::Relaxed);
        let mut budget = Budget::new(times_max, hosts.len());
        let mut failures = Vec::new();
        for (index, endpoint) in hosts.iter().enumerate().cycle().skip(first).take(hosts.len()) {
            match self.host(endpoint, budget.clone()).await {
                Ok(link) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(ConnectedHost { index, endpoint: endpoint.clone(), link });
                }
                Err(ConnectFailure::Credentials(error)) => return Err(error),
                Err(ConnectFailure::Host(error)) => {
                    // The caller reports it too, with the context.
                    tracing::debug!(%error, "cannot connect to the broker");
                    failures.push(error);
                }
            }
            budget = budget.without_one_host();
        }
        Err(nobody_answers(&self.options.service_url, failures))
    }

    /// A connection to this host of the service URL.
    async fn host(
        &self,
        endpoint: &Endpoint,
        budget: Budget,
    ) -> Result<Arc<ConnectionHandle>, ConnectFailure> {
        let (endpoint, purpose) = (endpoint.clone(), Purpose::Records);
        self.link(ConnectionTarget { endpoint, behind_proxy: None, purpose }, budget).await
    }

    async fn link(
        &self,
        place: ConnectionTarget,
        budget: Budget,
    ) -> Result<Arc<ConnectionHandle>, ConnectFailure> {
        let opening = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.retain(|_, opening| !is_over(opening));
            places.entry(place).or_insert_with_key(|place| self.start(place, budget)).clone()
        };
        opening.await
    }

    fn start(&self, place: &ConnectionTarget, budget: Budget) -> ConnectionOpening {
        let (options, place) = (self.options.clone(), place.clone());
        let (tracker, detours) = (self.tracker.clone(), Arc::clone(&self.detours));
        let gone =
            ConnectFailure::Host(error::unreachable(&place.endpoint, "the runtime has ended"));
        let opening = async move { open(&options, place, budget, tracker, detours).await };
        let task = self.tracker.spawn(async move { opening.await.map(Arc::new) });
        async move { task.await.unwrap_or(Err(gone)) }.boxed().shared()
    }
}

/// Whether the attempt has failed or its connection is over.
fn is_over(opening: &ConnectionOpening) -> bool {
    // Not `peek`, which sees nothing if all waiting callers gave up before the result.
    opening.clone().now_or_never().is_some_and(|opened| opened.map_or(true, |link| link.is_over()))
}

/// Combines the failures of all hosts. A failure that is not a timeout comes first and determines
/// the kind: trying again would not help.
fn nobody_answers(service_url: &str, mut failures: Vec<TransportError>) -> TransportError {
    failures.sort_by_key(|failure| failure.kind == TransportErrorKind::Unreachable);
    match failures.as_slice() {
        [] => error::unreachable(service_url, "no host"),
        [only] => only.clone(),
        [first, ..] => {
            let each =
                failures.iter().map(|failure| format!("{}: {}", failure.address, failure.cause));
            TransportError::new(first.kind, service_url, each.collect::<Vec<_>>().join("; "))
        }
    }
}

/// The target of a lookup, and the broker behind it if the target is a proxy.
fn next(lookup: &Lookup, service: &Endpoint) -> Result<(Endpoint, Option<String>), TransportError> {
    let (url, what) =
        if service.tls { (&lookup.url_tls, "with TLS") } else { (&lookup.url, "without TLS") };
    if url.is_empty() {
        let cause = format_args!("the topic's broker gives no address {what}");
        return Err(error::refused(service, cause));
    }
    let owner = endpoints(url)?.swap_remove(0);
    if lookup.proxied {
        // The proxy connects to the broker, with TLS or without; our connection to the proxy is
        // unchanged.
        return Ok((service.clone(), Some(owner.authority())));
    }
    if owner.tls != service.tls {
        // Otherwise credentials would be sent in plain text, or TLS would be used without being
        // configured.
        let cause =
            format_args!("the topic's broker {owner} must be reached {what}, as the service is");
        return Err(error::refused(service, cause));
    }
    Ok((owner, None))
}

/// Gets the credentials, connects to one host and performs the handshake.
async fn open(
    options: &ConnectOptions,
    place: ConnectionTarget,
    budget: Budget,
    tracker: TaskTracker,
    detours: Arc<Detours>,
) -> Result<ConnectionHandle, ConnectFailure> {
    let ConnectionTarget { endpoint, behind_proxy, .. } = place;
    let began = Clock::System.now();
    let credentials = options.credentials.clone();
    let shown = credentials.data_within(budget.for_credentials()).await;
    let shown = shown.map_err(ConnectFailure::Credentials)?;
    budget.record_credentials(Clock::System.now().since(began));
    let proxied = behind_proxy.is_some();
    let greeting = Greeting {
        auth_method: credentials.method(),
        auth_data: shown.clone().map(Into::into),
        behind_proxy,
        name: options.name.clone(),
        times: options.times(),
    };
    let share = budget.share();
    let end = Clock::System.now() + share;
    let tls = if endpoint.tls {
        Some(options.client_config().await.map_err(ConnectFailure::Credentials)?)
    } else {
        None
    };
    let dialled = dial_within(&endpoint, tls.as_ref(), share - share / GREETING_PARTS).await;
    let wire = dialled.map_err(ConnectFailure::Host)?;
    let address: Arc<str> = endpoint.to_string().into();
    let machine = ConnectionMachine::new(Arc::clone(&address), greeting, Clock::System.now());
    let (opened, taken_in) = oneshot::channel();
    let around = ConnectionContext {
        clock: Clock::System,
        credentials,
        shown,
        endpoint,
        proxied,
        detours,
        tracker: tracker.clone(),
    };
    let (driver, calls, over) = ConnectionDriver::new(machine, wire, around, opened);
    tracker.spawn(driver.run());
    let link = ConnectionHandle::new(calls, over, Arc::clone(&address));
    match timeout(end.since(Clock::System.now()), taken_in).await {
        Ok(Ok(Ok(()))) => Ok(link),
        Ok(Ok(Err(cause))) => Err(ConnectFailure::Host(cause)),
        Ok(Err(_)) => Err(ConnectFailure::Host(link.cause())),
        Err(_) => {
            let cause = format!("no connection within {} ms: no greeting", share.as_millis());
            Err(ConnectFailure::Host(error::unreachable(&address, cause)))
        }
    }
}

#[cfg(test)]
mod tests;
