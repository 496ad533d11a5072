//! A broker for the suites, chosen by the environment: the embedded one, or a real Apache Pulsar.
//!
//! `CONTRIBUTING.md` has the variables that developers set. Some suites name variables of their own
//! in the heads of their files. Three more are for special runs:
//!
//! - `LONGHAUL_TEST_OWN_BROKER`: `embedded`, `maven` or `docker`, which [`Broker::from_env`] starts
//!   while the shared broker is a URL.
//! - `LONGHAUL_TEST_PULSAR_SETTINGS`: further settings of brokers that `maven` starts and of
//!   clusters, `name=value` separated by commas. Those of a test win.
//! - `LONGHAUL_TEST_SKIPS`: a file to which each skipped test adds a line.
//!
//! Pulsar's proxy exists only for version 4.0.7. To limit publishers, set
//! `maxPublishRatePerTopicInMessages=300` for `chaos mixed --short --broker maven`. To use the
//! extensible load manager, set these two for `chaos cluster --short --broker cluster`, both values
//! prefixed by `org.apache.pulsar.broker.loadbalance.extensions.`:
//! `loadManagerClassName=ExtensibleLoadManagerImpl` and
//! `loadBalancerLoadSheddingStrategy=scheduler.TransferShedder`.
//!
//! [`Proxy`] forwards between clients and a broker and simulates network faults. [`PulsarProxy`] is
//! Apache Pulsar's own, for clients that cannot reach its brokers. [`Cluster`] is Apache Pulsar in
//! seven processes, each of which may be killed.
//!
//! `embedded` builds and starts the embedded broker as a process. `maven` starts Apache Pulsar
//! standalone from Maven artifacts and needs Java 17 or later and Maven; the first run downloads
//! 235 MB. `docker` starts the official image; it needs an engine, its command, and the tests built
//! with `--features integration-tests/containers`.
//!
//! A test takes the shared broker by [`Sandbox::from_env`] and uses only its own topics
//! ([`Sandbox::topic`]). A test that kills, stops or configures a broker starts its own by
//! [`Broker::from_env`]. Each test binary is a process and would start its own shared broker; to
//! start one for a whole run:
//!
//! ```text
//! cargo run -p integration-tests --bin sandbox -- run -- cargo test --workspace
//! ```
//!
//! The command also gets `PULSAR_SERVICE_URL` and `PULSAR_ADMIN_URL`, which the examples and other
//! programs use.
//!
//! Invariant: no broker outlives the process that started it, not even when that process is killed
//! (`guard.rs`).

mod admin;
mod broker;
mod cluster;
#[cfg(feature = "containers")]
mod docker;
mod embedded;
pub(crate) mod guard;
mod jvm;
mod maven;
mod node;
mod process;
mod proxy;
mod pulsar_proxy;
mod security;

use anyhow::{Result, anyhow, bail};
use longhaul::Client;
use tokio::sync::OnceCell;

pub use admin::Admin;
pub use broker::{Broker, BrokerConfig, BrokerKind, free_port};
pub use cluster::Cluster;
pub use proxy::{Cut, Proxy, Scope, Way, Weather};
pub use pulsar_proxy::PulsarProxy;
pub use security::Security;

pub(crate) use jvm::java;

use crate::skip::skip;

/// Why a test that needs a broker is skipped.
const NO_BROKER: &str = "LONGHAUL_TEST_BROKER is none";

/// The default Pulsar version.
pub const PULSAR_VERSION: &str = "4.0.7";

/// The shared broker of this process. A failed start is kept, too: otherwise each test would wait
/// for the limit again.
///
/// Statics are never dropped, so its guard ends it.
static SHARED: OnceCell<Result<Broker, String>> = OnceCell::const_new();

/// A running broker that other tests may use at the same time.
#[derive(Clone, Debug)]
pub struct Sandbox {
    service_url: String,
    admin: Admin,
}

impl Sandbox {
    /// The broker named by the environment; `None` if there is none: then the test is skipped.
    ///
    /// # Errors
    /// The environment is inconsistent, or the broker cannot be started.
    pub async fn from_env() -> Result<Option<Self>> {
        match Choice::from_env()? {
            Choice::Url { service_url, admin_url } => Self::new(service_url, &admin_url).map(Some),
            Choice::Own(kind) => {
                let start = || async {
                    Broker::launch(kind, BrokerConfig::default())
                        .await
                        .map_err(|e| format!("{e:#}"))
                };
                let broker = SHARED.get_or_init(start).await.as_ref();
                let broker = broker.map_err(|cause| anyhow!("no broker: {cause}"))?;
                // Not a clone: an HTTP client's connections belong to the runtime of the test that
                // opened them.
                Self::new(broker.service_url().to_owned(), broker.admin().url()).map(Some)
            }
            Choice::None => {
                skip(NO_BROKER);
                Ok(None)
            }
        }
    }

