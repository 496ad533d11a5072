//! Our own session, through the seam of the library and nothing else.

use super::peer::{Consumer, Entry, Follower, Peer, Publisher};
use anyhow::{Context, Result};
use futures::FutureExt;
use longhaul::{EntryId, TaskId};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{
    AckReceipt, Batching, Follow, Outgoing, Receipt, Start, TopicPartition, TopicSchema, Transport,
};
use std::collections::VecDeque;

/// One transport; it opens the connections that it wants.
pub(super) struct SessionPeer(PulsarTransport);

fn whole(topic: &str) -> TopicPartition {
    TopicPartition { topic: topic.to_owned(), partition: -1 }
}

impl Peer for SessionPeer {
    type Publisher = SessionPublisher;
    type Follower = SessionFollower;
    type Consumer = SessionConsumer;

    async fn connect(service_url: &str) -> Result<Self> {
        Ok(Self(PulsarTransport::connect(ConnectOptions::new(service_url)).await?))
    }

    async fn publisher(&self, topic: &str, batched: bool) -> Result<SessionPublisher> {
        let batching = if batched { Batching::On } else { Batching::Off };
        let topic = whole(topic);
        let publisher = Transport::publisher(&self.0, &topic, batching, TopicSchema::None).await?;
        Ok(SessionPublisher(publisher))
    }

    async fn follower(&self, topic: &str) -> Result<SessionFollower> {
        let follow = Follow { start: Start::Earliest, compacted: false };
        Ok(SessionFollower(self.0.follower(&whole(topic), follow).await?))
    }

    async fn consumer(&self, topic: &str, held_max: usize) -> Result<SessionConsumer> {
        let mut consumer = Transport::consumer(&self.0, &whole(topic), "longhaul").await?;
        consumer.request(held_max);
        Ok(SessionConsumer { consumer, acks: VecDeque::new() })
    }
}

pub(super) struct SessionPublisher(Box<dyn longhaul_transport::Publisher>);

impl Publisher for SessionPublisher {
    type Receipt = Receipt;

    async fn send(&mut self, entry: Entry) -> Result<Receipt> {
        let Entry { key, properties, body } = entry;
        let properties = properties.into_iter().map(|(name, value)| (name.to_owned(), value));
        let message = Outgoing {
            key: Some(key),
            properties: properties.collect(),
            payload: body,
            ..Outgoing::default()
        };
        Ok(self.0.send(message).await?)
    }

    async fn stored(receipt: Receipt) -> Result<()> {
        receipt.await?;
        Ok(())
    }
}

pub(super) struct SessionFollower(Box<dyn longhaul_transport::Follower>);

impl Follower for SessionFollower {
    async fn next(&mut self) -> Result<String> {
        self.0.next().await?.key.context("a message without a key")
    }
}

pub(super) struct SessionConsumer {
    consumer: Box<dyn longhaul_transport::Consumer>,
    /// In the order of the acks, which is that of their receipts.
    acks: VecDeque<AckReceipt>,
}

impl Consumer for SessionConsumer {
    type Id = EntryId;

    async fn next(&mut self) -> Result<(EntryId, String)> {
        let position = self.consumer.next().await?.position;
        Ok((position.entry_id(), TaskId::new(position, -1).to_string()))
    }

    async fn ack(&mut self, id: EntryId) -> Result<()> {
        self.acks.push_back(self.consumer.ack(id));
        // Whoever acknowledges has room for one more.
        self.consumer.request(1);
        while let Some(confirmed) = self.acks.front_mut().and_then(FutureExt::now_or_never) {
            confirmed?;
            self.acks.pop_front();
        }
        Ok(())
    }

    async fn settled(&mut self) -> Result<()> {
        for confirmed in self.acks.drain(..) {
            confirmed.await?;
        }
        Ok(())
    }
}
