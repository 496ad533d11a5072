//! A Pulsar cluster on this machine: ZooKeeper, four bookies and two brokers, each a separate Java
//! process that may be killed.
//!
//! Four bookies, because each entry is stored on three: with three in all, one dead bookie would
//! stop every publish until it is back.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::broker::{LATENCY, Server, free_port};
use super::guard::Guard;
use super::node::{Node, SMALL, START_LIMIT, is_reachable, lines};
use super::{Admin, Sandbox, demanded_settings, jvm};
use crate::example::Process;
use crate::wait::{say, stopwatch};

/// Runs after our death: removes the folders, including those of stopped servers. A server that
/// still writes then has its own guard, which removes its folder again.
const AFTERMATH: &str = r#"rm -rf -- "$@""#;

const BOOKIES: usize = 4;
const BROKERS: usize = 2;
/// The time limit of one request to a starting server.
const QUESTION_LIMIT: Duration = Duration::from_secs(5);
/// ZooKeeper's session timeout in ms: after it a dead broker's topics move to the other one. The
/// default of brokers is three times as long.
const SESSION_MS: &str = "10000";

/// A running cluster. Dropping it kills all of it and removes its data.
#[derive(Debug)]
pub struct Cluster {
    // In the best order for killing them.
    brokers: Vec<Node>,
    bookies: Vec<Node>,
    zookeeper: Node,
    sandbox: Sandbox,
    _guard: Guard,
}

impl Cluster {
    /// Starts a cluster on free ports with empty data and waits until both brokers publish and
    /// read.
    ///
    /// # Errors
    /// A process does not start, or not in time; the message then ends with its log.
    pub async fn launch() -> Result<Self> {
        let elapsed = stopwatch();
        let mut cluster = tokio::task::spawn_blocking(Self::prepare).await??;
        cluster.zookeeper.start(is_zookeeper).await.context("ZooKeeper")?;
        cluster.initialise().await?;
        for index in 0..BOOKIES {
            cluster.start_bookie(index).await?;
        }
        for index in 0..BROKERS {
            cluster.start_broker(index).await?;
        }
        say(&format!("cluster {} is ready after {:.1?}", cluster.sandbox.service_url(), elapsed()));
        Ok(cluster)
    }

    fn prepare() -> Result<Self> {
        let zookeeper = zookeeper()?;
        let metadata = format!("127.0.0.1:{}", zookeeper.port);
        let bookies =
            (0..BOOKIES).map(|number| bookie(number, &metadata)).collect::<Result<_>>()?;
        let brokers: Vec<Node> = (0..BROKERS).map(|_| broker(&metadata)).collect::<Result<_>>()?;
        let hosts: Vec<_> = brokers.iter().map(Node::address).collect();
        let admin = brokers.first().and_then(|broker| broker.admin.as_ref()).context("a broker")?;
        let sandbox = Sandbox::new(format!("pulsar://{}", hosts.join(",")), admin.url())?;
        let nodes = brokers.iter().chain(&bookies).chain([&zookeeper]);
        let guard = Guard::arm(AFTERMATH, nodes.map(|node| node.server.folder()))?;
        Ok(Self { brokers, bookies, zookeeper, sandbox, _guard: guard })
    }

    /// Writes the initial metadata of brokers and bookies to ZooKeeper, once.
    async fn initialise(&self) -> Result<()> {
        let metadata = format!("zk:{}", self.zookeeper.address());
        let broker = self.brokers.first().context("a broker")?;
        let admin = broker.admin.as_ref().context("a broker has an admin interface")?;
        let service_url = format!("pulsar://{}", broker.address());
        let program = [
            "org.apache.pulsar.PulsarClusterMetadataSetup",
            "--cluster",
            "local",
            "--metadata-store",
            &metadata,
            "--configuration-metadata-store",
            &metadata,
            "--web-service-url",
            admin.url(),
            "--broker-service-url",
            &service_url,
        ];
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("tmp"))?;
        let mut command = Command::new(jvm::java_of_pulsar());
        let log = std::fs::File::create(folder.path().join("log"))?;
        command
            .args(jvm::arguments(&SMALL, &program)?)
            .current_dir(folder.path())
            .stdout(log.try_clone()?)
            .stderr(log);
        let status = Process::start(&mut command)?.ended(START_LIMIT).await?;
        if !status.success() {
            bail!("metadata: {status}\n{}", std::fs::read_to_string(folder.path().join("log"))?);
        }
        Ok(())
    }

    /// The service URL of both brokers, with the admin interface of the first.
    #[must_use]
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The URL of each broker alone.
    pub fn service_urls(&self) -> impl Iterator<Item = String> {
        self.brokers.iter().map(|broker| format!("pulsar://{}", broker.address()))
    }

    /// Number of bookies.
    #[must_use]
    pub fn bookies(&self) -> usize {
        self.bookies.len()
    }

    /// The admin interfaces of all brokers, as one URL.
    ///
    /// # Errors
    /// A broker has none.
    pub fn admin_urls(&self) -> Result<String> {
        let url = |broker: &Node| broker.admin.as_ref().map(|admin| admin.url().to_owned());
        let urls: Option<Vec<_>> = self.brokers.iter().map(url).collect();
        // Only the first URL has the scheme.
        Ok(urls.context("a broker has an admin interface")?.join(",").replace(",http://", ","))
    }

    /// The admin interface of a running broker.
    ///
    /// # Errors
    /// No broker runs.
    pub fn admin(&mut self) -> Result<Admin> {
        let mut brokers = self.brokers.iter_mut();
        let running = brokers.find_map(|broker| {
            broker.server.is_running().unwrap_or(false).then(|| broker.admin.clone())?
        });
        running.context("no broker runs")
    }

    /// The index of the broker that owns a topic.
    ///
    /// # Errors
    /// The broker does not know the owner, or names one that is not ours.
    pub async fn owner(&mut self, topic: &str) -> Result<usize> {
        let url = self.admin()?.owner(topic).await?;
        let ours = |broker: &Node| url == format!("pulsar://{}", broker.address());
        let found = self.brokers.iter().position(ours);
        found.with_context(|| format!("{topic} is at {url}, which is none of ours"))
    }

    /// Kills a broker by SIGKILL and waits until it is gone. Its topics move when its ZooKeeper
    /// session ends.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill_broker(&mut self, index: usize) -> Result<()> {
        self.brokers.get_mut(index).context("no such broker")?.kill().await
    }

    /// Starts a broker, and waits until it publishes and reads.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start_broker(&mut self, index: usize) -> Result<()> {
        let broker = self.brokers.get_mut(index).context("no such broker")?;
        let admin = broker.admin.clone().context("a broker has an admin interface")?;
        let healthy = async |_| Ok(admin.is_healthy().await);
        broker.start(healthy).await.with_context(|| format!("broker {index}"))
    }

    /// Kills a bookie by SIGKILL and waits until it is gone.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill_bookie(&mut self, index: usize) -> Result<()> {
        self.bookies.get_mut(index).context("no such bookie")?.kill().await
    }

    /// Starts a bookie, and waits until it can be reached.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start_bookie(&mut self, index: usize) -> Result<()> {
        let bookie = self.bookies.get_mut(index).context("no such bookie")?;
        bookie.start(is_reachable).await.with_context(|| format!("bookie {index}"))
    }
}

