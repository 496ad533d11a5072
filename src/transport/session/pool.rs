//! The connections of a transport: one per broker and purpose, opened by who needs it first.
//!
//! A connection is opened in a task of its own, so that whoever gives up waiting for it harms nobody else who waits.

use super::dial::dial_within;
use super::driver::Driver;
use super::error;
use super::link::Link;
use super::machine::call::{Answer, Lookup, Question};
use super::machine::{Connection, Greeting};
use super::options::{ConnectOptions, Endpoint, Prepared, endpoints};
use crate::clock::Clock;
use crate::transport::TransportError;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// How long it may take to connect to one host and be greeted; all hosts of a service URL share it.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(8);
/// The least that is left for the greeting when connecting took long.
const GREETING_TIME_MIN: Duration = Duration::from_secs(1);
/// Brokers that may send us on to another one until one owns the topic.
const REDIRECTS_MAX: usize = 8;

/// What a connection is for. Tasks are large and heartbeats must not wait behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Deliveries of tasks, and reading them again.
    Tasks,
    /// All else.
    Records,
}

/// To whom a connection goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    endpoint: Endpoint,
    /// The broker behind the endpoint, if that is a proxy: `host:port`.
    behind_proxy: Option<String>,
    purpose: Purpose,
}

type Opening = Shared<BoxFuture<'static, Result<Arc<Link>, TransportError>>>;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Pool {
    options: ConnectOptions,
    prepared: Prepared,
    tracker: TaskTracker,
    places: Mutex<HashMap<Place, Opening>>,
    /// The host of the service URL that answered last.
    preferred: AtomicUsize,
}

/// A host of the service URL, connected.
struct Service {
    endpoint: Endpoint,
    link: Arc<Link>,
}

impl Pool {
    pub(super) fn new(options: ConnectOptions) -> Result<Self, TransportError> {
        let prepared = options.prepare()?;
        let (places, preferred) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self { options, prepared, tracker: TaskTracker::new(), places, preferred })
    }

    /// Makes sure that a broker answers and accepts our credentials.
    pub(super) async fn greet(&self) -> Result<(), TransportError> {
        self.service().await.map(drop)
    }

    /// Asks any broker.
    pub(super) async fn ask(&self, question: Question) -> Result<Answer, TransportError> {
        self.service().await?.link.ask(question).await
    }

    /// A connection to the broker that serves a topic, after a new lookup.
    pub(super) async fn owner(
        &self,
        topic: &str,
        purpose: Purpose,
    ) -> Result<Arc<Link>, TransportError> {
        let Service { endpoint, link } = self.service().await?;
        let (mut asked, mut authoritative) = (link, false);
        for _ in 0..REDIRECTS_MAX {
            let question = Question::Lookup { topic: topic.to_owned(), authoritative };
            let answer = asked.ask(question).await?;
            let Answer::Lookup(lookup) = answer else {
                return Err(error::refused(&endpoint, "an unexpected answer to a lookup"));
            };
            let (place, behind_proxy) = next(&lookup, &endpoint)?;
            let purpose = if lookup.redirect { Purpose::Records } else { purpose };
            let place = Place { endpoint: place, behind_proxy, purpose };
            let link = self.link(place, CONNECT_TIME_MAX).await?;
            if !lookup.redirect {
                return Ok(link);
            }
            (asked, authoritative) = (link, lookup.authoritative);
        }
        Err(error::refused(&endpoint, format_args!("too many redirects for {topic}")))
    }

    /// A host of the service URL that answers: the one that did so last is asked first.
    async fn service(&self) -> Result<Service, TransportError> {
        let hosts = &self.prepared.endpoints;
        let first = self.preferred.load(Ordering::Relaxed);
        let share = CONNECT_TIME_MAX / u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
        let mut failure = None;
        for (index, endpoint) in hosts.iter().enumerate().cycle().skip(first).take(hosts.len()) {
            let place =
                Place { endpoint: endpoint.clone(), behind_proxy: None, purpose: Purpose::Records };
            match self.link(place, share).await {
                Ok(link) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(Service { endpoint: endpoint.clone(), link });
                }
                Err(error) => {
                    // Whoever asked says so, too, and knows what for.
                    tracing::debug!(%error, "cannot connect to the broker");
                    failure = Some(error);
                }
            }
        }
        Err(failure.unwrap_or_else(|| error::unreachable(&self.options.service_url, "no host")))
    }

    async fn link(&self, place: Place, time_max: Duration) -> Result<Arc<Link>, TransportError> {
        let opening = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.retain(|_, opening| !is_over(opening));
            places.entry(place).or_insert_with_key(|place| self.start(place, time_max)).clone()
        };
        opening.await
    }

    fn start(&self, place: &Place, time_max: Duration) -> Opening {
        let (options, prepared) = (self.options.clone(), self.prepared.clone());
        let (place, tracker) = (place.clone(), self.tracker.clone());
        let gone = error::unreachable(&place.endpoint, "the runtime has ended");
        let task = self.tracker.spawn(async move {
            open(&options, &prepared, place, time_max, &tracker).await.map(Arc::new)
        });
        async move { task.await.unwrap_or(Err(gone)) }.boxed().shared()
    }
}

