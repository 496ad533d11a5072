//! A broker for one test, which may stop, kill, freeze and restart it on the same data and ports.
//!
//! Fault tests need their own broker, because no other test may rely on it. [`Server`] abstracts
//! how it runs.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Debug;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};

#[cfg(feature = "containers")]
use super::docker::Container;
use super::maven::standalone;
use super::{Admin, Choice, NO_BROKER, Sandbox, Security, embedded, variable};
use crate::skip::skip;
use crate::wait::{say, stopwatch, until};

const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Brokers start one after another. On two busy processors, four Pulsars that started at once were
/// not ready after two minutes; one alone takes ten seconds. The limit begins with the turn.
static START_TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Without these two settings a message takes 8 ms from publish to receive, with them 2 ms; tests
/// get faster by as much.
pub(super) const LATENCY: [(&str, &str); 2] =
    [("journalMaxGroupWaitMSec", "1"), ("managedLedgerNewEntriesCheckDelayInMillis", "1")];

/// How a broker is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerKind {
    /// The embedded broker, as a process.
    Embedded,
    /// A Java process from Maven artifacts.
    Maven,
    /// A container of the official image.
    Docker,
}

impl BrokerKind {
    /// How tests may start their own brokers, from the environment; `None` if they may not: then
    /// the test is skipped.
    ///
    /// # Errors
    /// The environment is inconsistent.
    pub fn from_env() -> Result<Option<Self>> {
        match (variable("LONGHAUL_TEST_OWN_BROKER")?.as_str(), Choice::from_env()?) {
            ("", Choice::Own(kind)) => Ok(Some(kind)),
            ("", Choice::None) => {
                skip(NO_BROKER);
                Ok(None)
            }
            ("", Choice::Url { .. }) => {
                skip(
                    "it stops its broker, and LONGHAUL_TEST_OWN_BROKER names none that it may start",
                );
                Ok(None)
            }
            (name, _) => match Self::parse(name) {
                Some(kind) => Ok(Some(kind)),
                None => {
                    bail!("LONGHAUL_TEST_OWN_BROKER is {name}; it takes embedded, maven or docker")
                }
            },
        }
    }

    /// Parses the name used in environment variables.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "embedded" => Some(Self::Embedded),
            "maven" => Some(Self::Maven),
            "docker" => Some(Self::Docker),
            _ => None,
        }
    }

    /// The name used in environment variables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Maven => "maven",
            Self::Docker => "docker",
        }
    }
}

/// The configuration of a broker.
#[derive(Clone, Debug, Default)]
pub struct BrokerConfig {
    /// Further settings of `standalone.conf`; they override the fixture's. The embedded broker
    /// supports `maxMessageSize`.
    pub extra: Vec<(String, String)>,
    /// Requires tokens, and opens a second service port with TLS.
    pub security: Option<Security>,
    /// The command that runs the embedded broker with the program's arguments; by default that
    /// program, built if necessary.
    pub program: Option<Vec<OsString>>,
}

impl BrokerConfig {
    /// The settings except those of the ports; a later one of the same name wins.
    pub(super) fn settings(&self, ports: Ports) -> Vec<(String, String)> {
        let latency = LATENCY.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let security = self.security.iter().flat_map(|security| security.settings(ports));
        latency.chain(security).chain(self.extra.iter().cloned()).collect()
    }
}

/// The ports of a broker, kept over restarts so that clients find it again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) service: u16,
    /// For secured brokers only.
    pub(super) service_tls: Option<u16>,
    pub(super) web: u16,
}

/// A signal to a broker's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Terminate,
    Kill,
    Pause,
    Resume,
}

/// Runs the process of a broker. Dropping it kills the process and removes the data.
pub(super) trait Server: Debug + Send + Sync {
    /// Starts the process on the data of the last start and returns before it is ready.
    fn start(&mut self) -> Result<()>;
    fn signal(&mut self, signal: Signal) -> Result<()>;
    fn is_running(&mut self) -> Result<bool>;
    /// The process id, if it runs on this machine.
    fn process_id(&self) -> Option<u32>;
    /// The last lines of the broker's log, for error messages.
    fn log_tail(&self) -> String;
    /// The folder with its data and log, if on this machine.
    fn folder(&self) -> Option<&Path>;
}

/// A broker for one test. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Broker {
    server: Box<dyn Server>,
    sandbox: Sandbox,
    service_url_tls: Option<String>,
}

impl Broker {
    /// Starts a broker as the environment says; `None` if it does not allow that: then the test is
    /// skipped.
    ///
    /// # Errors
    /// The environment is inconsistent, or the broker cannot be started.
    pub async fn from_env(config: BrokerConfig) -> Result<Option<Self>> {
        match BrokerKind::from_env()? {
            Some(kind) => Self::launch(kind, config).await.map(Some),
            None => Ok(None),
        }
    }

