//! The settings of a gateway: its address, access, and limits.

use crate::auth::GatewayAuth;
use crate::server::ServerStartError;
use crate::shell::{LARGEST_BODIES_MIN, Tls};
use crate::webhooks::{WebhookConfigError, WebhookProcessor};
use longhaul_http::{TlsConfig, host};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The default port of a gateway.
pub const DEFAULT_PORT: u16 = 7070;

/// The most queues counted for metrics: a view of each queue and of its levels stays open.
const MEASURED_MAX: usize = 64;

/// The settings of a gateway, all with defaults.
///
/// ```
/// use longhaul_server::ServerConfig;
///
/// let mut config = ServerConfig::default();
/// assert!(config.listen.ip().is_loopback() && config.validate().is_ok());
///
/// config.listen = "0.0.0.0:7070".parse()?;
/// let refused = config.validate().unwrap_err();
/// assert!(refused.to_string().contains("token"), "{refused}");
///
/// config.token_file = Some("/etc/longhaul/tokens.json".into());
/// assert!(config.validate().is_ok());
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The address to listen on. With port 0 the system chooses a port;
    /// [`Server::address`](crate::Server::address) returns it. Default: 127.0.0.1:7070.
    pub listen: SocketAddr,
    /// The Pulsar tenant and namespace of the queues, such as `public/default`.
    pub namespace: String,
    /// The token file: see [the page about security](https://docs.rs/crate/longhaul-server). It is
    /// read again when it changes. Default: none, everybody who can reach the address has all
    /// scopes.
    pub token_file: Option<PathBuf>,
    /// Allows listening beyond loopback without tokens or client certificates. Default: false.
    pub insecure: bool,
    /// TLS, from PEM files that are read again when they change. Default: none.
    pub tls: Option<TlsConfig>,
    /// Host names or addresses, without ports, that requests may use (`Host`) in addition to
    /// `localhost`, the loopback addresses and the address that the gateway listens on. Case, a
    /// trailing dot and brackets make no difference. If the gateway listens beyond loopback with
    /// tokens or client certificates, an empty list allows all names. Default: empty.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may use the gateway, such as `https://tasks.example.org`. Default:
    /// none.
    pub allowed_origins: Vec<String>,
    /// Creates a queue on first use. Default: false. Then a queue that does not exist is an error.
    pub create_queues: bool,
    /// Queues are looked up at the broker, which takes no admin API and no list of all of them, and
    /// a task may be submitted to one that does not exist, as by any client.
    pub(crate) as_clients_do: bool,
    /// How long after the loss of the broker requests wait for its return. After that they are
    /// answered with 503 at once until it is back; so are requests in progress. Default: 2 s.
    pub broker_grace: Duration,
    /// Limits on requests and connections.
    pub limits: ServerLimits,
    /// The rate limit per caller; further requests are answered with 429 and `Retry-After`. A
    /// caller is a token, by its name, or the peer's address if there are no tokens. Open routes
    /// are not limited. Default: none.
    pub rate_limit: Option<RateLimit>,
    /// The URL at which other programs reach this gateway, such as `https://tasks-1.example.org`.
    /// It is in the gateway's label among the workers; in the dialect `dqueue`, other gateways name
    /// it when they answer 503. Default: the address that the gateway listens on, unless that is
    /// the wildcard address.
    pub advertised_url: Option<String>,
    /// Shows payloads and results only to tokens with the scope `admin`, and to workers with their
    /// leases; checkpoints are always shown only to those. Default: false, every reader sees
    /// payloads and results.
    pub hide_payloads: bool,
    /// Queues whose tasks are counted at every read of the metrics: `longhaul_tasks`,
    /// `longhaul_oldest_ready_seconds` and `longhaul_demand`, for an autoscaler. Default: none,
    /// since counting a queue follows all its tasks.
    pub measured_queues: Vec<String>,
    /// Dialects served beside the native API. Default: none.
    pub dialects: Vec<Dialect>,
    /// The queue of the dialects' routes, which name no queue. The gateway creates it if it does not
    /// exist, with topics for priorities if it serves [`Dialect::DQueue`]. Default: `default`.
    pub dialect_queue: String,
    /// Looks after the leases of all queues of the namespace, even if nobody has used them at this
    /// gateway. Every 30 s the gateway reads the ledgers of 500 queues, in turn, and opens those with
    /// a lease and without a live worker. It becomes a worker of such a queue, with the settings on
    /// its ledger; while it leases nothing, it leaves writing those settings to other workers.
    /// Without this, silent leases of a queue end only when the queue is used at some gateway.
    /// Default: true.
    pub look_after_all: bool,
    /// Calls the URLs that queues name as webhooks. Default: none, the gateway makes no calls, and
    /// refuses settings with webhooks.
    pub webhooks: Option<WebhookConfig>,
    /// The web dashboard, at `/ui`. Default: on.
    pub dashboard: Dashboard,
}

