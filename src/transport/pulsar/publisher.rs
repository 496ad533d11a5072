//! Publishes through the client crate.
//!
//! The crate resends by itself what it has sent and not seen receipted, within 10 s, when the broker closes the producer or the
//! connection is lost. Nothing turns that off; a topic that must not hold a message twice needs the broker's deduplication.

use super::client::{self, Context};
use super::{LOCAL_ONLY, error, message, schema};
use crate::task::Position;
use crate::transport::{
    Batching, Outgoing, PublishError, Publisher, Receipt, Schema, TransportError,
};
use async_trait::async_trait;
use futures::stream::FuturesUnordered;
use futures::{StreamExt, join};
use pulsar::error::{ConnectionError, ProducerError};
use pulsar::producer::{Message as Produced, SendFuture};
use pulsar::proto::{CommandSendReceipt, ServerError};
use pulsar::{Producer, ProducerOptions, TokioExecutor};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Messages accepted and not yet handed to the crate. The crate has a queue of its own behind.
const QUEUE_MAX: usize = 100;
/// Messages that the crate has and the broker has not receipted.
const IN_FLIGHT_MAX: usize = 10_000;
/// Largest batch, in messages and in bytes of payload before the last message, and how long it may wait to fill.
const BATCH_MESSAGES_MAX: u32 = 1_000;
const BATCH_BYTES: usize = 128 * 1024;
const BATCH_WAIT: Duration = Duration::from_millis(1);
/// What a message may cost on the wire beside its body, key and properties.
const OVERHEAD_BYTES: usize = 10 * 1024;
/// What one property may cost on the wire beside its text.
const PROPERTY_OVERHEAD_BYTES: usize = 16;

/// One producer and the task that feeds it.
pub(super) struct PulsarPublisher {
    queue: mpsc::Sender<Job>,
    limits: Limits,
    health: Health,
}

/// A message to hand to the crate.
struct Job {
    message: Produced,
    done: oneshot::Sender<Result<Position, PublishError>>,
}

/// A message that the crate has, and its promise of a receipt.
struct Sent {
    promise: SendFuture,
    done: oneshot::Sender<Result<Position, PublishError>>,
}

/// Whether the publisher may be used; the first failure is its last word.
#[derive(Clone)]
struct Health {
    address: Arc<str>,
    failed: Arc<AtomicBool>,
    cause: Arc<OnceLock<TransportError>>,
}

impl Health {
    fn fail(&self, error: TransportError) {
        tracing::debug!(%error, "publisher failed");
        drop(self.cause.set(error));
        self.failed.store(true, Ordering::Release);
    }

    fn check(&self) -> Result<(), TransportError> {
        if self.failed.load(Ordering::Acquire) {
            let unknown = || error::unreachable(&self.address, "the publisher has failed");
            return Err(self.cause.get().cloned().unwrap_or_else(unknown));
        }
        Ok(())
    }
}

impl PulsarPublisher {
    pub(super) async fn open(
        context: Context,
        batching: Batching,
        schema: Schema,
    ) -> Result<Self, TransportError> {
        let Context { raw, tracker, topic, address } = context;
        let options = options(batching, schema);
        let name = topic.clone();
        let build = |client: client::Client| async move {
            Box::pin(client.producer().with_topic(name).with_options(options).build()).await
        };
        let (producer, greeting) = client::open(&raw, &tracker, &topic, build).await?;
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let health =
            Health { address: address.into(), failed: Arc::default(), cause: Arc::default() };
        tracker.spawn(run(producer, batching, jobs, health.clone()));
        Ok(Self { queue, limits: Limits::new(batching, greeting.message_bytes_max), health })
    }
}

#[async_trait]
impl Publisher for PulsarPublisher {
    async fn send(&mut self, message: Outgoing) -> Result<Receipt, TransportError> {
        self.health.check()?;
        if let Err(refusal) = self.limits.check(&message) {
            return Ok(Box::pin(async { Err(refusal) }));
        }
        let (done, receipt) = oneshot::channel();
        let job = Job { message: produced(message), done };
        if self.queue.send(job).await.is_err() {
            self.health.check()?;
            return Err(error::unreachable(&self.health.address, "the publisher has ended"));
        }
        let lost = |_| Err(PublishError::Unknown("the publisher ended".to_owned()));
        Ok(Box::pin(async move { receipt.await.unwrap_or_else(lost) }))
    }
}