async fn is_zookeeper(port: u16) -> Result<bool> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"ruok").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    Ok(matches!(timeout(QUESTION_LIMIT, ask).await, Ok(Ok(answer)) if answer == "imok"))
}

fn zookeeper() -> Result<Node> {
    let port = free_port()?;
    let settings = lines(&[
        ("dataDir", "data"),
        ("tickTime", "1000"),
        ("clientPort", &port.to_string()),
        ("clientPortAddress", "127.0.0.1"),
        ("admin.enableServer", "false"),
        ("4lw.commands.whitelist", "ruok"),
        ("maxClientCnxns", "0"),
    ]);
    let options = [SMALL.as_slice(), &["-Xmx256m"]].concat();
    let program = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"];
    let server = jvm::prepare("zookeeper", &[("zoo.cfg", &settings)], &options, &program)?;
    Ok(Node::new(server, port))
}

fn bookie(number: usize, metadata: &str) -> Result<Node> {
    let port = free_port()?;
    let settings = lines(&[
        ("bookieId", &format!("bookie-{number}")),
        ("bookiePort", &port.to_string()),
        ("advertisedAddress", "127.0.0.1"),
        ("allowLoopback", "true"),
        ("metadataServiceUri", &format!("zk+hierarchical://{metadata}/ledgers")),
        ("zkTimeout", SESSION_MS),
        ("journalDirectories", "journal"),
        ("ledgerDirectories", "ledgers"),
        // By default a bookie refuses to write on a disk that is 95 % full, however large the rest.
        ("diskUsageThreshold", "0.99"),
        ("diskUsageWarnThreshold", "0.99"),
        ("ledgerStorageClass", "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"),
        ("dbStorage_writeCacheMaxSizeMb", "16"),
        ("dbStorage_readAheadCacheMaxSizeMb", "16"),
        ("dbStorage_rocksDB_blockCacheSize", "16777216"),
        // The most that a broker sends.
        ("nettyMaxFrameSizeBytes", "5253120"),
        ("journalMaxGroupWaitMSec", "1"),
        ("httpServerEnabled", "false"),
    ]);
    let options = [SMALL.as_slice(), &["-Xmx256m", "-XX:MaxDirectMemorySize=256m"]].concat();
    let program = ["org.apache.bookkeeper.server.Main", "--conf", "bookie.conf"];
    let server = jvm::prepare("bookie", &[("bookie.conf", &settings)], &options, &program)?;
    Ok(Node::new(server, port))
}

fn broker(metadata: &str) -> Result<Node> {
    let [port, web] = [free_port()?, free_port()?];
    let metadata = format!("zk:{metadata}");
    let mut settings = lines(&[
        ("clusterName", "local"),
        ("metadataStoreUrl", &metadata),
        ("configurationMetadataStoreUrl", &metadata),
        ("metadataStoreSessionTimeoutMillis", SESSION_MS),
        ("brokerServicePort", &port.to_string()),
        ("webServicePort", &web.to_string()),
        ("bindAddress", "127.0.0.1"),
        ("advertisedAddress", "127.0.0.1"),
        ("managedLedgerDefaultEnsembleSize", "3"),
        ("managedLedgerDefaultWriteQuorum", "3"),
        ("managedLedgerDefaultAckQuorum", "2"),
        // Topics move only when a test requests it.
        ("loadBalancerSheddingEnabled", "false"),
        ("loadBalancerAutoBundleSplitEnabled", "false"),
    ]);
    settings += &lines(&LATENCY);
    let demanded = demanded_settings()?;
    let demanded: Vec<(&str, &str)> =
        demanded.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    settings += &lines(&demanded);
    let options = [SMALL.as_slice(), &["-Xmx512m", "-XX:MaxDirectMemorySize=256m"]].concat();
    let program = ["org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", "broker.conf"];
    let server = jvm::prepare("broker", &[("broker.conf", &settings)], &options, &program)?;
    let admin = Admin::new(&format!("http://127.0.0.1:{web}"), None)?;
    Ok(Node { server, port, admin: Some(admin) })
}
