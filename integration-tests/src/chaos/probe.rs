//! A raw probe: publishes for ever through the session and records when each receipt came. It
//! reconnects at once and has no tasks, so its pauses are those of the brokers; anything longer is
//! added by the workers.

use super::wall_ms;
use crate::sandbox::Cluster;
use anyhow::{Result, bail};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Batching, Outgoing, Publisher, TopicPartition, TopicSchema, Transport};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The pause between a receipt and the next message, and after a failure.
const EVERY: Duration = Duration::from_millis(10);
const AGAIN: Duration = Duration::from_millis(50);
/// The time limits for connecting and for one message, before everything is restarted.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const MESSAGE_LIMIT: Duration = Duration::from_secs(5);
/// The most topics tried until one belongs to the right bundle.
const TOPICS_MAX: usize = 200;

/// Publishes until it is dropped.
#[derive(Debug)]
pub(super) struct Probe {
    /// When receipts came, in ms of the wall clock.
    receipts: Arc<Mutex<Vec<u64>>>,
    _publishing: JoinSet<()>,
}

impl Probe {
    /// Publishes to its own topic, which always has the same owner as this one.
    pub(super) async fn beside(cluster: &mut Cluster, topic: &str) -> Result<Self> {
        let admin = cluster.admin()?;
        let bundle = admin.bundle(topic).await?;
        for _ in 0..TOPICS_MAX {
            let probed = cluster.sandbox().topic("probe");
            if admin.bundle(&probed).await? == bundle {
                admin.create_topic(&probed).await?;
                let topic = TopicPartition { topic: probed, partition: -1 };
                return Ok(Self::start(cluster.sandbox().service_url(), topic));
            }
        }
        bail!("no topic beside {topic} among {TOPICS_MAX}")
    }

    fn start(service_url: &str, topic: TopicPartition) -> Self {
        let hosts = service_url.trim_start_matches("pulsar://").split(',');
        let urls: Vec<_> = hosts.map(|host| format!("pulsar://{host}")).collect();
        let receipts = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&receipts);
        let mut publishing = JoinSet::new();
        publishing.spawn(async move {
            // If a broker is away or not ready, ask the other one.
            for url in urls.iter().cycle() {
                if let Ok(Ok(mut publisher)) = timeout(CONNECT_LIMIT, connect(url, &topic)).await {
                    while publish(&mut publisher).await.is_ok() {
                        noted.lock().unwrap_or_else(PoisonError::into_inner).push(wall_ms());
                        sleep(EVERY).await;
                    }
                }
                sleep(AGAIN).await;
            }
        });
        Self { receipts, _publishing: publishing }
    }

    /// When receipts came so far.
    pub(super) fn receipts(&self) -> Vec<u64> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Opens a separate connection, with a new lookup.
async fn connect(url: &str, topic: &TopicPartition) -> Result<Box<dyn Publisher>> {
    let transport = PulsarTransport::connect(ConnectOptions::new(url)).await?;
    Ok(transport.publisher(topic, Batching::Off, TopicSchema::None).await?)
}

async fn publish(publisher: &mut Box<dyn Publisher>) -> Result<()> {
    let message = Outgoing { payload: "probe".into(), ..Outgoing::default() };
    let sent = async { Ok(publisher.send(message).await?.await?) };
    timeout(MESSAGE_LIMIT, sent).await?.map(drop)
}