/// Whether it is of no use to wait for it, or to use it.
fn is_over(opening: &Opening) -> bool {
    // Not a peek: that sees nothing where all who had waited gave up before it came.
    opening.clone().now_or_never().is_some_and(|opened| opened.map_or(true, |link| link.is_over()))
}

/// Where a lookup sends us, and the broker behind it where that is a proxy.
fn next(lookup: &Lookup, service: &Endpoint) -> Result<(Endpoint, Option<String>), TransportError> {
    let (url, what) =
        if service.tls { (&lookup.url_tls, "with TLS") } else { (&lookup.url, "without TLS") };
    if url.is_empty() {
        let cause = format_args!("the topic's broker names no address {what}");
        return Err(error::refused(service, cause));
    }
    let owner = endpoints(url)?.swap_remove(0);
    if lookup.proxied {
        // The proxy goes there, with TLS or without; we go to the proxy as before.
        return Ok((service.clone(), Some(owner.authority())));
    }
    if owner.tls != service.tls {
        // Our credentials would go there in plain text, or the other way round nobody has set up TLS.
        let cause = format_args!("the topic's broker is {owner}, and not {what} as the service is");
        return Err(error::refused(service, cause));
    }
    Ok((owner, None))
}

/// Connects to one host and introduces us.
async fn open(
    options: &ConnectOptions,
    prepared: &Prepared,
    place: Place,
    time_max: Duration,
    tracker: &TaskTracker,
) -> Result<Link, TransportError> {
    let Place { endpoint, behind_proxy, .. } = place;
    let start = Clock::System.now();
    let greeting = Greeting {
        auth_method: options.credentials.method(),
        auth_data: options.credentials.data().await?,
        behind_proxy,
    };
    let wire = dial_within(&endpoint, prepared.tls.as_ref(), time_max).await?;
    let address: Arc<str> = endpoint.to_string().into();
    let machine = Connection::new(Arc::clone(&address), greeting, Clock::System.now());
    let (opened, taken_in) = oneshot::channel();
    let (driver, calls, end) =
        Driver::new(machine, wire, options.credentials.clone(), endpoint, tracker.clone(), opened);
    tracker.spawn(driver.run());
    let link = Link::new(calls, end, Arc::clone(&address));
    let left = time_max.saturating_sub(Clock::System.now().since(start)).max(GREETING_TIME_MIN);
    match timeout(left, taken_in).await {
        Ok(Ok(Ok(()))) => Ok(link),
        Ok(Ok(Err(cause))) => Err(cause),
        Ok(Err(_)) => Err(link.cause()),
        Err(_) => {
            let cause =
                format_args!("no connection within {} ms: no greeting", time_max.as_millis());
            Err(error::unreachable(&address, cause))
        }
    }
}

#[cfg(test)]
mod tests;