/// The calls of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// The origins that may be called, such as `https://hooks.example.com`: at least one. Scheme,
    /// host and port must be those of the URL.
    pub allow: Vec<String>,
    /// The file of the secret that signs the calls: at least 24 bytes, or `whsec_` and their base64.
    /// It is read again when it changes.
    pub secret_file: PathBuf,
}

/// The mode of the web dashboard. It calls the API's routes with the token that its user has signed
/// in with, so a user sees and does no more than through the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dashboard {
    /// Not served.
    Off,
    /// Shows everything, without actions.
    ReadOnly,
    /// With buttons for the API's actions.
    #[default]
    On,
}

impl Dashboard {
    pub(crate) fn options(self, has_tls: bool) -> Option<longhaul_ui::UiOptions> {
        let mut options = longhaul_ui::UiOptions::default();
        options.has_tls = has_tls;
        options.read_only = match self {
            Self::Off => return None,
            Self::ReadOnly => true,
            Self::On => false,
        };
        Some(options)
    }
}

/// The limits of a gateway.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Concurrent connections; further ones wait in the system's backlog. Default: 16,384.
    pub connections: usize,
    /// Concurrent connections of one IP address, or of one IPv6 network (/64); further ones are
    /// answered with 503 and closed, or closed at once with TLS. Loopback addresses have no limit. A
    /// proxy on another machine has one address for all its clients: set the value of `connections`
    /// there. Default: `None`, three quarters of `connections`.
    pub connections_per_address: Option<usize>,
    /// Concurrent requests, without long polls and event streams; further ones are answered with
    /// 503 and `Retry-After`. Default: 1,024.
    pub requests: usize,
    /// Concurrent long polls and event streams; further ones are answered with 503 and
    /// `Retry-After`. Default: 16,384.
    pub waiting: usize,
    /// Queues that the gateway has open at once, to grant and look after their leases. Each takes a
    /// connection. If the namespace has more than half as many, a queue is closed after 3 min without
    /// requests, leases and schedules; the least recently used one without work makes room for another. If all have work, requests for leases
    /// of further queues are answered with 503. With 0 the gateway leases
    /// no tasks. Default: 256.
    pub leased_queues: usize,
    /// Maximum size of a body in bytes. Default: 5 MiB.
    pub body_bytes: usize,
    /// Maximum size of a batch body in bytes. Default: 32 MiB.
    pub batch_bytes: usize,
    /// Maximum size of all bodies being read, in bytes. An eighth each is kept for reports on leases
    /// of up to 128 KiB, for larger ones, and for other bodies of up to 128 KiB, and one caller has at
    /// most half of each part. At least four times `batch_bytes` and `body_bytes`. Default: 512 MiB.
    pub all_body_bytes: usize,
    /// Time limit of a request, its body included. Long polls and event streams have none: they
    /// wait as long as they ask. Default: 30 s.
    pub request_time: Duration,
    /// Time limit for the arrival of a body, also for long polls. Default: 25 s.
    pub body_time: Duration,
    /// Time limit for the head of a request, and for an idle connection. Default: 10 s.
    pub header_time: Duration,
    /// Time limit of a TLS handshake. Default: 10 s.
    pub handshake_time: Duration,
    /// The longest wait of a long poll. Default: 30 s.
    pub poll_time: Duration,
}

