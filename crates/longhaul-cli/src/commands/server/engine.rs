//! What keeps the tasks: a broker in this process, or a Pulsar elsewhere.

use crate::exit::Failure;
use crate::settings::Settings;
use longhaul::{Client, ClientBuilder};
use longhaul_broker::{Broker, BrokerConfig, BrokerError, StartError};
use std::net::{SocketAddr, ToSocketAddrs};

/// What keeps the tasks.
#[derive(Debug)]
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
#[derive(Debug)]
pub(super) struct Embedded {
    broker: Broker,
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
        let data = settings.path("data");
        let config = BrokerConfig { data, listen, admin: Some(admin), ..BrokerConfig::default() };
        // It reads its log, and answers when that is done.
        let started = tokio::task::spawn_blocking(|| Broker::start(config)).await?;
        let broker = started.map_err(|error| explained(error, listen))?;
        let operator = settings.text("operator").map(str::to_owned);
        let subscription = settings.text("subscription").map(str::to_owned);
        Ok(Self { broker, operator, subscription })
    }

    /// A client of it.
    pub(super) fn client(&self) -> ClientBuilder {
        let mut builder = Client::builder(self.broker.service_url());
        if let Some(url) = self.broker.admin_url() {
            builder = builder.admin_url(url);
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
