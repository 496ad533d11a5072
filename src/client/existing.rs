//! Reports queues that do not exist, instead of creating them by looking at them.
//!
//! Brokers create topics on first use: reading a queue under a misspelt name would create its
//! ledger and metadata topic. So every read of a queue first checks that its task topic exists,
//! which creates nothing. Submitters and workers create the queue; a watch may start before it
//! exists.

use super::{Client, Queue, ReadError};
use crate::topics::{Priority, TopicNameError, TopicNames};
use crate::transport::{TransportError, TransportErrorKind};

impl Queue {
    /// Whether the queue exists, that is, whether its task topic does. Creates nothing. Returns
    /// `true` if the broker does not tell: versions before 3.0.6, or one that denies the request.
    ///
    /// Methods that read a queue, such as [`tasks`](Self::tasks) or [`history`](Self::history),
    /// check this themselves and fail with [`TransportErrorKind::NotFound`]. A
    /// [`watch`](Client::watch) may begin before the queue exists, and settings and schedules may
    /// be created before it.
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
    /// When the broker cannot be reached, or the topic's name is invalid.
    pub async fn exists(&self) -> Result<bool, TransportError> {
        let names = self.names().map_err(|error| self.unusable(error))?;
        self.client.inner.existence.ask_for_queue(&names.task).await
    }

    /// Whether the queue has topics for tasks of this priority;
    /// [`topics::setup_levels`](crate::topics::setup_levels) and workers with
    /// [levels](crate::WorkerBuilder::levels) create them. Without them, a task of this priority
    /// waits until a worker consumes that level. Creates nothing. Returns `true` if the broker does
    /// not tell.
    ///
    /// # Errors
    /// As [`exists`](Self::exists).
    pub async fn has_level(&self, priority: Priority) -> Result<bool, TransportError> {
        let level = self.names().and_then(|queue| self.client.level_names(&queue, priority));
        let level = level.map_err(|error| self.unusable(error))?;
        // A submission creates only the task topic of its level, so this checks the ledger.
        self.client.inner.transport.exists(&level.ledger).await
    }

    fn unusable(&self, error: TopicNameError) -> TransportError {
        TransportError::new(TransportErrorKind::Invalid, self.topic(), error)
    }
}

impl Client {
    /// The queue whose priority level this task topic is, and the level. If it is none, that is
    /// the topic itself, and the normal level: `runs-high` is a queue where there is no `runs`. At a
    /// broker that does not tell what exists it counts as a level.
    pub(super) async fn level_of(
        &self,
        names: &TopicNames,
    ) -> Result<(TopicNames, Priority), ReadError> {
        let (queue, level) = Priority::of_topic(&names.task);
        if level != Priority::Normal {
            let queue = self.names(queue)?;
            if self.inner.existence.has_queue(&queue.task).await? {
                return Ok((queue, level));
            }
        }
        Ok((names.clone(), Priority::Normal))
    }

    /// Fails if the queue does not exist, before any topic other than its task topic is opened.
    /// Transient errors are ignored: the operation that follows meets them.
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
