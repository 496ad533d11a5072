//! Queues that do not exist are told, and not made by whoever looks at them.
//!
//! Brokers make topics when they are first used: a ledger and a metadata topic beside a task topic
//! that is misspelt would be a queue of which nobody knows. So whatever reads a queue asks for its
//! task topic first, which creates nothing. Who submits to a queue or works on it makes it, and a
//! watch may come before both.

use super::{Client, Queue};
use crate::topics::{Priority, TopicNameError, TopicNames};
use crate::transport::{TransportError, TransportErrorKind};

impl Queue {
    /// Whether the queue exists: whether its task topic does. Makes nothing. `true` where the broker does not tell: one before 3.0.6, or one that refuses to.
    ///
    /// What reads a queue does so by itself, such as [`tasks`](Self::tasks) or
    /// [`history`](Self::history), and fails with [`TransportErrorKind::NotFound`] if there is
    /// none. A [`watch`](Client::watch) may begin before there is a queue, and its settings and
    /// schedules may be made before it.
    ///
    /// ```no_run
    /// # async fn pause(client: longhaul::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// if client.queue("tasks").exists().await? {
    ///     client.queue("tasks").pause().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the broker cannot be reached, or the topic's name is not usable.
    pub async fn exists(&self) -> Result<bool, TransportError> {
        let names = self.names().map_err(|error| self.unusable(error))?;
        self.client.inner.existence.has_queue(&names.task).await
    }

    /// Whether a queue has topics for tasks of this priority, as
    /// [`topics::setup_levels`](crate::topics::setup_levels) and workers with
    /// [levels](crate::WorkerBuilder::levels) make them. Where it has none such a task waits until
    /// somebody works there. Makes nothing; `true` where the broker does not tell.
    ///
    /// # Errors
    /// As [`exists`](Self::exists).
    pub async fn has_level(&self, priority: Priority) -> Result<bool, TransportError> {
        let level = self.names().and_then(|queue| self.client.level_names(&queue, priority));
        let level = level.map_err(|error| self.unusable(error))?;
        // A submission creates the task topic of its level, and no ledger.
        self.client.inner.transport.exists(&level.ledger).await
    }

    fn unusable(&self, error: TopicNameError) -> TransportError {
        TransportError::new(TransportErrorKind::Invalid, self.topic(), error)
    }
}

impl Client {
    /// Refuses a queue that does not exist, before anything beside its task topic is opened. An
    /// error that may pass is met by whoever goes on.
    pub(super) async fn require_queue(&self, names: &TopicNames) -> Result<(), TransportError> {
        match self.inner.existence.has_queue(&names.task).await {
            Ok(false) => {
                let cause = "there is no such queue: its task topic does not exist";
                Err(TransportError::new(TransportErrorKind::NotFound, &names.task, cause))
            }
            Ok(true) | Err(_) => Ok(()),
        }
    }
}
