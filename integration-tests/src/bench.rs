//! A task topic for one test, with all that it needs: topics, workers, watchers, and the check at
//! the end.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use longhaul::topics::{
    Admin, AdminOptions, DEFAULT_SUBSCRIPTION, TopicNames, TopicOverrides, TopicSettings, setup,
};
use longhaul::{Client, TaskId, TaskProcessor, WorkerBuilder};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::TopicPartition;

use crate::audit::{Audited, audit};
use crate::sandbox::Sandbox;
use crate::view::{LIMIT, View};
use crate::wait::until;

/// The topics of one test on the shared broker, set up as an operator would.
#[derive(Debug)]
pub struct Bench {
    sandbox: Sandbox,
    names: TopicNames,
    overrides: TopicOverrides,
    partitions: Option<u32>,
    transport: PulsarTransport,
}

impl Bench {
    /// Sets up the topics of a test. Returns `None` and reports a skip when the environment names
    /// no broker.
    ///
    /// # Errors
    /// The broker cannot be reached, or the topics cannot be set up.
    pub async fn new(test: &str) -> Result<Option<Self>> {
        Self::with_partitions(test, None).await
    }

    /// As [`new`](Self::new), with this number of partitions.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub async fn with_partitions(test: &str, partitions: Option<u32>) -> Result<Option<Self>> {
        let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
        Self::on(sandbox, test, partitions).await.map(Some)
    }

    /// As [`with_partitions`](Self::with_partitions), on a broker that belongs to the test.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub async fn on(sandbox: Sandbox, test: &str, partitions: Option<u32>) -> Result<Self> {
        Self::named(sandbox, test, partitions, TopicOverrides::default()).await
    }

    /// As [`new`](Self::new), with the metadata topic named `<T>-state`, as in the code of the Java
    /// reference.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub async fn with_state_topic(test: &str) -> Result<Option<Self>> {
        let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
        let metadata = Some(format!("{}-state", sandbox.topic(test)));
        let overrides = TopicOverrides { metadata, ..TopicOverrides::default() };
        Self::named(sandbox, test, None, overrides).await.map(Some)
    }

    async fn named(
        sandbox: Sandbox,
        test: &str,
        partitions: Option<u32>,
        overrides: TopicOverrides,
    ) -> Result<Self> {
        let topic = sandbox.topic(test);
        let names = TopicNames::with_overrides(&topic, DEFAULT_SUBSCRIPTION, &overrides)?;
        let admin = Admin::new(sandbox.admin().url(), &AdminOptions::default())?;
        let settings = TopicSettings { partitions, ..TopicSettings::default() };
        setup(&admin, &names, &settings).await?;
        let transport =
            PulsarTransport::connect(ConnectOptions::new(sandbox.service_url())).await?;
        Ok(Self { sandbox, names, overrides, partitions, transport })
    }

    /// The broker.
    #[must_use]
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// URL for Pulsar clients.
    #[must_use]
    pub fn service_url(&self) -> &str {
        self.sandbox.service_url()
    }

    /// The names of the topics.
    #[must_use]
    pub fn names(&self) -> &TopicNames {
        &self.names
    }

    /// Reads and writes topics as the library does.
    #[must_use]
    pub fn transport(&self) -> &PulsarTransport {
        &self.transport
    }

    /// A worker with default settings that is not yet started.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub async fn worker<P: TaskProcessor>(&self, processor: P) -> Result<WorkerBuilder<P>> {
        let builder = Client::builder(self.service_url());
        let client = builder.topics(&self.names.task, self.overrides.clone()).connect().await?;
        Ok(client.worker(&self.names.task, processor))
    }

    /// Follows the metadata topic from its first entry.
    ///
    /// # Errors
    /// The topic cannot be followed.
    pub async fn view(&self) -> Result<View> {
        View::open(&self.transport, self.parts(&self.names.metadata)).await
    }

    /// Reads the ledger and the metadata topic from start to end and checks them twice: as any
    /// client can, and as a test can that knows that all is at rest; see [`audit`].
    ///
    /// # Errors
    /// A check fails.
    pub async fn audit(&self) -> Result<BTreeMap<TaskId, Audited>> {
        let client = Client::connect(self.service_url()).await?;
        let verified = client.queue(&self.names.task).verify().await?;
        ensure!(verified.is_sound(), "{verified:?}");
        let (ledger, metadata) = (&self.names.ledger, &self.names.metadata);
        audit(&self.transport, &self.parts(ledger), &self.parts(metadata)).await
    }

    /// The number of unacknowledged messages of the task topic, counted as entries, and how many of
    /// them workers hold.
    ///
    /// # Errors
    /// The broker does not report them.
    pub async fn backlog(&self) -> Result<(i64, i64)> {
        let mut sum = (0, 0);
        for part in self.parts(&self.names.task) {
            let stats = self.sandbox.admin().stats(&part.to_string()).await?;
            let field = |name: &str| {
                let value = stats.pointer(&format!("/subscriptions/longhaul/{name}"));
                value.and_then(serde_json::Value::as_i64).with_context(|| format!("{part}: {name}"))
            };
            sum = (sum.0 + field("msgBacklog")?, sum.1 + field("unackedMessages")?);
        }
        Ok(sum)
    }

    /// Waits until every task is acknowledged.
    ///
    /// # Errors
    /// Some task remains unacknowledged.
    pub async fn all_acknowledged(&self) -> Result<()> {
        self.until_backlog(|backlog| backlog == (0, 0)).await
    }

    /// Waits until the subscription has passed every task. After a topic has moved, the broker has
    /// on rare occasions continued to count one acknowledged message as held by a consumer; the
    /// cause is not known yet.
    ///
    /// # Errors
    /// The subscription does not pass every task.
    pub async fn all_passed(&self) -> Result<()> {
        self.until_backlog(|(backlog, _)| backlog == 0).await
    }

    async fn until_backlog(&self, accept: impl Fn((i64, i64)) -> bool) -> Result<()> {
        let mut last = None;
        let result = until("acknowledgement of all tasks", LIMIT, async || {
            let backlog = self.backlog().await?;
            last = Some(backlog);
            Ok(accept(backlog).then_some(()))
        })
        .await;
        if result.is_ok() {
            return Ok(());
        }
        let part = self.parts(&self.names.task).swap_remove(0);
        let stats = self.sandbox.admin().stats(&part.to_string()).await?;
        let found = stats.pointer("/subscriptions/longhaul").cloned().unwrap_or_default();
        result.with_context(|| format!("backlog and unacknowledged: {last:?}; {part}: {found}"))
    }

    /// The partitions of one of the topics, or the topic itself.
    #[must_use]
    pub fn parts(&self, topic: &str) -> Vec<TopicPartition> {
        let part = |partition| TopicPartition { topic: topic.to_owned(), partition };
        match self.partitions {
            None => vec![part(-1)],
            Some(count) => (0..i32::try_from(count).unwrap_or(i32::MAX)).map(part).collect(),
        }
    }
}
