//! The broker that the environment names, and its admin API.

use anyhow::{Context, Result, bail, ensure};
use integration_tests::sandbox::Sandbox;
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Outgoing, TopicPartition, TransportError, TransportErrorKind};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// The limit for everything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two checks of the broker.
const GLANCE: Duration = Duration::from_millis(50);

/// The broker under test.
pub(crate) struct Broker {
    pub(crate) url: String,
    pub(crate) admin: String,
}

impl Broker {
    /// `None` when the environment names no broker: then the test is skipped.
    pub(crate) async fn from_env() -> Result<Option<Self>> {
        let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
        let (url, admin) = (sandbox.service_url().to_owned(), sandbox.admin().url().to_owned());
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

    /// `host:port` of the admin API.
    pub(crate) fn admin_host(&self) -> &str {
        self.admin.trim_start_matches("http://").trim_end_matches('/')
    }

    pub(crate) async fn unload(&self, topic: &TopicPartition) -> Result<()> {
        self.call("PUT", topic, "/unload", "").await.map(drop)
    }

    /// Compacts the topic and waits until it is done.
    pub(crate) async fn compact(&self, topic: &TopicPartition) -> Result<()> {
        self.call("PUT", topic, "/compaction", "").await?;
        until("the compaction", async || {
            let status = self.call("GET", topic, "/compaction", "").await?;
            ensure!(!status.contains("ERROR"), "{status}");
            Ok(status.contains("SUCCESS"))
        })
        .await
    }

    pub(crate) async fn create_partitioned(
        &self,
        topic: &TopicPartition,
        count: u32,
    ) -> Result<()> {
        self.call("PUT", topic, "/partitions", &count.to_string()).await.map(drop)
    }

    /// Switches deduplication on and waits until it is in force.
    pub(crate) async fn deduplicate(&self, topic: &TopicPartition) -> Result<()> {
        self.call("POST", topic, "/deduplicationEnabled", "true").await?;
        until("deduplication", async || {
            let stats = self.call("GET", topic, "/internalStats", "").await?;
            Ok(stats.contains("pulsar.dedup"))
        })
        .await
    }

    pub(crate) async fn exists(&self, topic: &TopicPartition) -> Result<bool> {
        let list = self.http("GET", "/admin/v2/persistent/public/default", "").await?;
        Ok(list.contains(&topic.topic))
    }

    pub(crate) async fn schema(&self, topic: &TopicPartition) -> Result<String> {
        let name = topic.topic.replacen("persistent://", "", 1);
        self.http("GET", &format!("/admin/v2/schemas/{name}/schema"), "").await
    }

    /// The number of messages that the subscription's consumers hold.
    pub(crate) async fn unacked(&self, topic: &TopicPartition, subscription: &str) -> Result<i64> {
        let stats = self.subscription_stats(topic, subscription).await?;
        numbers_after(&stats, "\"unackedMessages\":").first().copied().context("no figure")
    }

    /// Permits of the subscription's consumers.
    pub(crate) async fn permits(
        &self,
        topic: &TopicPartition,
        subscription: &str,
    ) -> Result<Vec<i64>> {
        let stats = self.subscription_stats(topic, subscription).await?;
        Ok(numbers_after(&stats, "\"availablePermits\":"))
    }

    async fn subscription_stats(&self, topic: &TopicPartition, name: &str) -> Result<String> {
        let stats = self.call("GET", topic, "/stats", "").await?;
        let start = stats.find("\"subscriptions\":").context("no subscriptions")?;
        let (_, rest) = stats.split_at(start);
        let start = rest.find(&format!("\"{name}\":")).context("no such subscription")?;
        Ok(rest.split_at(start).1.to_owned())
    }

    async fn call(
        &self,
        method: &str,
        topic: &TopicPartition,
        tail: &str,
        body: &str,
    ) -> Result<String> {
        let name = topic.to_string().replacen("://", "/", 1);
        self.http(method, &format!("/admin/v2/{name}{tail}"), body).await
    }

    /// One request on a connection of its own.
    async fn http(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let host = self.admin_host();
        let mut stream = TcpStream::connect(host).await?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        let mut answer = String::new();
        within("the admin API", stream.read_to_string(&mut answer)).await??;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        if !status.starts_with('2') {
            bail!("{method} {path}: {status} {body}");
        }
        Ok(body.to_owned())
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
    within(what, async {
        while !look().await? {
            sleep(GLANCE).await;
        }
        Ok(())
    })
    .await?
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
    eprintln!("transport: {text}");
}

/// The start of a time measurement.
#[expect(
    clippy::disallowed_methods,
    reason = "a measurement decides nothing but a limit of a test"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn numbers_after(text: &str, label: &str) -> Vec<i64> {
    let digits =
        |part: &str| part.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
    text.split(label).skip(1).map(digits).filter_map(|number: String| number.parse().ok()).collect()
}
