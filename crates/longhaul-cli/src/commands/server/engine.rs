//! What keeps the tasks: a broker in this process, or a Pulsar elsewhere.

use crate::exit::Failure;
use crate::settings::Settings;
use longhaul::{Client, ClientBuilder};
use longhaul_broker::{
    AuthConfig, Broker, BrokerConfig, BrokerError, StartError, TlsConfig, TokenKey,
};
use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};

/// The role of the clients in this process.
const OWN_ROLE: &str = "longhaul";

/// What keeps the tasks.
pub(super) enum Engine {
    Embedded(Box<Embedded>),
    /// Its service URL.
    Pulsar(String),
}

impl From<Embedded> for Engine {
    fn from(embedded: Embedded) -> Self {
        Self::Embedded(Box::new(embedded))
    }
}

/// A broker in this process.
pub(super) struct Embedded {
    broker: Broker,
    /// For clients in this process, where the broker wants tokens.
    token: Option<String>,
    /// Who acts by its clients.
    operator: Option<String>,
    subscription: Option<String>,
}

impl Embedded {
    /// Starts it.
    ///
    /// # Errors
    /// When a port is in use, or the directory cannot be used.
    pub(super) async fn start(settings: &Settings) -> anyhow::Result<Self> {
        let listen = address(settings, "broker")?;
        let admin = address(settings, "admin")?;
        let key = settings.text("broker-token-secret").map(TokenKey::secret).transpose();
        let key = key.map_err(|error| unusable("broker-token-secret", &error))?;
        let token = key.as_ref().map(|key| key.create_token(OWN_ROLE, None)).transpose();
        let token = token.map_err(|error| unusable("broker-token-secret", &error))?;
        let mut superusers: BTreeSet<String> =
            list(settings, "broker-superusers").into_iter().collect();
        superusers.insert(OWN_ROLE.to_owned());
        let monitors = list(settings, "broker-monitors").into_iter().collect();
        let open_namespaces = settings.is("broker-open-namespaces")?;
        let listen_tls = settings.text("broker-tls").map(|_| address(settings, "broker-tls"));
        let admin_tls = settings.text("admin-tls").map(|_| address(settings, "admin-tls"));
        let config = BrokerConfig {
            data: settings.path("data"),
            listen,
            admin: Some(admin),
            admin_tls: admin_tls.transpose()?,
            admin_hosts: list(settings, "admin-hosts"),
            listen_tls: listen_tls.transpose()?,
            tls: tls(settings)?,
            advertised_host: settings.text("broker-host").map(str::to_owned),
            auth: key.map(|key| AuthConfig {
                monitors,
                open_namespaces,
                ..AuthConfig::new(key, superusers)
            }),
            ..BrokerConfig::default()
        };
        // It reads its log, and answers when that is done.
        let started = tokio::task::spawn_blocking(|| Broker::start(config)).await?;
        let broker = started.map_err(|error| explained(error, listen))?;
        let operator = settings.text("operator").map(str::to_owned);
        let subscription = settings.text("subscription").map(str::to_owned);
        Ok(Self { broker, token, operator, subscription })
    }

    /// A client of it.
    pub(super) fn client(&self) -> ClientBuilder {
        let mut builder = Client::builder(self.broker.service_url());
        if let Some(url) = self.broker.admin_url() {
            builder = builder.admin_url(url);
        }
        if let Some(token) = &self.token {
            builder = builder.token(token);
        }
        if let Some(name) = &self.operator {
            builder = builder.operator(name);
        }
        match &self.subscription {
            Some(name) => builder.subscription(name),
            None => builder,
        }
    }

    pub(super) fn service_url(&self) -> String {
        self.broker.service_url().to_owned()
    }

    pub(super) fn admin_url(&self) -> Option<String> {
        self.broker.admin_url()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// Why it did.
    pub(super) async fn ended(&self) -> Result<(), BrokerError> {
        self.broker.ended().await
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// Why it had ended by itself.
    pub(super) async fn shutdown(self) -> anyhow::Result<()> {
        Ok(tokio::task::spawn_blocking(|| self.broker.shutdown()).await??)
    }
}

fn unusable(name: &str, error: &dyn std::error::Error) -> Failure {
    Failure::usage(format!("{name} cannot be used: {}", chain(error)))
}

fn tls(settings: &Settings) -> Result<Option<TlsConfig>, Failure> {
    match (settings.path("broker-certificate-file"), settings.path("broker-key-file")) {
        (Some(certificates), Some(key)) => {
            Ok(Some(TlsConfig { certificates, key, client_authorities: None }))
        }
        (None, None) => Ok(None),
        _ => Err(Failure::usage("TLS of the broker needs a certificate and its key")
            .help("say --broker-certificate-file and --broker-key-file")),
    }
}

/// What stands between commas.
pub(super) fn list(settings: &Settings, name: &str) -> Vec<String> {
    let parts = settings.text(name).unwrap_or_default().split(',').map(str::trim);
    parts.filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// An error with the option that may put it right.
fn explained(error: StartError, listen: SocketAddr) -> anyhow::Error {
    if let StartError::Listen { address, source } = &error {
        let flag = if *address == listen { "broker" } else { "admin" };
        return in_use(flag, *address, source).into();
    }
    if matches!(error, StartError::Directory { .. } | StartError::Log { .. }) {
        let help = "--data names another directory";
        return Failure::usage(chain(&error)).help(help).into();
    }
    error.into()
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |it| it.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

/// An address cannot be listened at.
pub(super) fn in_use(flag: &str, address: SocketAddr, source: &std::io::Error) -> Failure {
    let is_taken = source.kind() == std::io::ErrorKind::AddrInUse;
    let why =
        if is_taken { "another program listens there".to_owned() } else { source.to_string() };
    let help = format!(
        "end the other program (another `longhaul dev`, perhaps), or give another address with --{flag}, such as --{flag} {}:0 for any free port",
        address.ip()
    );
    Failure::usage(format!("cannot listen on {address}: {why}")).help(help)
}

/// The address of a setting, by number or name.
pub(super) fn address(settings: &Settings, name: &'static str) -> Result<SocketAddr, Failure> {
    let read = |text: &str| {
        let found = text.to_socket_addrs().map_err(|it| format!("expected HOST:PORT: {it}"))?;
        let found: Vec<_> = found.collect();
        let first = found.iter().find(|it| it.is_ipv4()).or_else(|| found.first());
        first.copied().ok_or_else(|| "the name has no address".to_owned())
    };
    let missing = || Failure::usage(format!("{name} is not said"));
    settings.parsed(name, read)?.ok_or_else(missing)
}
