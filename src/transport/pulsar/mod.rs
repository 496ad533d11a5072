//! The transport on the crate `pulsar`, with a small connection of our own for what the crate cannot do.
//!
//! What the crate takes away from the seam's promises, and nothing here can give back:
//!
//! - A publisher resends by itself within 10 s of the first send: see `publisher.rs`.
//! - A consumer holds two entries that the caller has not asked for: see `consumer.rs`.
//! - A message that the crate cannot decode ends the consumer or follower without naming the message.
//! - A null inside a batch shows as an empty body.

mod client;
mod consumer;
mod error;
mod follower;
mod message;
mod publisher;
mod raw;
mod schema;

pub use super::session::ConnectOptions;

use super::session::options::full_topic_name;
use super::{
    Batching, Consumer, Follow, Follower, Message, Publisher, Schema, TopicPartition, Transport,
    TransportError,
};
use crate::task::{EntryId, Position};
use async_trait::async_trait;
use client::Context;
use consumer::PulsarConsumer;
use follower::PulsarFollower;
use publisher::PulsarPublisher;
use raw::Raw;
use std::sync::Arc;
use tokio_util::task::TaskTracker;

/// Keeps a message from being replicated to other clusters, where its position would mean nothing.
const LOCAL_ONLY: &str = "__local__";

/// A Pulsar cluster.
#[derive(Clone, Debug)]
pub struct PulsarTransport {
    raw: Arc<Raw>,
    /// Tasks that outlive the call that started them; each ends with the object it serves.
    tracker: TaskTracker,
}

impl PulsarTransport {
    /// Connects to a cluster. Returns within 10 s, whatever is wrong.
    ///
    /// # Errors
    ///
    /// When a setting is wrong, no host answers, what answers is not a broker, TLS fails, or the credentials are refused.
    pub async fn connect(options: ConnectOptions) -> Result<Self, TransportError> {
        let tracker = TaskTracker::new();
        let raw = Arc::new(Raw::new(options, tracker.clone())?);
        raw.greet().await?;
        Ok(Self { raw, tracker })
    }

    fn context(&self, topic: &TopicPartition) -> Context {
        let topic = full_topic_name(&topic.to_string());
        let address = self.raw.address(&topic);
        Context { raw: Arc::clone(&self.raw), tracker: self.tracker.clone(), topic, address }
    }
}

#[async_trait]
impl Transport for PulsarTransport {
    async fn partitions(&self, topic: &str) -> Result<Option<u32>, TransportError> {
        let count = self.raw.partitions(&full_topic_name(topic)).await?;
        Ok(Some(count).filter(|count| *count > 0))
    }

    async fn publisher(
        &self,
        topic: &TopicPartition,
        batching: Batching,
        schema: Schema,
    ) -> Result<Box<dyn Publisher>, TransportError> {
        Ok(Box::new(PulsarPublisher::open(self.context(topic), batching, schema).await?))
    }

    async fn consumer(
        &self,
        topic: &TopicPartition,
        subscription: &str,
    ) -> Result<Box<dyn Consumer>, TransportError> {
        Ok(Box::new(PulsarConsumer::open(self.context(topic), subscription).await?))
    }

    async fn follower(
        &self,
        topic: &TopicPartition,
        follow: Follow,
    ) -> Result<Box<dyn Follower>, TransportError> {
        Ok(Box::new(PulsarFollower::open(self.context(topic), follow).await?))
    }

    async fn fetch(
        &self,
        topic: &TopicPartition,
        at: Position,
    ) -> Result<Option<Message>, TransportError> {
        follower::fetch(self.context(topic), at).await
    }

    async fn tombstone(
        &self,
        topic: &TopicPartition,
        keys: Vec<String>,
    ) -> Result<(), TransportError> {
        self.raw.topic(&self.context(topic).topic).await?.tombstone(keys).await
    }

    async fn mark_delete_position(
        &self,
        topic: &TopicPartition,
        subscription: &str,
    ) -> Result<Option<EntryId>, TransportError> {
        let session = self.raw.topic(&self.context(topic).topic).await?;
        session.mark_delete_position(subscription).await
    }
}