/// A rate limit per caller: a number of requests per period, and a burst after a pause.
///
/// ```
/// use longhaul_server::{RateLimit, ServerConfig};
/// use std::time::Duration;
///
/// let mut config = ServerConfig::default();
/// config.rate_limit = Some(RateLimit { requests: 100, per: Duration::from_secs(1), burst: 200 });
/// assert!(config.validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The number of requests.
    pub requests: u32,
    /// The period.
    pub per: Duration,
    /// The size of the bucket: the most requests at once.
    pub burst: u32,
}

/// A dialect: the routes and bodies of another task queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `jobs`, of a job queue in Go: `/enqueue`, `/poll`, `/ack`, `/fail`, `/jobs`, `/dead`, `/health`.
    Jobs,
    /// `dqueue`, of DQueue: `/tasks`, `/tasks/lease`, `/tasks/{id}/ack`, `/tasks/{id}/nack`.
    DQueue,
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerConfigError {
    /// It would listen beyond this machine without authentication.
    #[error(
        "{0} can be reached from other machines without authentication: set a token file, or \
         client authorities for TLS, or listen on 127.0.0.1; `insecure` allows it nevertheless"
    )]
    OpenToAll(SocketAddr),
    /// The namespace is malformed.
    #[error(
        "the namespace `{0}` is invalid: expected a tenant and a namespace of Pulsar, such as \
         `public/default`"
    )]
    Namespace(String),
    /// An origin is malformed.
    #[error(
        "the allowed origin `{0}` is invalid: expected a scheme, a host and an optional port, \
         such as `https://tasks.example.org`"
    )]
    Origin(String),
    /// A host is malformed.
    #[error(
        "the allowed host `{0}` is invalid: expected a name or an IP address without scheme and \
         port, such as `tasks.example.org`"
    )]
    Host(String),
    /// The queue of the dialects has an invalid name.
    #[error("the queue of the dialects is invalid: {0}")]
    Queue(String),
    /// A queue to be measured has an invalid name.
    #[error("a queue to measure is invalid: {0}")]
    Measured(String),
    /// There are too many queues to be measured.
    #[error("{0} queues to measure are too many: the limit is {MEASURED_MAX}")]
    MeasuredMany(usize),
    /// Webhooks cannot be called with these settings.
    #[error(transparent)]
    Webhooks(#[from] WebhookConfigError),
    /// A limit is zero.
    #[error("the limit `{0}` must be at least 1")]
    Zero(&'static str),
    /// There is no room for the largest bodies.
    #[error(
        "`limits.all_body_bytes` must be at least {0}: four times the largest of `batch_bytes` and \
         `body_bytes`"
    )]
    BodyRoom(usize),
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT),
            namespace: "public/default".to_owned(),
            token_file: None,
            insecure: false,
            tls: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            create_queues: false,
            as_clients_do: false,
            advertised_url: None,
            broker_grace: Duration::from_secs(2),
            limits: ServerLimits::default(),
            rate_limit: None,
            hide_payloads: false,
            measured_queues: Vec::new(),
            dialects: Vec::new(),
            dialect_queue: "default".to_owned(),
            look_after_all: true,
            webhooks: None,
            dashboard: Dashboard::default(),
        }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            connections: 16_384,
            connections_per_address: None,
            requests: 1_024,
            waiting: 16_384,
            leased_queues: 256,
            body_bytes: 5 * MIB,
            batch_bytes: 32 * MIB,
            all_body_bytes: 512 * MIB,
            request_time: Duration::from_secs(30),
            body_time: Duration::from_secs(25),
            header_time: Duration::from_secs(10),
            handshake_time: Duration::from_secs(10),
            poll_time: Duration::from_secs(30),
        }
    }
}

impl ServerConfig {
    /// Whether callers are authenticated.
    #[must_use]
    pub fn has_auth(&self) -> bool {
        let certificates = self.tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
        self.token_file.is_some() || certificates
    }

