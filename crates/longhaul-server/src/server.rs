//! Starts and ends a gateway.

use crate::auth::{GatewayAuth, TokenFileError};
use crate::config::{Dashboard, ServerConfig, ServerConfigError};
use crate::core::GatewayService;
use crate::shell::{GatewayListener, Shell};
use crate::{route, telemetry, webhooks};
use longhaul::Client;
use longhaul_http::TlsError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The most of the drain time spent on leaving the queues; also at most a quarter of it.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerStartError {
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] ServerConfigError),
    /// The token file cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// The TLS files cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address cannot be bound.
    #[error(
        "cannot listen at {address}: {source}; choose another address, or stop the program that \
         uses it"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A running gateway.
///
/// It ends with [`drain`](Self::drain). Dropping it ends it at once, like a crash; everything that
/// was answered is in the log.
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
    /// Tasks that end after all of `tasks` have ended.
    follows: TaskTracker,
    service: Arc<GatewayService>,
}

/// The routes of the API without a gateway around them, for a program that calls them itself: they
/// do what the client may do, and act under its name. They look after no leases and grant none, and
/// have no time limits. As with any producer, a task may be submitted to a queue that does not exist.
/// The requests are for the host `localhost`.
///
/// # Errors
/// When the namespace is malformed.
pub fn in_process(client: Client, namespace: &str) -> Result<axum::Router, ServerConfigError> {
    const BYTES_MAX: usize = 512 * 1024 * 1024;
    let mut config = ServerConfig {
        namespace: namespace.to_owned(),
        as_clients_do: true,
        look_after_all: false,
        dashboard: Dashboard::Off,
        ..ServerConfig::default()
    };
    config.limits.leased_queues = 0;
    (config.limits.body_bytes, config.limits.batch_bytes) = (BYTES_MAX, BYTES_MAX);
    config.limits.all_body_bytes = 4 * BYTES_MAX;
    config.limits.request_time = Duration::MAX;
    config.validate()?;
    let reach = client.reach();
    let config = Arc::new(config);
    let service = Arc::new(GatewayService::new(client, Arc::clone(&config)));
    let shell = Arc::new(Shell::new(config, GatewayAuth::default(), Stops::default()));
    // It ends with the client, which the routes have.
    let told = Arc::clone(&shell);
    let following = async move { told.reach.follow(reach, CancellationToken::new()).await };
    TaskTracker::new().spawn(following);
    Ok(route::router(shell, &service))
}

/// Tells the parts of a gateway to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stops {
    /// No new connections and no more waiting; requests in progress are answered.
    pub(crate) drain: CancellationToken,
    /// Everything ends now.
    pub(crate) end: CancellationToken,
}

impl Server {
    /// Starts to listen. The client must be connected; to create, list and delete queues it needs
    /// an admin URL. If the process has no recorder of metrics, this installs one, which `/metrics`
    /// shows.
    ///
    /// # Errors
    /// When a setting is invalid, or the address cannot be bound.
    pub async fn start(client: Client, mut config: ServerConfig) -> Result<Self, ServerStartError> {
        config.validate()?;
        let (stops, tasks) = (Stops::default(), TaskTracker::new());
        telemetry::install();
        let auth = GatewayAuth::open(&config)?;
        let tls = config.tls.as_ref().map(crate::shell::Tls::open).transpose()?;
        let webhooks = config.open_webhooks()?;
        let (address, has_tls) = (config.listen, tls.is_some());
        let failed = |source| ServerStartError::Listen { address, source };
        let listener = GatewayListener::bind(address, tls, &config.limits).map_err(failed)?;
        let address = listener.address().map_err(failed)?;
        if config.advertised_url.is_none() && !address.ip().is_unspecified() {
            config.advertised_url = Some(url_of(address, has_tls));
        }
        let reach = client.reach();
        let config = Arc::new(config);
        let service = Arc::new(GatewayService::new(client, Arc::clone(&config)));
        let shell = Arc::new(Shell::new(config, auth, stops.clone()));
        let router = route::router(Arc::clone(&shell), &service);
        tasks.spawn(telemetry::keep_up(stops.drain.clone()));
        let (told, reached, end) = (reach, Arc::clone(&shell), stops.end.clone());
        // Requests in progress while the gateway ends must also learn of a lost broker.
        let follows = TaskTracker::new();
        follows.spawn(async move { reached.reach.follow(told, end).await });
        let (looking, end) = (Arc::clone(&service), stops.drain.clone());
        tasks.spawn(async move { looking.look_after_leases(end).await });
        if let Some(webhooks) = webhooks {
            let (caller, end) = (Arc::clone(&service), stops.drain.clone());
            let running = webhooks::run(caller, webhooks, end);
            tasks.spawn(stops.end.clone().run_until_cancelled_owned(running));
        }
        tasks.spawn(listener.serve(router, shell, tasks.clone()));
        tracing::info!(event = "gateway_started", %address, tls = has_tls, "the gateway listens");
        Ok(Self { address, has_tls, stops, tasks, follows, service })
    }

    /// The address that it listens on; a configured port of 0 is replaced by the system's choice.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its root URL, such as `http://127.0.0.1:7070`.
    #[must_use]
    pub fn url(&self) -> String {
        url_of(self.address, self.has_tls)
    }

    /// Drains the gateway: it reports that it is not ready, accepts no connections, answers waiting
    /// requests with what there is, and finishes requests in progress. Requests unfinished at the
    /// deadline are cut off. Returns whether all were finished.
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
        // Reports were accepted until here. Later callers must use another gateway.
        let left = tokio::time::timeout(leave, self.service.leave_leases(leave)).await;
        let finished = finished && left.is_ok();
        tracing::info!(event = "gateway_stopped", finished, "gateway stopped");
        finished
    }

    /// Waits until the gateway has ended after a drain.
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
