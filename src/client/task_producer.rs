//! Submits messages of tasks for a worker, as a plain producer does.

use super::logs::Logs;
use super::partition;
use super::publishers::{PublishFailure, Publishers};
use super::routes::Routes;
use crate::supervise::Connections;
use crate::transport::{Outgoing, PublishError, Published, Transport};
use std::sync::Arc;

/// Publishes to task topics, to the partitions of each in turn.
#[derive(Debug)]
pub(crate) struct TaskProducer {
    routes: Routes,
    publishers: Publishers,
}

impl TaskProducer {
    pub(crate) fn new(transport: &Arc<dyn Transport>) -> Self {
        let connections = Arc::new(Connections::untold());
        let logs = Logs { transport: Arc::clone(transport), connections };
        Self { routes: Routes::new(logs), publishers: Publishers::new(Arc::clone(transport)) }
    }

    /// Publishes a message and waits for its receipt. A topic that is missing or forbidden refuses
    /// every message.
    pub(crate) async fn publish(&self, topic: &str, message: Outgoing) -> Published {
        let sent = match self.routes.next(topic).await {
            Ok(index) => {
                let place = partition(topic.to_owned(), index);
                self.publishers.publish(&place, message).await
            }
            Err(error) => Err(PublishFailure::NotSent(error)),
        };
        sent.map_err(|failure| match failure {
            PublishFailure::Sent(error) => error,
            PublishFailure::NotSent(error) if error.kind.is_permanent() => {
                PublishError::Refused(error.to_string())
            }
            PublishFailure::NotSent(error) => PublishError::NotStored(error.to_string()),
        })
    }
}
