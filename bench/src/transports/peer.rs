//! The seam of the comparison: what the scenarios need of a transport, and nothing that only one
//! side has.

use anyhow::Result;
use bytes::Bytes;
use std::future::Future;

/// A message to publish. Each side makes of it what it publishes.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Partition key.
    pub(super) key: String,
    /// User properties.
    pub(super) properties: Vec<(&'static str, String)>,
    /// Body.
    pub(super) body: Bytes,
}

/// A transport, with the connections that it needs.
pub(super) trait Peer: Sized + Send + Sync + 'static {
    type Publisher: Publisher;
    type Follower: Follower;
    type Consumer: Consumer;

    /// Connects to a broker.
    fn connect(service_url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Opens a publisher.
    fn publisher(
        &self,
        topic: &str,
        batched: bool,
    ) -> impl Future<Output = Result<Self::Publisher>> + Send;

    /// Follows a topic from its first message on.
    fn follower(&self, topic: &str) -> impl Future<Output = Result<Self::Follower>> + Send;

    /// Consumes a Shared subscription, with so many messages at most that are delivered and not
    /// acknowledged, where the side can limit them.
    fn consumer(
        &self,
        topic: &str,
        held_max: usize,
    ) -> impl Future<Output = Result<Self::Consumer>> + Send;
}

/// Publishes to one topic.
pub(super) trait Publisher: Send {
    type Receipt: Send;

    /// Hands a message over.
    fn send(&mut self, entry: Entry) -> impl Future<Output = Result<Self::Receipt>> + Send;

    /// Waits until the message is stored.
    fn stored(receipt: Self::Receipt) -> impl Future<Output = Result<()>> + Send;
}

/// Reads one topic.
pub(super) trait Follower: Send {
    /// The key of the next message.
    fn next(&mut self) -> impl Future<Output = Result<String>> + Send;
}

/// Takes tasks. `next` may be dropped without losing one.
pub(super) trait Consumer: Send {
    type Id: Send;

    /// The next message, by its id for the broker and by that for people.
    fn next(&mut self) -> impl Future<Output = Result<(Self::Id, String)>> + Send;

    /// Acknowledges a message.
    fn ack(&mut self, id: Self::Id) -> impl Future<Output = Result<()>> + Send;

    /// Waits until all acks have arrived. Only when no further message is to come.
    fn settled(&mut self) -> impl Future<Output = Result<()>> + Send;
}