    /// Starts a broker on free ports with empty data and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or is not ready within two minutes; the message then ends with the
    /// broker's log.
    pub async fn launch(kind: BrokerKind, config: BrokerConfig) -> Result<Self> {
        let token = config.security.as_ref().map(|security| security.superuser_token.clone());
        let service_tls = token.as_ref().map(|_| free_port()).transpose()?;
        let ports = Ports { service: free_port()?, service_tls, web: free_port()? };
        let server: Box<dyn Server> = match kind {
            BrokerKind::Embedded => Box::new(embedded::prepare(ports, &config).await?),
            #[cfg(feature = "containers")]
            BrokerKind::Docker => Box::new(Container::prepare(ports, config)),
            #[cfg(not(feature = "containers"))]
            BrokerKind::Docker => {
                bail!(
                    "the mode docker needs tests built with --features integration-tests/containers"
                )
            }
            BrokerKind::Maven => {
                let prepare = move || standalone(ports, &config);
                Box::new(tokio::task::spawn_blocking(prepare).await??)
            }
        };
        let service_url = format!("pulsar://127.0.0.1:{}", ports.service);
        let admin_url = format!("http://127.0.0.1:{}", ports.web);
        let sandbox = match token {
            Some(token) => Sandbox::guarded(service_url, &admin_url, &token)?,
            None => Sandbox::new(service_url, &admin_url)?,
        };
        let service_url_tls = service_tls.map(|port| format!("pulsar+ssl://127.0.0.1:{port}"));
        let mut broker = Self { server, sandbox, service_url_tls };
        broker.start().await?;
        Ok(broker)
    }

    /// Starts the broker again after [`stop`](Self::stop) or [`kill`](Self::kill), on the same data
    /// and ports, and waits until it is ready.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch), or it already runs.
    pub async fn start(&mut self) -> Result<()> {
        if self.server.is_running().unwrap_or(false) {
            bail!("the broker runs already");
        }
        let _turn = START_TURN.lock().await;
        let elapsed = stopwatch();
        self.server.start()?;
        if let Err(cause) = self.ready().await {
            let log = self.server.log_tail();
            return Err(
                cause.context(format!("the broker did not start; its log ends with\n{log}"))
            );
        }
        say(&format!("broker {} is ready after {:.1?}", self.service_url(), elapsed()));
        Ok(())
    }

    async fn ready(&mut self) -> Result<()> {
        until("broker ready", START_LIMIT, async || {
            if !self.server.is_running()? {
                bail!("the process has ended");
            }
            // Refused connections and errors are normal during a start.
            Ok(self.admin().is_ready().await.then_some(()))
        })
        .await
    }

    /// Stops the broker as an operator would, by SIGTERM, and waits until it is gone.
    ///
    /// # Errors
    /// It does not run, or is not gone within a minute.
    pub async fn stop(&mut self) -> Result<()> {
        self.server.signal(Signal::Terminate)?;
        self.gone().await
    }

    /// Kills the broker by SIGKILL and waits until it is gone.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill(&mut self) -> Result<()> {
        self.server.signal(Signal::Kill)?;
        self.gone().await
    }

    async fn gone(&mut self) -> Result<()> {
        until("broker gone", STOP_LIMIT, async || Ok((!self.server.is_running()?).then_some(())))
            .await
    }

    /// Freezes the broker: its connections stay open and nothing answers.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&mut self) -> Result<()> {
        self.server.signal(Signal::Pause)
    }

    /// Ends a [`pause`](Self::pause).
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&mut self) -> Result<()> {
        self.server.signal(Signal::Resume)
    }

    /// The sandbox of this broker: URLs, admin interface, topic names.
    #[must_use]
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// URL for Pulsar clients.
    #[must_use]
    pub fn service_url(&self) -> &str {
        self.sandbox.service_url()
    }

    /// The TLS URL for Pulsar clients. Only a secured broker has one.
    #[must_use]
    pub fn service_url_tls(&self) -> Option<&str> {
        self.service_url_tls.as_deref()
    }

    /// The broker's admin interface.
    #[must_use]
    pub fn admin(&self) -> &Admin {
        self.sandbox.admin()
    }

    /// The process id of the broker, to measure its resources; `None` for a container.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.server.process_id()
    }

    /// The folder with the broker's data and log; `None` for a container.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.server.folder()
    }

    /// Last lines of the broker's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.server.log_tail()
    }
}

/// Finds a free port.
///
/// It avoids the ports that the kernel assigns, since those serve outgoing connections, too. While
/// a killed broker is away, another connection could take its port, or a client that keeps
/// connecting to it could connect to itself.
///
/// # Errors
/// None is found.
pub fn free_port() -> Result<u16> {
    /// Below the ranges that Linux (32768) and macOS (49152) use for outgoing connections.
    const CANDIDATES: std::ops::Range<u16> = 20_000..32_000;
    const TRIES: usize = 100;
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    for _ in 0..TRIES {
        let port = fastrand::u16(CANDIDATES);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && given.insert(port) {
            return Ok(port);
        }
    }
    bail!("no free port in {CANDIDATES:?}")
}
