//! Publishers, one per topic partition, kept open while the client lives.
//!
//! A service owns each publisher and opens another one when it has failed. It hands every message over once: what was handed
//! over and has no receipt is of unknown fate, and only the caller can know whether sending it again does harm.

use super::service::{Tasks, persistently};
use crate::task::Position;
use crate::transport::{
    Batching, Outgoing, PublishError, Publisher, Receipt, Schema, TopicPartition, Transport,
    TransportError,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Messages that wait for a publisher; the callers of further ones wait for a place.
const QUEUE_MAX: usize = 256;

/// Why there is no receipt.
#[derive(Debug)]
pub(super) enum PublishFailure {
    /// No publisher could be opened: the message is not stored and never will be.
    NotSent(TransportError),
    /// The message was handed over.
    Sent(PublishError),
}

/// The publishers of a client.
#[derive(Debug)]
pub(super) struct Publishers {
    transport: Arc<dyn Transport>,
    queues: Mutex<HashMap<TopicPartition, mpsc::Sender<Job>>>,
    tasks: Tasks,
}

#[derive(Debug)]
struct Job {
    message: Outgoing,
    receipt: oneshot::Sender<Promise>,
}

type Promise = Result<Handed, TransportError>;

/// A receipt under way.
struct Handed(Receipt);

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handed(..)")
    }
}

impl Publishers {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, queues: Mutex::default(), tasks: Tasks::default() }
    }

    /// Publishes a message and waits for its receipt. A caller that gives up leaves the fate of the message open, once it has been
    /// handed over.
    pub(super) async fn publish(
        &self,
        topic: &TopicPartition,
        message: Outgoing,
    ) -> Result<Position, PublishFailure> {
        let (receipt, promise) = oneshot::channel();
        let gone = || {
            let cause = "the runtime that the publisher ran on has ended".to_owned();
            PublishFailure::Sent(PublishError::Unknown(cause))
        };
        let job = Job { message, receipt };
        self.queue(topic).send(job).await.map_err(|_| gone())?;
        let promise = promise.await.map_err(|_| gone())?;
        let Handed(receipt) = promise.map_err(PublishFailure::NotSent)?;
        receipt.await.map_err(PublishFailure::Sent)
    }

    fn queue(&self, topic: &TopicPartition) -> mpsc::Sender<Job> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(topic).filter(|queue| !queue.is_closed()) {
            return queue.clone();
        }
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        self.tasks.spawn(serve(Arc::clone(&self.transport), topic.clone(), jobs));
        queues.insert(topic.clone(), queue.clone());
        queue
    }
}

/// The service of one partition.
async fn serve(
    transport: Arc<dyn Transport>,
    topic: TopicPartition,
    mut jobs: mpsc::Receiver<Job>,
) {
    let mut publisher = None;
    while let Some(Job { message, receipt }) = jobs.recv().await {
        if receipt.is_closed() {
            continue;
        }
        match hand_over(&transport, &topic, &mut publisher, message).await {
            Ok(handed) => drop(receipt.send(Ok(Handed(handed)))),
            Err(error) => {
                tracing::warn!(%topic, %error, "cannot publish");
                drop(receipt.send(Err(error.clone())));
                // Who has waited as long as this one need not wait as long again for the same answer.
                while let Ok(job) = jobs.try_recv() {
                    drop(job.receipt.send(Err(error.clone())));
                }
            }
        }
    }
}

async fn hand_over(
    transport: &Arc<dyn Transport>,
    topic: &TopicPartition,
    publisher: &mut Option<Box<dyn Publisher>>,
    message: Outgoing,
) -> Result<Receipt, TransportError> {
    if let Some(open) = publisher {
        match open.send(message.clone()).await {
            Ok(receipt) => return Ok(receipt),
            // A publisher that failed earlier says so now. It has not taken this message, so another one may.
            Err(error) => tracing::debug!(%topic, %error, "opening another publisher"),
        }
    }
    *publisher = None;
    let opened = persistently(&topic.topic, || {
        let (transport, topic) = (Arc::clone(transport), topic.clone());
        Box::pin(async move { transport.publisher(&topic, Batching::Off, Schema::None).await })
    });
    publisher.insert(opened.await?).send(message).await
}