/// Hands over, sees to the receipts, and closes the producer when the handle is gone and all receipts are in.
async fn run(
    mut producer: Producer<TokioExecutor>,
    batching: Batching,
    jobs: mpsc::Receiver<Job>,
    health: Health,
) {
    let (sent, queue) = mpsc::channel(QUEUE_MAX);
    let hand_over = hand_over(&mut producer, batching, jobs, sent, &health);
    join!(Box::pin(hand_over), settle(queue, &health));
    if let Err(cause) = Box::pin(producer.close()).await {
        tracing::debug!(address = %health.address, %cause, "producer not closed");
    }
}

/// Hands messages to the crate one after the other.
#[expect(clippy::large_futures, reason = "the whole is boxed once: a box per message costs more")]
async fn hand_over(
    producer: &mut Producer<TokioExecutor>,
    batching: Batching,
    mut jobs: mpsc::Receiver<Job>,
    sent: mpsc::Sender<Sent>,
    health: &Health,
) {
    while let Some(Job { message, done }) = jobs.recv().await {
        let failure = match health.check() {
            Ok(()) => match producer.send_non_blocking(message).await {
                Ok(promise) => {
                    // The other side leaves only after this one.
                    drop(sent.send(Sent { promise, done }).await);
                    continue;
                }
                Err(cause) => {
                    health.fail(error::client(&health.address, &cause));
                    publish_error(&cause)
                }
            },
            // Never written. Nobody has refused it for what it carries, though, so it may be published again as it is.
            Err(error) => PublishError::Unknown(error.to_string()),
        };
        drop(done.send(Err(failure)));
    }
    if batching == Batching::On
        && let Err(cause) = producer.send_batch().await
    {
        tracing::debug!(address = %health.address, %cause, "last batch not flushed");
    }
}

/// Passes receipts on as they come.
async fn settle(mut queue: mpsc::Receiver<Sent>, health: &Health) {
    let mut in_flight = FuturesUnordered::new();
    let mut open = true;
    while open || !in_flight.is_empty() {
        let has_room = open && in_flight.len() < IN_FLIGHT_MAX;
        tokio::select! { biased;
            Some(()) = in_flight.next() => {}
            sent = queue.recv(), if has_room => match sent {
                Some(sent) => in_flight.push(complete(sent, health)),
                None => open = false,
            },
        }
    }
}

async fn complete(sent: Sent, health: &Health) {
    let result = match sent.promise.await {
        Ok(receipt) => position(&receipt),
        Err(cause) => {
            let failure = publish_error(&cause);
            if matches!(failure, PublishError::Unknown(_)) {
                health.fail(error::client(&health.address, &cause));
            }
            Err(failure)
        }
    };
    // Who does not want the receipt any more does not take the message back.
    drop(sent.done.send(result));
}

fn options(batching: Batching, schema: Schema) -> ProducerOptions {
    let batched = batching == Batching::On;
    ProducerOptions {
        schema: match schema {
            Schema::None => None,
            Schema::TaskMetadata => Some(schema::task_metadata()),
        },
        batch_size: batched.then_some(BATCH_MESSAGES_MAX),
        batch_byte_size: batched.then_some(BATCH_BYTES),
        batch_timeout: batched.then_some(BATCH_WAIT),
        block_queue_if_full: true,
        ..ProducerOptions::default()
    }
}

/// The crate keeps `replicate_to` for messages that go alone; a batch has no place for it there.
fn produced(message: Outgoing) -> Produced {
    Produced {
        payload: message.payload.to_vec(),
        properties: message.properties.into_iter().collect(),
        partition_key: message.key,
        replicate_to: vec![LOCAL_ONLY.to_owned()],
        ..Produced::default()
    }
}

/// Where the message lies. Inside a batch the crate fills in the index: its place in the batch.
fn position(receipt: &CommandSendReceipt) -> Result<Position, PublishError> {
    let id = receipt.message_id.as_ref();
    let Some(id) = id.filter(|id| id.ledger_id != u64::MAX && id.entry_id != u64::MAX) else {
        // The broker has it for a duplicate: of the crate's own resend, or of someone else's message.
        return Err(PublishError::Unknown("the receipt names no message".to_owned()));
    };
    Ok(message::position(id, id.batch_size.is_some()))
}

