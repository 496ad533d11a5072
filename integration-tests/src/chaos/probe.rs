//! A raw probe: publishes without end through the plain client and notes when each receipt came.
//! What it waits, the brokers let everybody wait; what workers wait longer is their own doing.

use super::wall_ms;
use crate::sandbox::Cluster;
use anyhow::{Result, bail};
use pulsar::producer::Message;
use pulsar::{ConnectionRetryOptions, OperationRetryOptions, Producer, Pulsar, TokioExecutor};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Pause between a receipt and the next message, and after a failure.
const EVERY: Duration = Duration::from_millis(10);
const AGAIN: Duration = Duration::from_millis(50);
/// How long connecting, or one message, may take before all is begun anew.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const MESSAGE_LIMIT: Duration = Duration::from_secs(5);
/// Topics that are tried until one belongs to the right part of the namespace.
const TOPICS_MAX: usize = 200;

/// Publishes until it is dropped.
#[derive(Debug)]
pub(super) struct Probe {
    /// When receipts came, in ms of the wall clock.
    receipts: Arc<Mutex<Vec<u64>>>,
    _publishing: JoinSet<()>,
}

impl Probe {
    /// Publishes to a topic of its own that always has the same owner as this one.
    pub(super) async fn beside(cluster: &mut Cluster, topic: &str) -> Result<Self> {
        let admin = cluster.admin()?;
        let bundle = admin.bundle(topic).await?;
        for _ in 0..TOPICS_MAX {
            let probed = cluster.sandbox().topic("probe");
            if admin.bundle(&probed).await? == bundle {
                admin.create_topic(&probed).await?;
                return Ok(Self::start(cluster.sandbox().service_url(), probed));
            }
        }
        bail!("no topic beside {topic} among {TOPICS_MAX}")
    }

    fn start(service_url: &str, topic: String) -> Self {
        let hosts = service_url.trim_start_matches("pulsar://").split(',');
        let urls: Vec<_> = hosts.map(|host| format!("pulsar://{host}")).collect();
        let receipts = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&receipts);
        let mut publishing = JoinSet::new();
        publishing.spawn(async move {
            // A broker that is away, or not ready: the other one knows more.
            for url in urls.iter().cycle() {
                let connecting = Box::pin(connect(url, &topic));
                if let Ok(Ok(mut producer)) = timeout(CONNECT_LIMIT, connecting).await {
                    while publish(&mut producer).await.is_ok() {
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

/// The client's own retries are switched off as far as they go: it would stay with a dead broker's
/// address.
async fn connect(url: &str, topic: &str) -> Result<Producer<TokioExecutor>> {
    let client: Pulsar<TokioExecutor> = Pulsar::builder(url, TokioExecutor)
        .with_connection_retry_options(ConnectionRetryOptions {
            max_retries: 0,
            connection_timeout: CONNECT_LIMIT,
            ..ConnectionRetryOptions::default()
        })
        .with_operation_retry_options(OperationRetryOptions {
            operation_timeout: MESSAGE_LIMIT,
            retry_delay: AGAIN,
            max_retries: Some(0),
        })
        .build()
        .await?;
    Ok(Box::pin(client.producer().with_topic(topic).build()).await?)
}

async fn publish(producer: &mut Producer<TokioExecutor>) -> Result<()> {
    let message = Message { payload: b"probe".to_vec(), ..Message::default() };
    let sent = async { Ok(Box::pin(producer.send_non_blocking(message)).await?.await?) };
    timeout(MESSAGE_LIMIT, sent).await?.map(drop)
}
