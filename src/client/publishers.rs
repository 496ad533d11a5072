//! Publishers, one per topic partition, kept open while the client lives.
//!
//! A service owns each publisher and reopens it after a failure. It sends every message once: a
//! message without a receipt is of unknown fate, and only the caller can tell whether sending it
//! again does harm.

use super::service::BackgroundTasks;
use crate::supervise::{Connections, KeptPublisher, SessionSupervisor};
use crate::transport::{
    Batching, OnReceipt, Outgoing, PublishError, Published, TopicPartition, TopicSchema, Transport,
    TransportError,
};
use longhaul_core::task::Position;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// The most messages queued for a publisher; further callers wait for room.
const QUEUE_MAX: usize = 256;

/// Why there is no receipt.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum PublishFailure {
    /// No publisher could be opened: the message is not stored and never will be.
    NotSent(TransportError),
    /// The message was sent.
    Sent(PublishError),
}

/// The publishers of a client.
#[derive(Debug)]
pub(super) struct Publishers {
    transport: Arc<dyn Transport>,
    /// Outages are not logged: each publish reports them.
    connections: Arc<Connections>,
    queues: Mutex<HashMap<TopicPartition, mpsc::Sender<PublishJob>>>,
    tasks: BackgroundTasks,
}

#[derive(Debug)]
struct PublishJob {
    message: Outgoing,
    answer: oneshot::Sender<Result<Position, PublishFailure>>,
}

impl Publishers {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        let connections = Arc::new(Connections::untold());
        Self { transport, connections, queues: Mutex::default(), tasks: BackgroundTasks::default() }
    }

    /// Publishes a message and waits for its receipt. If the caller drops this after the message
    /// was queued, the message may or may not be published.
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
        self.queue(topic).send(PublishJob { message, answer }).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    fn queue(&self, topic: &TopicPartition) -> mpsc::Sender<PublishJob> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(topic).filter(|queue| !queue.is_closed()) {
            return queue.clone();
        }
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let service = SessionSupervisor::of_client(&self.transport, topic, &self.connections);
        let publisher = KeptPublisher::new(service, Batching::Off, TopicSchema::None);
        self.tasks.spawn(serve(publisher, jobs));
        queues.insert(topic.clone(), queue.clone());
        queue
    }
}

/// The service of one partition's publisher.
async fn serve(mut publisher: KeptPublisher, mut jobs: mpsc::Receiver<PublishJob>) {
    while let Some(PublishJob { message, answer }) = jobs.recv().await {
        if answer.is_closed() {
            continue;
        }
        match publisher.ready_persistently().await {
            // A caller that gave up while no publisher could be opened treats its message as not
            // sent or unknown: do not send it.
            Ok(()) if answer.is_closed() => {}
            Ok(()) => {
                let told = |published: Published| published.map_err(PublishFailure::Sent);
                let on_receipt = OnReceipt::new(move |receipt| drop(answer.send(told(receipt))));
                publisher.put(message, on_receipt);
            }
            Err(error) => {
                let not_sent = || Err(PublishFailure::NotSent(error.clone()));
                drop(answer.send(not_sent()));
                // The jobs queued behind this one get the same answer, without another wait.
                while let Ok(job) = jobs.try_recv() {
                    drop(job.answer.send(not_sent()));
                }
            }
        }
    }
}
