//! The crate `pulsar`, as its best known settings have it: a client per role, because what shares a
//! connection waits for each other's packets; a queue of 100 commands, each of which costs 5 KB at
//! once, that is waited for when it is full; batches of 1,000 messages or 1 ms. Its followers are
//! exclusive, non-durable consumers, because its reader acknowledges what it reads.

#![expect(clippy::large_futures, reason = "those of the crate are")]

use super::peer::{Consumer, Entry, Follower, Peer, Publisher};
use anyhow::{Context, Result};
use futures::TryStreamExt;
use pulsar::consumer::InitialPosition;
use pulsar::producer::{Message as Produced, SendFuture};
use pulsar::proto::MessageIdData;
use pulsar::{ConsumerOptions, Producer, ProducerOptions, Pulsar, SubType, TokioExecutor};
use std::time::Duration;

const OUTBOUND_MAX: usize = 100;
const BATCH_MESSAGES_MAX: u32 = 1_000;
/// As many bytes as the session's batches have at most.
const BATCH_BYTES_MAX: usize = 128 * 1024;
const BATCH_WAIT: Duration = Duration::from_millis(1);

type Stream = pulsar::Consumer<Vec<u8>, TokioExecutor>;

/// Three clients.
pub(super) struct StockPeer {
    publishing: Pulsar<TokioExecutor>,
    following: Pulsar<TokioExecutor>,
    consuming: Pulsar<TokioExecutor>,
}

async fn client(service_url: &str) -> Result<Pulsar<TokioExecutor>> {
    let builder = Pulsar::builder(service_url, TokioExecutor);
    Ok(builder.with_outbound_channel_size(OUTBOUND_MAX).build().await?)
}

impl Peer for StockPeer {
    type Publisher = StockPublisher;
    type Follower = StockFollower;
    type Consumer = StockConsumer;

    async fn connect(service_url: &str) -> Result<Self> {
        Ok(Self {
            publishing: client(service_url).await?,
            following: client(service_url).await?,
            consuming: client(service_url).await?,
        })
    }

    async fn publisher(&self, topic: &str, batched: bool) -> Result<StockPublisher> {
        let options = ProducerOptions {
            batch_size: batched.then_some(BATCH_MESSAGES_MAX),
            batch_byte_size: batched.then_some(BATCH_BYTES_MAX),
            batch_timeout: batched.then_some(BATCH_WAIT),
            block_queue_if_full: true,
            ..ProducerOptions::default()
        };
        let builder = self.publishing.producer().with_topic(topic).with_options(options);
        Ok(StockPublisher(builder.build().await?))
    }

    async fn follower(&self, topic: &str) -> Result<StockFollower> {
        let options = ConsumerOptions::default()
            .durable(false)
            .with_initial_position(InitialPosition::Earliest);
        let builder = self.following.consumer().with_topic(topic).with_options(options);
        let builder = builder.with_subscription("follower");
        let stream = builder.with_subscription_type(SubType::Exclusive).build().await?;
        Ok(StockFollower(stream))
    }

    async fn consumer(&self, topic: &str, _held_max: usize) -> Result<StockConsumer> {
        let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
        let builder = self.consuming.consumer().with_topic(topic).with_options(options);
        let builder = builder.with_subscription("longhaul");
        let stream = builder.with_subscription_type(SubType::Shared).build().await?;
        Ok(StockConsumer { stream, topic: topic.to_owned() })
    }
}

pub(super) struct StockPublisher(Producer<TokioExecutor>);

impl Publisher for StockPublisher {
    type Receipt = SendFuture;

    async fn send(&mut self, entry: Entry) -> Result<SendFuture> {
        let Entry { key, properties, body } = entry;
        let properties = properties.into_iter().map(|(name, value)| (name.to_owned(), value));
        let message = Produced {
            payload: body.to_vec(),
            properties: properties.collect(),
            partition_key: Some(key),
            ..Produced::default()
        };
        Ok(self.0.send_non_blocking(message).await?)
    }

    async fn stored(receipt: SendFuture) -> Result<()> {
        receipt.await?;
        Ok(())
    }
}

pub(super) struct StockFollower(Stream);

impl Follower for StockFollower {
    async fn next(&mut self) -> Result<String> {
        let message = self.0.try_next().await?.context("the follower has ended")?;
        message.payload.metadata.partition_key.context("a message without a key")
    }
}

pub(super) struct StockConsumer {
    stream: Stream,
    topic: String,
}

impl Consumer for StockConsumer {
    type Id = MessageIdData;

    async fn next(&mut self) -> Result<(MessageIdData, String)> {
        let message = self.stream.try_next().await?.context("the consumer has ended")?;
        let id = message.message_id.id;
        let name = format!("{}:{}:-1", id.ledger_id, id.entry_id);
        Ok((id, name))
    }

    async fn ack(&mut self, id: MessageIdData) -> Result<()> {
        Ok(self.stream.ack_with_id(&self.topic, id).await?)
    }

    /// An ack of the crate is only queued. A question behind all of them, on the same connection,
    /// is answered when they have arrived; not before all messages are taken, because until then
    /// the crate's engine waits for us.
    async fn settled(&mut self) -> Result<()> {
        self.stream.get_last_message_id().await?;
        Ok(())
    }
}
