//! Publishers, one per topic partition, kept open while the client lives.
//!
//! A service owns each publisher, which is opened again when it has failed. It hands every message
//! over once: what was handed over and has no receipt is of unknown fate, and only the caller can
//! know whether sending it again does harm.

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
    /// The log tells no outage of them: whoever publishes is told.
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

    /// Publishes a message and waits for its receipt. A caller that gives up leaves the fate of the
    /// message open, once it has been handed over.
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

/// The service of one partition.
async fn serve(mut publisher: KeptPublisher, mut jobs: mpsc::Receiver<PublishJob>) {
    while let Some(PublishJob { message, answer }) = jobs.recv().await {
        if answer.is_closed() {
            continue;
        }
        match publisher.ready_persistently().await {
            // Who has given up while no publisher could be opened was told that it is not sent, or
            // not known.
            Ok(()) if answer.is_closed() => {}
            Ok(()) => {
                let told = |published: Published| published.map_err(PublishFailure::Sent);
                let on_receipt = OnReceipt::new(move |receipt| drop(answer.send(told(receipt))));
                publisher.put(message, on_receipt);
            }
            Err(error) => {
                let not_sent = || Err(PublishFailure::NotSent(error.clone()));
                drop(answer.send(not_sent()));
                // Who has waited as long as this one need not wait as long again for the same
                // answer.
                while let Ok(job) = jobs.try_recv() {
                    drop(job.answer.send(not_sent()));
                }
            }
        }
    }
}
