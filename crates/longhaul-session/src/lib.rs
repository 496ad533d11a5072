//! The transport: our own session, which speaks Pulsar's binary protocol.
//!
//! ```text
//! PulsarTransport ── pool ── link ──calls──▶ driver (a task per connection) ── machine (pure)
//!   publisher, consumer, follower ◀─results──   │ bytes
//!                                             dial ── socket
//! ```
//!
//! - [`machine`]: a connection as a pure state machine, with all rules. `driver.rs` moves bytes and
//!   results.
//! - `pool.rs`: connections by broker and purpose; lookups with redirects and proxies.
//!   `detours.rs`: where moved topics are.
//! - `publisher.rs`, `consumer.rs`, `follower.rs`: the handles that users of the transport hold;
//!   `inbox.rs`: the messages of the latter two.
//! - `options.rs`, `credentials.rs`, `oauth2.rs`, `tls.rs`, `dial.rs`: addresses, credentials,
//!   trusted certificate authorities.
//!
//! The promises of the transport, and the modules that keep them: a publish is written once
//! (`machine::producer`); only requested messages are delivered (`machine::flow`); the broker
//! confirms each ack (`machine::consumer`); nothing reconnects by itself, and reopening makes a new
//! lookup (`pool.rs`). Every future of the transport may be dropped at any moment.

mod consumer;
mod credentials;
mod detours;
mod dial;
mod driver;
mod error;
#[cfg(test)]
mod fake_driver;
mod follower;
mod inbox;
#[cfg(any(test, feature = "testing"))]
pub mod keys;
mod link;
pub mod machine;
#[cfg(feature = "oauth2")]
mod oauth2;
mod options;
mod pool;
mod publisher;
mod schema;
mod tls;

pub use credentials::Credentials;
#[cfg(feature = "oauth2")]
pub use oauth2::OAuth2;
pub use options::ConnectOptions;
pub use options::is_loopback;
pub use tls::{ClientCertificate, ClientCertificatePaths, TlsOptions, TlsOptionsError};

use async_trait::async_trait;
use consumer::SessionConsumer;
use follower::SessionFollower;
use futures::FutureExt;
use futures::future::BoxFuture;
use longhaul_transport::{
    Batching, ConnectionEnd, Consumer, Follow, Follower, Message, Publisher, SubscriptionType,
    TopicPartition, TopicSchema, Transport, TransportError, TransportErrorKind,
};
use longhaul_types::Position;
use machine::call::{
    BrokerRequest, BrokerResponse, ConsumerOptions, ProducerOptions, SubscriptionSpec,
};
use options::full_topic_name;
use pool::{Pool, Purpose};
use publisher::SessionPublisher;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time to open something, including lookups and connecting, in addition to one answer.
const OPEN_TIME_MAX: Duration = Duration::from_secs(30);

/// A Pulsar cluster.
#[derive(Clone, Debug)]
pub struct PulsarTransport {
    pool: Arc<Pool>,
}

impl PulsarTransport {
    /// Connects to a cluster. Returns within 10 s in all cases; a token from an issuer takes up to
    /// 15 s more.
    ///
    /// # Errors
    /// A setting is wrong, no credentials can be obtained, no host answers, the host that answers
    /// is not a broker, TLS fails, or the credentials are refused.
    pub async fn connect(options: ConnectOptions) -> Result<Self, TransportError> {
        Self::open(options).await
    }

    /// Creates a transport that has not connected yet.
    ///
    /// # Errors
    /// The options cannot be used.
    #[cfg(any(test, feature = "testing"))]
    pub fn unconnected(options: ConnectOptions) -> Result<Self, TransportError> {
        Ok(Self { pool: Arc::new(Pool::new(options)?) })
    }

