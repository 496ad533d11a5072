//! Whether a client reaches its cluster: derived from the end of a held connection and the results
//! of reconnecting, without probes.

use super::Client;
use super::service::BackgroundTasks;
use crate::clock::Clock;
use crate::supervise::{Backoff, ConnectionState};
use crate::transport::{Transport, TransportError};
use longhaul_core::protocol::moment::Moment;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

/// The longest pause between attempts to connect: callers wait for answers.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The client's reachability of its cluster. Created by [`Client::reach`]; ends with the client.
///
/// ```no_run
/// use longhaul::ops::ConnectionState;
/// use longhaul::Client;
///
/// # async fn tell(client: Client) {
/// let mut reach = client.reach();
/// while let Some(state) = reach.changed().await {
///     match state {
///         ConnectionState::Connected => println!("the broker is back"),
///         ConnectionState::Reconnecting { cause, .. } => println!("the broker is away: {cause}"),
///         other => println!("{other:?}"),
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Reach(watch::Receiver<Option<ClusterOutage>>);

/// The cluster is out of reach.
#[derive(Clone, Debug)]
struct ClusterOutage {
    since: Moment,
    cause: TransportError,
}

/// The shared state of all [`Reach`]es of a client.
#[derive(Debug, Default)]
pub(super) struct Watched {
    told: OnceLock<watch::Receiver<Option<ClusterOutage>>>,
    tasks: BackgroundTasks,
}

impl Client {
    /// Starts to report whether the client reaches its cluster, that is, whether a host of the
    /// service URL accepts a connection. It holds one connection, notices its end at once, and
    /// reconnects with pauses of up to a second. A reachable host does not imply that every topic
    /// is reachable: another broker may serve it.
    pub fn reach(&self) -> Reach {
        let Watched { told, tasks } = &self.inner.reach;
        let told = told.get_or_init(|| {
            let (tell, told) = watch::channel(None);
            tasks.spawn(keep(Arc::clone(&self.inner.transport), tell));
            told
        });
        Reach(told.clone())
    }
}

impl Reach {
    /// The current state.
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        state(self.0.borrow().as_ref())
    }

    /// Waits for a change since the last report: a connection was made or lost, or another attempt
    /// to connect has failed. `None` when the client is gone. Cancel safe.
    pub async fn changed(&mut self) -> Option<ConnectionState> {
        self.0.changed().await.ok()?;
        Some(state(self.0.borrow_and_update().as_ref()))
    }
}

fn state(outage: Option<&ClusterOutage>) -> ConnectionState {
    let Some(ClusterOutage { since, cause }) = outage else { return ConnectionState::Connected };
    let (elapsed, cause) = (Clock::System.now().since(*since), cause.clone());
    if cause.kind.is_permanent() {
        return ConnectionState::Refused { elapsed, cause };
    }
    ConnectionState::Reconnecting { elapsed, cause }
}

/// Holds a connection, and reconnects when it ends.
async fn keep(transport: Arc<dyn Transport>, tell: watch::Sender<Option<ClusterOutage>>) {
    let mut backoff = Backoff::up_to(fastrand::Rng::new(), PAUSE_MAX);
    loop {
        let cause = match transport.connected().await {
            Err(cause) => cause,
            Ok(ended) => {
                let since = Clock::System.now();
                tell.send_if_modified(|outage| outage.take().is_some());
                let cause = ended.await;
                backoff.was_open_for(Clock::System.now().since(since));
                cause
            }
        };
        tell.send_modify(|outage| {
            let since = outage.as_ref().map_or_else(|| Clock::System.now(), |outage| outage.since);
            *outage = Some(ClusterOutage { since, cause });
        });
        backoff.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_memory::{Faults, MemoryBroker};
    use longhaul_session::{ConnectOptions, PulsarTransport};
    use tokio::time::timeout;

    async fn soon<T>(coming: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(60), coming).await.expect("nothing comes")
    }

    #[tokio::test]
    async fn what_needs_no_connection_is_always_reached() {
        let broker = MemoryBroker::new(1, Faults::quiet());
        let client = Client::on_transport(Arc::new(broker.connect("client")));
        let mut reach = client.reach();
        assert!(matches!(reach.state(), ConnectionState::Connected));
        drop(client);
        assert!(soon(reach.changed()).await.is_none(), "the client has gone");
    }

    /// A listener that closes every connection is no broker: each attempt fails, and the outage
    /// lasts since the first one.
    #[tokio::test]
    async fn an_outage_is_told_and_lasts_since_it_began() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let options = ConnectOptions::new(format!("pulsar://{address}"));
        let client = Client::on_transport(Arc::new(PulsarTransport::unconnected(options).unwrap()));
        let mut reach = client.reach();
        let mut last = Duration::ZERO;
        for _ in 0..3 {
            let state = soon(reach.changed()).await.unwrap();
            let ConnectionState::Reconnecting { elapsed, cause } = state else {
                panic!("{state:?}")
            };
            assert!(cause.address.contains(&address.to_string()), "{cause}");
            assert!(elapsed >= last, "{elapsed:?} {last:?}");
            last = elapsed;
        }
        assert!(last >= Duration::from_millis(50), "two pauses have passed: {last:?}");
    }
}
