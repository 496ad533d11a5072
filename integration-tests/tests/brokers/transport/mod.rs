//! The transport seam against a real broker: every promise of `longhaul_transport`, on
//! `PulsarTransport`.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`. Credentials and TLS are the suite `security`'s.

mod connect;
mod consumer;
mod follower;
mod publisher;
mod routes;

use crate::support::{outgoing, within};
use anyhow::{Result, bail};
use longhaul::Position;
use longhaul_session::PulsarTransport;
use longhaul_transport::{
    Batching, Consumer, Follow, Follower, Message, Outgoing, Publisher, Start, TopicPartition,
    TopicSchema, Transport,
};
use std::time::Duration;
use tokio::time::timeout;

pub(crate) const EARLIEST: Follow = Follow { start: Start::Earliest, compacted: false };
pub(crate) const COMPACTED: Follow = Follow { start: Start::Earliest, compacted: true };
pub(crate) const LATEST: Follow = Follow { start: Start::Latest, compacted: false };

/// The time without an event after which a test concludes that nothing comes.
pub(crate) const SILENCE: Duration = Duration::from_millis(700);

pub(crate) async fn publish_all(
    publisher: &mut Box<dyn Publisher>,
    messages: impl IntoIterator<Item = Outgoing>,
) -> Result<Vec<Position>> {
    let mut receipts = Vec::new();
    for message in messages {
        receipts.push(publisher.send(message).await?);
    }
    let mut positions = Vec::new();
    for receipt in receipts {
        positions.push(within("a receipt", receipt).await??);
    }
    Ok(positions)
}

pub(crate) async fn publish(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    batching: Batching,
    keys: impl IntoIterator<Item = String>,
) -> Result<Vec<Position>> {
    publish_each(transport, topic, batching, keys.into_iter().map(|key| outgoing(&key))).await
}

/// Publishes a tombstone for each key, in order.
pub(crate) async fn tombstone(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    batching: Batching,
    keys: impl IntoIterator<Item = String>,
) -> Result<Vec<Position>> {
    let message = |key| Outgoing { key: Some(key), null: true, ..Outgoing::default() };
    publish_each(transport, topic, batching, keys.into_iter().map(message)).await
}

async fn publish_each(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    batching: Batching,
    messages: impl Iterator<Item = Outgoing>,
) -> Result<Vec<Position>> {
    let mut publisher = transport.publisher(topic, batching, TopicSchema::None).await?;
    publish_all(&mut publisher, messages).await
}

pub(crate) fn keys(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|index| format!("k{index}"))
}

/// Follows until this position was seen.
pub(crate) async fn follow_to(
    follower: &mut Box<dyn Follower>,
    last: Position,
) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    loop {
        let message = within("a message to follow", follower.next()).await??;
        let position = message.position;
        messages.push(message);
        if position >= last {
            return Ok(messages);
        }
    }
}

pub(crate) async fn take(consumer: &mut Box<dyn Consumer>, count: usize) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    for _ in 0..count {
        messages.push(within("a delivery", consumer.next()).await??);
    }
    Ok(messages)
}

pub(crate) async fn nothing_comes(consumer: &mut Box<dyn Consumer>) -> Result<()> {
    match timeout(SILENCE, consumer.next()).await {
        Err(_) => Ok(()),
        Ok(delivery) => bail!("unexpected: {delivery:?}"),
    }
}

pub(crate) fn key_list(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.key.as_deref().unwrap_or("-")).collect()
}