    /// Boxes the future outside of an `async fn`: see `Setup::begin` of the worker's builder.
    fn open(options: ConnectOptions) -> BoxFuture<'static, Result<Self, TransportError>> {
        let opening = async {
            let pool = Arc::new(Pool::new(options)?);
            pool.greet().await?;
            Ok(Self { pool })
        };
        opening.boxed()
    }

    /// The number of partitions, which is 0 for a topic without; `None` if there is no topic.
    async fn partitions_of(&self, topic: &str) -> Result<Option<u32>, TransportError> {
        let topic = full_topic_name(topic);
        let question = BrokerRequest::Partitions { topic: topic.clone() };
        match self.about(&topic, self.pool.ask(question)).await {
            Ok(BrokerResponse::Partitions(count)) => Ok(Some(count)),
            Ok(_) => Err(error::refused(&topic, "an unexpected answer")),
            Err(cause) if cause.kind == TransportErrorKind::NotFound => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    /// Limits the time of an operation and names the topic in its error.
    async fn about<T>(
        &self,
        topic: &str,
        opening: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        match timeout(OPEN_TIME_MAX + self.pool.answer_time(), opening).await {
            Ok(opened) => opened.map_err(|cause| TransportError {
                address: format!("{} {topic}", cause.address),
                ..cause
            }),
            Err(_) => Err(error::unreachable(topic, "not opened in time")),
        }
    }
}

fn name(topic: &TopicPartition) -> String {
    full_topic_name(&topic.to_string())
}

#[async_trait]
impl Transport for PulsarTransport {
    async fn connected(&self) -> Result<ConnectionEnd, TransportError> {
        let link = self.pool.connected().await?;
        Ok(async move { link.ended().await }.boxed())
    }

    /// A missing topic may be created by its first use; until then it has no partitions.
    async fn partitions(&self, topic: &str) -> Result<Option<u32>, TransportError> {
        Ok(self.partitions_of(topic).await?.filter(|count| *count > 0))
    }

    /// Brokers before 3.0.6 answer for a missing topic as for one without partitions.
    async fn exists(&self, topic: &str) -> Result<bool, TransportError> {
        Ok(self.partitions_of(topic).await?.is_some())
    }

    async fn publisher(
        &self,
        topic: &TopicPartition,
        batching: Batching,
        schema: TopicSchema,
    ) -> Result<Box<dyn Publisher>, TransportError> {
        let topic = name(topic);
        let schema = match schema {
            TopicSchema::None => None,
            TopicSchema::TaskMetadata => Some(schema::task_metadata()),
        };
        let options = ProducerOptions { topic: topic.clone(), batching, schema };
        let opening = async {
            let link = self.pool.owner(&topic, Purpose::Records).await?;
            SessionPublisher::open(link, options).await
        };
        Ok(Box::new(self.about(&topic, opening).await?))
    }

    async fn subscribe(
        &self,
        topic: &TopicPartition,
        subscription: &str,
        subscription_type: SubscriptionType,
    ) -> Result<Box<dyn Consumer>, TransportError> {
        let (topic, name) = (name(topic), subscription.to_owned());
        let subscription = match subscription_type {
            SubscriptionType::Shared => SubscriptionSpec::Shared { name },
            SubscriptionType::KeyShared => SubscriptionSpec::KeyShared { name },
        };
        let options = ConsumerOptions { topic: topic.clone(), subscription };
        let opening = async {
            let link = self.pool.owner(&topic, Purpose::Tasks).await?;
            SessionConsumer::open(link, options).await
        };
        Ok(Box::new(self.about(&topic, opening).await?))
    }

    async fn follower(
        &self,
        topic: &TopicPartition,
        follow: Follow,
    ) -> Result<Box<dyn Follower>, TransportError> {
        let topic = name(topic);
        let opening = async {
            let link = self.pool.owner(&topic, Purpose::Records).await?;
            SessionFollower::open(link, topic.clone(), follow).await
        };
        Ok(Box::new(self.about(&topic, opening).await?))
    }

    async fn fetch(
        &self,
        topic: &TopicPartition,
        at: Position,
    ) -> Result<Option<Message>, TransportError> {
        let topic = name(topic);
        let reading = async {
            let link = self.pool.owner(&topic, Purpose::Tasks).await?;
            follower::fetch(link, &topic, at).await
        };
        self.about(&topic, reading).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The caller waits for a limited time; the broker's answer has its own limit.
    #[tokio::test(start_paused = true)]
    async fn what_is_opened_is_given_up_in_its_time() {
        let options = ConnectOptions::new("pulsar://unused");
        let transport = PulsarTransport { pool: Arc::new(Pool::new(options.clone()).unwrap()) };
        let clock = longhaul_memory::simulated_clock(0);
        let opening = std::future::pending::<Result<(), TransportError>>();
        let error = transport.about("topic", opening).await.unwrap_err();
        assert_eq!((error.address.as_str(), error.cause.as_str()), ("topic", "not opened in time"));
        assert_eq!(clock.now().0, OPEN_TIME_MAX + options.answer_time);
    }

    /// Without this, a failed request would look like a topic without partitions.
    #[tokio::test]
    async fn who_cannot_be_asked_says_nothing_about_partitions() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("pulsar://{}", listener.local_addr().unwrap());
        drop(listener);
        let pool = Arc::new(Pool::new(ConnectOptions::new(&url)).unwrap());
        let error = PulsarTransport { pool }.partitions("t").await.unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Unreachable);
        assert_eq!(error.address, format!("{url} persistent://public/default/t"));
        assert!(PulsarTransport::connect(ConnectOptions::new(url)).await.is_err());
    }

    #[tokio::test]
    async fn an_error_names_the_topic_that_it_is_about() {
        let pool = Arc::new(Pool::new(ConnectOptions::new("pulsar://unused")).unwrap());
        let transport = PulsarTransport { pool };
        let failing = async { Err::<(), _>(error::refused("there", "no")) };
        let error = transport.about("topic", failing).await.unwrap_err();
        assert_eq!((error.address.as_str(), error.cause.as_str()), ("there topic", "no"));
    }
}
