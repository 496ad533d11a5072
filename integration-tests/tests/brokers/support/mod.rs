//! The broker that the environment names, and its admin API.

use anyhow::{Context, Result, bail};
use integration_tests::sandbox::{Admin, Sandbox};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Outgoing, TopicPartition, TransportError, TransportErrorKind};
use reqwest::Method;
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The limit for everything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two checks of the broker.
const GLANCE: Duration = Duration::from_millis(50);

/// The broker under test.
pub(crate) struct Broker {
    pub(crate) url: String,
    pub(crate) admin: Admin,
}

impl Broker {
    /// `None` when the environment names no broker: then the test is skipped.
    pub(crate) async fn from_env() -> Result<Option<Self>> {
        let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
        let (url, admin) = (sandbox.service_url().to_owned(), sandbox.admin().clone());
        Ok(Some(Self { url, admin }))
    }

    pub(crate) async fn connect(&self) -> Result<PulsarTransport> {
        Ok(PulsarTransport::connect(ConnectOptions::new(&self.url)).await?)
    }

    /// A topic that no other test and no earlier run has used.
    #[expect(clippy::unused_self, reason = "a topic is a topic of the broker")]
    pub(crate) fn topic(&self, name: &str) -> TopicPartition {
        unique_topic(name)
    }

    /// Switches deduplication on and waits until it is in force.
    pub(crate) async fn deduplicate(&self, topic: &TopicPartition) -> Result<()> {
        let topic = topic.to_string();
        self.admin.set_policy(&topic, "deduplicationEnabled", &json!(true)).await?;
        until("deduplication", async || {
            let stats = self.admin.internal_stats(&topic).await?;
            Ok(stats.to_string().contains("pulsar.dedup"))
        })
        .await
    }

    pub(crate) async fn exists(&self, topic: &TopicPartition) -> Result<bool> {
        let list = self.admin.call(Method::GET, "persistent/public/default", None).await?;
        Ok(list.to_string().contains(&topic.topic))
    }

    /// The number of messages that the subscription's consumers hold.
    pub(crate) async fn unacked(&self, topic: &TopicPartition, subscription: &str) -> Result<i64> {
        let stats = self.subscription_stats(topic, subscription).await?;
        stats.get("unackedMessages").and_then(Value::as_i64).context("no figure")
    }

    /// Permits of the subscription's consumers.
    pub(crate) async fn permits(
        &self,
        topic: &TopicPartition,
        subscription: &str,
    ) -> Result<Vec<i64>> {
        let stats = self.subscription_stats(topic, subscription).await?;
        let consumers = stats.get("consumers").and_then(Value::as_array).context("no consumers")?;
        let permits = |consumer: &Value| consumer.get("availablePermits")?.as_i64();
        Ok(consumers.iter().filter_map(permits).collect())
    }

    async fn subscription_stats(&self, topic: &TopicPartition, name: &str) -> Result<Value> {
        let stats = self.admin.stats(&topic.to_string()).await?;
        let found = stats.pointer(&format!("/subscriptions/{name}"));
        found.cloned().context("no such subscription")
    }
}

pub(crate) fn unique_topic(name: &str) -> TopicPartition {
    let unique = RandomState::new().hash_one(name);
    let topic = format!("persistent://public/default/transport-{name}-{unique:016x}");
    TopicPartition { topic, partition: -1 }
}

pub(crate) fn outgoing(key: &str) -> Outgoing {
    let payload = format!("body of {key}").into_bytes().into();
    Outgoing { key: Some(key.to_owned()), payload, ..Outgoing::default() }
}

/// Waits for something that is expected to come.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    timeout(PATIENCE, future).await.with_context(|| format!("{what} did not come"))
}

/// Checks repeatedly until the condition holds.
pub(crate) async fn until(what: &str, mut look: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    integration_tests::until(what, PATIENCE, async || Ok(look().await?.then_some(()))).await
}

/// Tries again while the topic moves, that is, while it cannot be reached. Returns any other error,
/// and the last error when the time is up.
pub(crate) async fn retry<T>(
    mut attempt: impl AsyncFnMut() -> Result<T, TransportError>,
) -> Result<T> {
    let mut last = None;
    let trying = async {
        loop {
            match attempt().await {
                Err(error) if error.kind == TransportErrorKind::Unreachable => last = Some(error),
                ended => return ended,
            }
            sleep(GLANCE).await;
        }
    };
    match timeout(PATIENCE, trying).await {
        Ok(ended) => Ok(ended?),
        Err(_) => bail!("no answer within {PATIENCE:?}, only this: {last:?}"),
    }
}

/// Prints a note for the person who runs the test.
#[expect(clippy::print_stderr, reason = "a test says what it skips and what it measured")]
pub(crate) fn note(text: &str) {
    eprintln!("note: {text}");
}

/// The start of a time measurement.
#[expect(
    clippy::disallowed_methods,
    reason = "a measurement decides nothing but a limit of a test"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
