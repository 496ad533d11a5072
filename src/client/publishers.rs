//! Publishers, one per topic partition, kept open while the client lives.
//!
//! A service owns each publisher and opens another one when it has failed. It hands every message over once: what was handed
//! over and has no receipt is of unknown fate, and only the caller can know whether sending it again does harm.

use super::service::{Tasks, persistently};
use crate::task::Position;
use crate::transport::{
    Batching, OnReceipt, Outgoing, PublishError, Published, Publisher, Schema, TopicPartition,
    Transport, TransportError,
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
    answer: oneshot::Sender<Result<Position, PublishFailure>>,
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
        let (answer, answered) = oneshot::channel();
        let gone = || {
            let cause = "the runtime that the publisher ran on has ended".to_owned();
            PublishFailure::Sent(PublishError::Unknown(cause))
        };
        self.queue(topic).send(Job { message, answer }).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
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
    while let Some(Job { message, answer }) = jobs.recv().await {
        if answer.is_closed() {
            continue;
        }
        match ready(&transport, &topic, &mut publisher).await {
            Ok(publisher) => {
                let told = |published: Published| published.map_err(PublishFailure::Sent);
                let on_receipt = OnReceipt::new(move |it| drop(answer.send(told(it))));
                publisher.put(message, on_receipt);
            }
            Err(error) => {
                // Whoever publishes is told.
                tracing::debug!(%topic, %error, "cannot publish");
                let not_sent = || Err(PublishFailure::NotSent(error.clone()));
                drop(answer.send(not_sent()));
                // Who has waited as long as this one need not wait as long again for the same answer.
                while let Ok(job) = jobs.try_recv() {
                    drop(job.answer.send(not_sent()));
                }
            }
        }
    }
}

/// A publisher that takes a message now: the one that is open, or another one if that has failed.
async fn ready<'a>(
    transport: &Arc<dyn Transport>,
    topic: &TopicPartition,
    publisher: &'a mut Option<Box<dyn Publisher>>,
) -> Result<&'a mut dyn Publisher, TransportError> {
    if let Some(open) = publisher
        && let Err(error) = open.ready().await
    {
        tracing::debug!(%topic, %error, "opening another publisher");
        *publisher = None;
    }
    let open = match publisher.take() {
        Some(open) => open,
        None => {
            let opened = persistently(&topic.topic, || {
                let (transport, topic) = (Arc::clone(transport), topic.clone());
                Box::pin(
                    async move { transport.publisher(&topic, Batching::Off, Schema::None).await },
                )
            });
            let mut opened = opened.await?;
            opened.ready().await?;
            opened
        }
    };
    Ok(publisher.insert(open).as_mut())
}