    /// The kind of the broker of [`from_env`](Self::from_env), if it is Apache Pulsar. For a broker
    /// named by URL, the kind is taken from `LONGHAUL_TEST_OWN_BROKER`.
    ///
    /// # Errors
    /// The environment is inconsistent.
    pub fn pulsar_kind() -> Result<Option<BrokerKind>> {
        let kind = match Choice::from_env()? {
            Choice::None => None,
            Choice::Own(kind) => Some(kind),
            Choice::Url { .. } => BrokerKind::parse(&variable("LONGHAUL_TEST_OWN_BROKER")?),
        };
        Ok(kind.filter(|kind| *kind != BrokerKind::Embedded))
    }

    /// A broker that already runs.
    ///
    /// # Errors
    /// The admin URL cannot be used.
    pub fn new(service_url: String, admin_url: &str) -> Result<Self> {
        Ok(Self { service_url, admin: Admin::new(admin_url, None)? })
    }

    /// A broker whose admin interface needs a token.
    fn guarded(service_url: String, admin_url: &str, token: &str) -> Result<Self> {
        Ok(Self { service_url, admin: Admin::new(admin_url, Some(token))? })
    }

    /// URL for Pulsar clients, `pulsar://host:port`.
    #[must_use]
    pub fn service_url(&self) -> &str {
        &self.service_url
    }

    /// The broker's admin interface.
    #[must_use]
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// A client that can set topics up.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub async fn client(&self) -> Result<Client> {
        let builder = Client::builder(&self.service_url).admin_url(self.admin.url());
        Ok(builder.connect().await?)
    }

    /// A unique topic name. The topic is not created.
    #[must_use]
    pub fn topic(&self, name: &str) -> String {
        // The generator is seeded from the system: topics of two processes must differ.
        format!("persistent://public/default/{name}-{:012x}", fastrand::u64(..) >> 16)
    }
}

/// The choice made by the environment.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    None,
    Url { service_url: String, admin_url: String },
    Own(BrokerKind),
}

impl Choice {
    fn from_env() -> Result<Self> {
        Self::parse(&variable("LONGHAUL_TEST_BROKER")?, &variable("LONGHAUL_TEST_ADMIN")?)
    }

    fn parse(broker: &str, admin: &str) -> Result<Self> {
        if broker == "none" {
            return Ok(Self::None);
        }
        let broker = if broker.is_empty() { "embedded" } else { broker };
        if let Some(kind) = BrokerKind::parse(broker) {
            return Ok(Self::Own(kind));
        }
        let Some((_, address)) = broker.split_once("://").filter(|(s, _)| s.starts_with("pulsar"))
        else {
            bail!(
                "LONGHAUL_TEST_BROKER is {broker}; it takes embedded, maven, docker, pulsar://… or none"
            );
        };
        let first = address.split([',', '/']).next().unwrap_or_default();
        let host = first.rsplit_once(':').map_or(first, |(host, _)| host);
        let admin_url =
            if admin.is_empty() { format!("http://{host}:8080") } else { admin.to_owned() };
        Ok(Self::Url { service_url: broker.to_owned(), admin_url })
    }
}

/// The version of Apache Pulsar to start.
///
/// # Errors
/// The environment names none.
pub fn pulsar_version() -> Result<String> {
    let version = variable("LONGHAUL_TEST_PULSAR_VERSION")?;
    if version.is_empty() {
        return Ok(PULSAR_VERSION.to_owned());
    }
    if !version.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')) {
        bail!(
            "LONGHAUL_TEST_PULSAR_VERSION is {version}; it takes a version such as {PULSAR_VERSION}"
        );
    }
    Ok(version)
}

/// Further settings of every Pulsar broker that is started.
fn demanded_settings() -> Result<Vec<(String, String)>> {
    let demanded = variable("LONGHAUL_TEST_PULSAR_SETTINGS")?;
    let settings = demanded.split(',').filter(|setting| !setting.is_empty());
    settings
        .map(|setting| match setting.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => bail!(
                "LONGHAUL_TEST_PULSAR_SETTINGS has `{setting}`; it takes name=value,name=value"
            ),
        })
        .collect()
}

/// Value of an environment variable; empty when it is unset.
fn variable(name: &str) -> Result<String> {
    match std::env::var(name) {
        Ok(value) => Ok(value),
        Err(std::env::VarError::NotPresent) => Ok(String::new()),
        Err(cause) => Err(anyhow!(cause).context(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_chooses_the_broker() {
        assert_eq!(Choice::parse("none", "http://a:1").unwrap(), Choice::None);
        assert_eq!(Choice::parse("", "http://a:1").unwrap(), Choice::Own(BrokerKind::Embedded));
        assert_eq!(Choice::parse("maven", "").unwrap(), Choice::Own(BrokerKind::Maven));
        let url = |admin: &str| Choice::parse("pulsar://h1:6650,h2:6650", admin).unwrap();
        let expected = |admin: &str| Choice::Url {
            service_url: "pulsar://h1:6650,h2:6650".to_owned(),
            admin_url: admin.to_owned(),
        };
        assert_eq!(url(""), expected("http://h1:8080"));
        assert_eq!(url("http://a:1"), expected("http://a:1"));
        assert!(Choice::parse("http://h", "").is_err());
        assert!(Choice::parse("kafka", "").is_err());
    }
}