    /// Checks the settings and the files that they name, without listening.
    /// [`Server::start`](crate::Server::start) does so as well.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), ServerStartError> {
        self.validate()?;
        GatewayAuth::open(self)?;
        self.tls.as_ref().map(Tls::open).transpose()?;
        self.open_webhooks()?;
        Ok(())
    }

    /// The processor of the calls of webhooks, if there are any.
    pub(crate) fn open_webhooks(&self) -> Result<Option<WebhookProcessor>, ServerConfigError> {
        let open = |webhooks: &WebhookConfig| webhooks.open(self.hide_payloads);
        Ok(self.webhooks.as_ref().map(open).transpose()?)
    }

    /// Checks the settings, without reading the files that they name.
    ///
    /// # Errors
    /// Names the first invalid setting, and what to do.
    pub fn validate(&self) -> Result<(), ServerConfigError> {
        if !self.listen.ip().is_loopback() && !self.has_auth() && !self.insecure {
            return Err(ServerConfigError::OpenToAll(self.listen));
        }
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_name_byte);
        let namespace = self.namespace.split_once('/');
        if !namespace.is_some_and(|(tenant, namespace)| is_word(tenant) && is_word(namespace)) {
            return Err(ServerConfigError::Namespace(self.namespace.clone()));
        }
        if let Some(origin) = self.allowed_origins.iter().find(|origin| !is_origin(origin)) {
            return Err(ServerConfigError::Origin(origin.clone()));
        }
        let is_no_host = |host: &&String| host::parse(host).is_none();
        if let Some(host) = self.allowed_hosts.iter().find(is_no_host) {
            return Err(ServerConfigError::Host(host.clone()));
        }
        crate::core::QueueName::parse(&self.dialect_queue)
            .map_err(|error| ServerConfigError::Queue(error.to_string()))?;
        if self.measured_queues.len() > MEASURED_MAX {
            return Err(ServerConfigError::MeasuredMany(self.measured_queues.len()));
        }
        for queue in &self.measured_queues {
            crate::core::QueueName::parse(queue)
                .map_err(|error| ServerConfigError::Measured(error.to_string()))?;
        }
        self.webhooks.as_ref().map_or(Ok(()), WebhookConfig::validate)?;
        self.rate_limit.map_or(Ok(()), RateLimit::validate)?;
        self.limits.validate()
    }
}

impl RateLimit {
    const fn validate(self) -> Result<(), ServerConfigError> {
        match self {
            Self { requests: 0, .. } => Err(ServerConfigError::Zero("rate_limit.requests")),
            Self { per: Duration::ZERO, .. } => Err(ServerConfigError::Zero("rate_limit.per")),
            Self { burst: 0, .. } => Err(ServerConfigError::Zero("rate_limit.burst")),
            Self { .. } => Ok(()),
        }
    }
}

impl ServerLimits {
    /// Concurrent connections of one address: at least one.
    pub(crate) fn connections_of_address(&self) -> usize {
        let default = self.connections - self.connections / 4;
        self.connections_per_address.unwrap_or(default)
    }

    /// The maximum size of a body, in bytes.
    pub(crate) fn largest_body(&self) -> usize {
        self.batch_bytes.max(self.body_bytes)
    }

    fn validate(&self) -> Result<(), ServerConfigError> {
        let are_zero = [
            ("connections", self.connections == 0),
            ("connections_per_address", self.connections_of_address() == 0),
            ("requests", self.requests == 0),
            ("waiting", self.waiting == 0),
            ("body_bytes", self.body_bytes == 0),
            ("batch_bytes", self.batch_bytes == 0),
            ("request_time", self.request_time.is_zero()),
            ("body_time", self.body_time.is_zero()),
            ("header_time", self.header_time.is_zero()),
            ("handshake_time", self.handshake_time.is_zero()),
        ];
        let zero = are_zero.iter().find(|(_, is_zero)| *is_zero);
        if let Some((name, _)) = zero {
            return Err(ServerConfigError::Zero(name));
        }
        let room = self.largest_body().saturating_mul(LARGEST_BODIES_MIN);
        if self.all_body_bytes < room {
            return Err(ServerConfigError::BodyRoom(room));
        }
        Ok(())
    }
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'=' | b':')
}