/// A refusal counts only if a resend of the crate could not have been stored before it.
fn publish_error(cause: &pulsar::Error) -> PublishError {
    let text = cause.to_string();
    if is_refusal(cause) { PublishError::Refused(text) } else { PublishError::Unknown(text) }
}

fn is_refusal(cause: &pulsar::Error) -> bool {
    let pulsar::Error::Producer(cause) = cause else { return false };
    if let ProducerError::Batch(inner) = cause {
        return is_refusal(inner);
    }
    let ProducerError::Connection(ConnectionError::PulsarError(code, _)) = cause else {
        return false;
    };
    matches!(code, Some(ServerError::NotAllowedError | ServerError::ChecksumError))
}

/// What may be published without the broker closing the connection over it: the crate checks no size.
struct Limits {
    /// Body, key and properties together.
    message_bytes_max: usize,
    /// Key and properties; a batch may have a thousand of them.
    head_bytes_max: usize,
}

impl Limits {
    fn new(batching: Batching, broker_bytes_max: usize) -> Self {
        let broker_bytes_max = broker_bytes_max.saturating_sub(OVERHEAD_BYTES);
        match batching {
            Batching::Off => {
                Self { message_bytes_max: broker_bytes_max, head_bytes_max: broker_bytes_max }
            }
            // A full batch: a thousand heads, bodies up to the byte limit, and one more body.
            Batching::On => Self {
                message_bytes_max: (broker_bytes_max / 2).saturating_sub(BATCH_BYTES),
                head_bytes_max: broker_bytes_max / 2 / BATCH_MESSAGES_MAX as usize,
            },
        }
    }

    fn check(&self, message: &Outgoing) -> Result<(), PublishError> {
        let properties = message.properties.iter();
        let head_bytes: usize = properties
            .map(|(key, value)| key.len() + value.len() + PROPERTY_OVERHEAD_BYTES)
            .sum::<usize>()
            + message.key.as_ref().map_or(0, String::len);
        let bytes = head_bytes.saturating_add(message.payload.len());
        if head_bytes > self.head_bytes_max {
            let max = self.head_bytes_max;
            return Err(PublishError::Refused(format!(
                "key and properties have {head_bytes} bytes, more than {max}"
            )));
        }
        if bytes > self.message_bytes_max {
            let max = self.message_bytes_max;
            return Err(PublishError::Refused(format!(
                "the message has {bytes} bytes, more than {max}"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use pulsar::proto::MessageIdData;

    #[test]
    fn the_receipt_of_a_duplicate_is_unknown() {
        let receipt = |ledger_id, entry_id| CommandSendReceipt {
            message_id: Some(MessageIdData { ledger_id, entry_id, ..MessageIdData::default() }),
            ..CommandSendReceipt::default()
        };
        assert!(matches!(position(&receipt(u64::MAX, u64::MAX)), Err(PublishError::Unknown(_))));
        assert!(matches!(position(&CommandSendReceipt::default()), Err(PublishError::Unknown(_))));
        let stored = position(&receipt(3, 4)).unwrap();
        assert_eq!(stored, Position { ledger: 3, entry: 4, batch_index: None });
    }

    #[test]
    fn a_full_batch_fits_into_the_brokers_limit() {
        for broker in [1024 * 1024, 5 * 1024 * 1024] {
            let limits = Limits::new(Batching::On, broker);
            let heads = limits.head_bytes_max * BATCH_MESSAGES_MAX as usize;
            assert!(heads + BATCH_BYTES + limits.message_bytes_max + OVERHEAD_BYTES <= broker);
        }
    }

    #[test]
    fn what_is_too_large_is_refused_before_it_is_sent() {
        let limits = Limits::new(Batching::Off, 5 * 1024 * 1024);
        let of = |bytes| Outgoing { payload: Bytes::from(vec![0; bytes]), ..Outgoing::default() };
        assert!(limits.check(&of(5 * 1024 * 1024 - OVERHEAD_BYTES)).is_ok());
        assert!(matches!(limits.check(&of(5 * 1024 * 1024)), Err(PublishError::Refused(_))));
    }
}
