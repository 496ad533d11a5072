//! Starts a gateway, tells where it listens, and ends it.

use crate::auth::{GatewayAuth, TokenFileError};
use crate::config::{ServerConfig, ServerConfigError};
use crate::core::GatewayService;
use crate::shell::{GatewayListener, Shell};
use crate::{route, telemetry};
use longhaul::Client;
use longhaul_http::TlsError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long it may take to leave the queues in order, of the time that the end may take; at most a
/// quarter of that.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerStartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ServerConfigError),
    /// The file of the tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address cannot be listened at.
    #[error(
        "cannot listen at {address}: {source}; give another address, or end the program that uses it"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A gateway that runs.
///
/// It ends with [`drain`](Self::drain). Dropping it ends it at once, as a crash would; what was
/// answered is in the log.
///
/// ```no_run
/// use longhaul::Client;
/// use longhaul_server::{Server, ServerConfig};
/// use std::time::Duration;
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// // With an admin URL queues can be created, listed and deleted.
/// let builder = Client::builder("pulsar://localhost:6650").admin_url("http://localhost:8080");
/// let client = builder.connect().await?;
/// let server = Server::start(client, ServerConfig::default()).await?;
/// println!("{}", server.url());
/// tokio::signal::ctrl_c().await?;
/// server.drain(Duration::from_secs(30)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    has_tls: bool,
    stops: Stops,
    tasks: TaskTracker,
    /// What ends when all of those have ended.
    follows: TaskTracker,
    service: Arc<GatewayService>,
}

/// How the parts of a gateway are told to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stops {
    /// No further connection is accepted, no further request waits; what is being answered is.
    pub(crate) drain: CancellationToken,
    /// Everything ends now.
    pub(crate) end: CancellationToken,
}

impl Server {
    /// Starts to listen. The client is connected already, and has an admin URL where queues are to
    /// be created, listed and deleted. Where the process has no recorder of metrics yet, one is
    /// installed, which `/metrics` shows.
    ///
    /// # Errors
    /// When a setting cannot be used, or the address cannot be listened at.
    pub async fn start(client: Client, mut config: ServerConfig) -> Result<Self, ServerStartError> {
        config.validate()?;
        let (stops, tasks) = (Stops::default(), TaskTracker::new());
        telemetry::install();
        let auth = GatewayAuth::open(&config)?;
        let tls = config.tls.as_ref().map(crate::shell::Tls::open).transpose()?;
        let (address, has_tls) = (config.listen, tls.is_some());
        let failed = |source| ServerStartError::Listen { address, source };
        let listener = GatewayListener::bind(address, tls, &config.limits).map_err(failed)?;
        let address = listener.address().map_err(failed)?;
        if config.advertised_url.is_none() && !address.ip().is_unspecified() {
            config.advertised_url = Some(url_of(address, has_tls));
        }
        let reach = client.reach();
        let service = Arc::new(GatewayService::new(client, &config));
        let looks_after_all = config.look_after_all;
        let shell = Arc::new(Shell::new(config, auth, has_tls, stops.clone()));
        let router = route::router(Arc::clone(&shell), Arc::clone(&service));
        tasks.spawn(telemetry::keep_up(stops.drain.clone()));
        let (told, reached, end) = (reach, Arc::clone(&shell), stops.end.clone());
        // What is being answered while the gateway ends is to learn of it, too.
        let follows = TaskTracker::new();
        follows.spawn(async move { reached.reach.follow(told, end).await });
        let (looking, end) = (Arc::clone(&service), stops.drain.clone());
        if looks_after_all {
            tasks.spawn(async move { looking.look_after_leases(end).await });
        }
        tasks.spawn(listener.serve(router, shell, tasks.clone()));
        tracing::info!(event = "gateway_started", %address, tls = has_tls, "the gateway listens");
        Ok(Self { address, has_tls, stops, tasks, follows, service })
    }

    /// Where it listens: with the port that the system has chosen, if the configured one was 0.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its root, such as `http://127.0.0.1:7070`.
    #[must_use]
    pub fn url(&self) -> String {
        url_of(self.address, self.has_tls)
    }

    /// Ends the gateway in order: it says that it is not ready, accepts no more connections,
    /// answers what waits with what there is, and finishes what it has begun. What is not finished
    /// within the time is cut off. Returns whether everything was finished.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.stops.drain.cancel();
        self.tasks.close();
        let leave = LEAVE_MAX.min(deadline / 4);
        let answering = deadline.saturating_sub(leave);
        let finished = tokio::time::timeout(answering, self.tasks.wait()).await.is_ok();
        self.stops.end.cancel();
        self.tasks.wait().await;
        self.follows.close();
        self.follows.wait().await;
        // Reports were taken until here. Whoever comes now asks another gateway.
        let left = tokio::time::timeout(leave, self.service.leave_leases(leave)).await;
        let finished = finished && left.is_ok();
        tracing::info!(event = "gateway_stopped", finished, "the gateway has ended");
        finished
    }

    /// Waits until the gateway has ended: somebody has drained it.
    pub async fn join(&self) {
        self.stops.drain.cancelled().await;
        self.tasks.wait().await;
    }
}

fn url_of(address: SocketAddr, has_tls: bool) -> String {
    format!("{}://{address}", if has_tls { "https" } else { "http" })
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stops.drain.cancel();
        self.stops.end.cancel();
        self.tasks.close();
    }
}