fn is_origin(origin: &str) -> bool {
    let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', '*']);
    rest.is_some_and(is_host) && !origin.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: impl FnOnce(&mut ServerConfig)) -> Result<(), ServerConfigError> {
        let mut config = ServerConfig::default();
        change(&mut config);
        config.validate()
    }

    #[test]
    fn only_loopback_is_open_to_all() {
        let beyond = "0.0.0.0:1".parse().unwrap();
        assert_eq!(changed(|_| {}), Ok(()));
        assert_eq!(changed(|it| it.listen = "[::1]:0".parse().unwrap()), Ok(()));
        assert_eq!(changed(|it| it.listen = beyond), Err(ServerConfigError::OpenToAll(beyond)));
        let insecure = |it: &mut ServerConfig| (it.listen, it.insecure) = (beyond, true);
        assert_eq!(changed(insecure), Ok(()));
        let tokens = |it: &mut ServerConfig| {
            (it.listen, it.token_file) = (beyond, Some("t".into()));
        };
        assert_eq!(changed(tokens), Ok(()));
        let tls = |client_authorities| {
            let (certificates, key) = ("c".into(), "k".into());
            let tls = Some(TlsConfig { certificates, key, client_authorities });
            changed(|it| (it.listen, it.tls) = (beyond, tls))
        };
        assert_eq!(tls(Some("ca".into())), Ok(()));
        assert_eq!(
            tls(None),
            Err(ServerConfigError::OpenToAll(beyond)),
            "TLS alone tells nobody apart"
        );
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for namespace in ["", "public", "a/b/c", "/b", "a/", "a b/c"] {
            let refused = changed(|it| it.namespace = namespace.to_owned());
            assert_eq!(refused, Err(ServerConfigError::Namespace(namespace.to_owned())));
        }
        for origin in ["*", "example.org", "https://", "https://a/b", "https://*.a", "https://a b"]
        {
            let refused = changed(|it| it.allowed_origins = vec![origin.to_owned()]);
            assert_eq!(refused, Err(ServerConfigError::Origin(origin.to_owned())));
        }
        assert_eq!(changed(|it| it.allowed_origins = vec!["http://a:8080".to_owned()]), Ok(()));
        for host in ["", "tasks.example:7070", "https://tasks.example", "*", "[::1]:1", "a b"] {
            let refused = changed(|it| it.allowed_hosts = vec![host.to_owned()]);
            assert_eq!(refused, Err(ServerConfigError::Host(host.to_owned())));
        }
        for host in ["tasks.example", "Tasks.example.", "[fd00::7]", "fd00::7", "10.0.0.1"] {
            assert_eq!(changed(|it| it.allowed_hosts = vec![host.to_owned()]), Ok(()), "{host}");
        }
        assert_eq!(changed(|it| it.limits.requests = 0), Err(ServerConfigError::Zero("requests")));
        let zero = changed(|it| it.limits.connections_per_address = Some(0));
        assert_eq!(zero, Err(ServerConfigError::Zero("connections_per_address")));
        let zero = changed(|it| it.limits.header_time = Duration::ZERO);
        assert_eq!(zero, Err(ServerConfigError::Zero("header_time")));
        let room = changed(|it| it.limits.all_body_bytes = 1 << 20);
        assert_eq!(room, Err(ServerConfigError::BodyRoom(128 << 20)));
        let rate = |requests, seconds, burst| {
            let limit = RateLimit { requests, per: Duration::from_secs(seconds), burst };
            changed(|it| it.rate_limit = Some(limit))
        };
        assert_eq!(rate(1, 1, 1), Ok(()));
        assert_eq!(rate(0, 1, 1), Err(ServerConfigError::Zero("rate_limit.requests")));
        assert_eq!(rate(1, 0, 1), Err(ServerConfigError::Zero("rate_limit.per")));
        assert_eq!(rate(1, 1, 0), Err(ServerConfigError::Zero("rate_limit.burst")));
        let queue = changed(|it| it.dialect_queue = "a/b".to_owned());
        assert!(matches!(queue, Err(ServerConfigError::Queue(_))));
    }
}
