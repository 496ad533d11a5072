//! Clients of the crate `pulsar`, one for each object of the seam.
//!
//! A client means a connection, and the crate shares an error flag among all that use one: with a connection each, what ends
//! one object ends no other. The crate's futures must not be dropped half-way, or its connection map waits for ever; so they
//! run in tasks of their own, and what is given up is the wait for them.

use super::error;
use super::raw::{Greeting, Raw};
use crate::transport::session::ConnectOptions;
use crate::transport::{TransportError, TransportErrorKind};
use bytes::Bytes;
use pulsar::{
    Authentication, ConnectionRetryOptions, OperationRetryOptions, Pulsar, TokioExecutor,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// How long opening a publisher, consumer or follower may take, retries of the crate included.
const OPEN_TIME_MAX: Duration = Duration::from_secs(30);
/// Retries of a connection. Few: with many the crate clings to the address of a dead broker.
const CONNECT_RETRIES_MAX: u32 = 3;
/// How long the crate may take for one connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How often the crate asks whether the broker is there.
const KEEP_ALIVE_TIME: Duration = Duration::from_secs(15);
/// How long the crate waits for the broker's answer.
const OPERATION_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause of the crate after an answer "not ready", as a topic gives it while it moves.
const OPERATION_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Such answers that the crate takes before it gives up.
const OPERATION_RETRIES_MAX: u32 = 20;
/// Commands that wait to be written. Each slot costs 5 KB, allocated at once.
const OUTBOUND_MAX: usize = 100;

pub(super) type Client = Pulsar<TokioExecutor>;

/// Runs a future of the crate to its end, whatever becomes of the caller, and waits for it for a limited time.
pub(super) async fn shielded<T: Send + 'static>(
    tracker: &TaskTracker,
    time_max: Duration,
    address: &str,
    future: impl Future<Output = Result<T, TransportError>> + Send + 'static,
) -> Result<T, TransportError> {
    match timeout(time_max, tracker.spawn(future)).await {
        Ok(Ok(result)) => result,
        Ok(Err(cause)) => Err(error::unreachable(address, cause)),
        Err(_) => Err(error::unreachable(address, "not done in time")),
    }
}

/// Opens a client and something on it.
pub(super) async fn open<T, F>(
    raw: &Raw,
    tracker: &TaskTracker,
    topic: &str,
    build: impl FnOnce(Client) -> F + Send + 'static,
) -> Result<(T, Greeting), TransportError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, pulsar::Error>> + Send,
{
    // The crate hides why it cannot connect, and tries for long: ask ourselves first.
    let greeting = raw.greet().await?;
    let url = greeting.endpoint.to_string();
    let options = raw.options();
    check_crate_can(options)?;
    let authentication = options.credentials.data().await?;
    let authentication = authentication.map(|data| (options.credentials.method(), data));
    let certificates = options.tls.ca_certificate_pem.clone();
    let address = raw.address(topic);
    let place = address.clone();
    let opened = shielded(tracker, OPEN_TIME_MAX, &address, async move {
        let client = connect(url, authentication, certificates)
            .await
            .map_err(|e| error::client(&place, &e))?;
        build(client).await.map_err(|e| error::client(&place, &e))
    });
    Ok((Box::pin(opened).await?, greeting))
}

/// The client crate has no certificate of its own to show, and trusts more than we are told to.
fn check_crate_can(options: &ConnectOptions) -> Result<(), TransportError> {
    let cause = if options.tls.client.is_some() {
        "this transport cannot show a client certificate"
    } else if options.tls.ca_certificate_only {
        "this transport cannot trust the given authorities alone"
    } else {
        return Ok(());
    };
    Err(TransportError::new(TransportErrorKind::Invalid, &options.service_url, cause))
}

async fn connect(
    url: String,
    authentication: Option<(&'static str, Bytes)>,
    certificates: Option<Vec<u8>>,
) -> Result<Client, pulsar::Error> {
    let mut builder = Pulsar::builder(url, TokioExecutor)
        .with_connection_retry_options(ConnectionRetryOptions {
            max_retries: CONNECT_RETRIES_MAX,
            connection_timeout: CONNECT_TIME_MAX,
            keep_alive: KEEP_ALIVE_TIME,
            ..ConnectionRetryOptions::default()
        })
        .with_operation_retry_options(OperationRetryOptions {
            operation_timeout: OPERATION_TIME_MAX,
            retry_delay: OPERATION_RETRY_DELAY,
            max_retries: Some(OPERATION_RETRIES_MAX),
        })
        .with_outbound_channel_size(OUTBOUND_MAX);
    if let Some((method, data)) = authentication {
        let authentication = Authentication { name: method.to_owned(), data: data.to_vec() };
        builder = builder.with_auth(authentication);
    }
    if let Some(certificates) = certificates {
        builder = builder.with_certificate_chain(certificates);
    }
    builder.build().await
}

/// What every object of the seam needs to open and to fail.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) raw: Arc<Raw>,
    pub(super) tracker: TaskTracker,
    /// Full name of the topic or partition.
    pub(super) topic: String,
    /// Service URL and topic, for errors.
    pub(super) address: String,
}
