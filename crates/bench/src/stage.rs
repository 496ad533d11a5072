//! What a run stands on: a broker, topics of its own, tasks on them.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use integration_tests::sandbox::{Broker, BrokerConfig, BrokerKind, Sandbox};
use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, setup};
use longhaul::transport::session::{ConnectOptions, PulsarTransport};
use longhaul::transport::{Follow, Message, Start, TopicPartition, Transport};
use longhaul::{Client, Raw};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// What the sandbox changes in Pulsar to make tests faster, as Pulsar has it by itself.
const STOCK: [(&str, &str); 2] =
    [("journalMaxGroupWaitMSec", "1"), ("managedLedgerNewEntriesCheckDelayInMillis", "10")];
/// The same, with nothing that waits.
const TUNED: [(&str, &str); 2] =
    [("journalMaxGroupWaitMSec", "0"), ("managedLedgerNewEntriesCheckDelayInMillis", "0")];
/// How long tasks may take to be acknowledged.
const ACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(900);
/// How long a topic that is read to its end may give nothing.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// How often the broker is asked how many are left.
const GLANCE: Duration = Duration::from_millis(20);

/// Starts a broker of this name, or returns none when it is no name of a kind.
pub(crate) async fn launch(name: &str) -> Result<Option<Broker>> {
    let (kind, extra): (_, &[(&str, &str)]) = match name {
        "maven-tuned" => (BrokerKind::Maven, &TUNED),
        name => match BrokerKind::parse(name) {
            Some(BrokerKind::Embedded) => (BrokerKind::Embedded, &[]),
            Some(kind) => (kind, &STOCK),
            None => return Ok(None),
        },
    };
    let extra = extra.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    // The embedded broker is this program once more: nothing else has to be built.
    let own = std::env::current_exe()?.into_os_string();
    let config = BrokerConfig {
        extra: extra.collect(),
        program: Some(vec![own, OsString::from("broker")]),
        ..BrokerConfig::default()
    };
    Broker::launch(kind, config).await.map(Some)
}

/// A broker, and who speaks to it.
pub(crate) struct Stage {
    /// The broker, if it is ours.
    broker: Option<Broker>,
    sandbox: Sandbox,
    pub(crate) admin: Admin,
    pub(crate) client: Client,
    pub(crate) transport: PulsarTransport,
}

impl Stage {
    /// Starts a broker of this name, or takes the one at this service URL.
    pub(crate) async fn open(broker: &str, admin_url: &str) -> Result<Self> {
        let (broker, sandbox) = match launch(broker).await? {
            Some(broker) => {
                // Not a clone: the one in the broker goes with it.
                let admin_url = broker.admin().url().to_owned();
                let sandbox = Sandbox::new(broker.service_url().to_owned(), &admin_url)?;
                (Some(broker), sandbox)
            }
            None if broker.starts_with("pulsar") => {
                (None, Sandbox::new(broker.to_owned(), admin_url)?)
            }
            None => bail!(
                "no broker {broker}: it takes embedded, maven, maven-tuned, docker or pulsar://…"
            ),
        };
        let admin = Admin::new(sandbox.admin().url(), &AdminOptions::default())?;
        let client = Client::connect(sandbox.service_url()).await?;
        let transport =
            PulsarTransport::connect(ConnectOptions::new(sandbox.service_url())).await?;
        Ok(Self { broker, sandbox, admin, client, transport })
    }

    pub(crate) fn service_url(&self) -> &str {
        self.sandbox.service_url()
    }

    /// The broker's process, where it is known.
    pub(crate) fn broker_process(&self) -> Option<u32> {
        self.broker.as_ref()?.process_id()
    }

    /// Sets up topics that nobody else uses.
    pub(crate) async fn topics(&self, name: &str, partitions: Option<u32>) -> Result<Topics> {
        let names: TopicNames = self.sandbox.topic(name).parse()?;
        let settings = TopicSettings { partitions, ..TopicSettings::default() };
        setup(&self.admin, &names, &settings).await?;
        Ok(Topics { names, partitions })
    }

    /// Puts tasks on the topic, so many at a time. A task's body is made from its number.
    pub(crate) async fn submit(
        &self,
        topics: &Topics,
        count: usize,
        callers: usize,
        body: impl Fn(usize) -> Bytes + Clone + Send + 'static,
    ) -> Result<()> {
        let next = Arc::new(AtomicUsize::new(0));
        let mut running = JoinSet::new();
        for _ in 0..callers {
            let (next, body) = (Arc::clone(&next), body.clone());
            let (client, topic) = (self.client.clone(), topics.names.task.clone());
            running.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return Ok(());
                    }
                    client.submit(&topic, &Raw(body(number))).await?;
                }
            });
        }
        while let Some(ended) = running.join_next().await {
            let ended: Result<()> = ended?;
            ended?;
        }
        Ok(())
    }

    /// Messages of the task topic that are not acknowledged.
    pub(crate) async fn backlog(&self, topics: &Topics) -> Result<usize> {
        let mut sum = 0;
        for part in topics.parts(&topics.names.task) {
            let stats = self.sandbox.admin().stats(&part.to_string()).await?;
            let backlog = stats.pointer("/subscriptions/longhaul/msgBacklog");
            let backlog = backlog.and_then(serde_json::Value::as_u64);
            sum += usize::try_from(backlog.context("no backlog in the statistics")?)?;
        }
        Ok(sum)
    }

    /// Waits until all tasks are acknowledged.
    pub(crate) async fn acknowledged(&self, topics: &Topics) -> Result<()> {
        let mut left = None;
        let waiting = async {
            while left != Some(0) {
                sleep(GLANCE).await;
                left = Some(self.backlog(topics).await?);
            }
            Ok(())
        };
        let waited = timeout(ACKNOWLEDGED_LIMIT, waiting).await;
        waited.unwrap_or_else(|_| {
            bail!("tasks that are not acknowledged within {ACKNOWLEDGED_LIMIT:?}: {left:?}")
        })
    }

    /// Reads topics from their first message to their last.
    pub(crate) async fn read(
        &self,
        parts: &[TopicPartition],
        mut take: impl FnMut(&Message) -> Result<()>,
    ) -> Result<()> {
        let whole = Follow { start: Start::Earliest, compacted: false };
        for part in parts {
            let mut follower = self.transport.follower(part, whole).await?;
            let Some(last) = follower.last_position().await? else { continue };
            loop {
                let message = timeout(SILENCE_LIMIT, follower.next()).await;
                let message = message.with_context(|| format!("the end of {part}"))??;
                take(&message)?;
                if message.position.entry_id() >= last.entry_id() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ends the broker as an operator would: what runs it, such as a profiler, then writes what it has.
    pub(crate) async fn close(mut self) -> Result<()> {
        match &mut self.broker {
            Some(broker) => broker.stop().await,
            None => Ok(()),
        }
    }
}

/// The topics of a run.
pub(crate) struct Topics {
    pub(crate) names: TopicNames,
    partitions: Option<u32>,
}

impl Topics {
    /// The partitions of one of the topics, or the topic itself.
    pub(crate) fn parts(&self, topic: &str) -> Vec<TopicPartition> {
        let part = |partition| TopicPartition { topic: topic.to_owned(), partition };
        match self.partitions {
            None => vec![part(-1)],
            Some(count) => (0..i32::try_from(count).unwrap_or(i32::MAX)).map(part).collect(),
        }
    }
}
