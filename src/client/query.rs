//! Waits for the end of a task, and looks at one.

use super::shared_view::Unseen;
use super::task_ref::TaskRef;
use super::{Client, partition};
use crate::topics::TopicNameError;
use crate::transport::TransportError;
use longhaul_core::task::{FromPayload, PayloadError, TaskMetadata, TaskOutcome};
use std::sync::Arc;

/// Why a wait ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The task failed for good.
    #[error("the task failed after {attempts} attempt{}: {reason}", if *attempts == 1 { "" } else { "s" })]
    Failed {
        /// Why the last attempt failed, in the plainest words that there are: see
        /// [`TaskMetadata::reason`].
        reason: String,
        /// What kind of end it was.
        outcome: TaskOutcome,
        /// How many attempts there were.
        attempts: u32,
    },
    /// The task ended, but its result cannot be read as the type asked for.
    #[error("the result cannot be decoded: {0}")]
    Decode(PayloadError),
    /// No message of its topic has this id, and none ever will: the partition does not exist, or
    /// the id was not given yet.
    #[error("no task {task}: {cause}")]
    NoSuchTask {
        /// What was waited for.
        task: Box<TaskRef>,
        /// Why it cannot be.
        cause: String,
    },
    /// The task ended, and its entry was evicted before it was seen: the result is gone.
    #[error("the task has ended and its result was evicted")]
    Evicted,
    /// The task's topic is not one.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The metadata topic cannot be followed. Says nothing about the task.
    #[error("cannot follow the metadata topic")]
    Transport(#[source] TransportError),
}

/// Why a task could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// The task's topic is not one.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The metadata topic cannot be read now.
    #[error("cannot read the metadata topic")]
    Transport(#[source] TransportError),
}

impl Client {
    /// Waits for a task's result.
    ///
    /// It has no time limit of its own: put a limit around it with [`tokio::time::timeout`].
    /// Dropping the wait harms nothing. While the broker is away the wait goes on. An id that no
    /// message can have is an error, as far as the broker tells the last one.
    ///
    /// The first wait on a partition of a topic reads its metadata topic from the start; later ones
    /// share what was read, for as long as the client lives. What is kept of each task that is not
    /// evicted yet is where its last entry lies, some hundred bytes.
    ///
    /// # Errors
    /// When the task failed for good, its result is of another type, or the metadata topic cannot
    /// be followed.
    pub async fn wait<Output: FromPayload>(&self, task: &TaskRef) -> Result<Output, WaitError> {
        let mut end = self.end(task).await?;
        if end.codec.is_some() {
            let decoded = self.decode(Arc::unwrap_or_clone(end)).map_err(WaitError::Decode)?;
            end = Arc::new(decoded);
        }
        if let Some(result) = end.result().map_err(WaitError::Decode)? {
            return Ok(result);
        }
        Err(WaitError::Failed {
            reason: end.reason().unwrap_or_default().to_owned(),
            outcome: end.outcome.unwrap_or(TaskOutcome::Final),
            attempts: end.attempts,
        })
    }

    /// As [`wait`](Self::wait), for the whole entry with which the task ended, well or not.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), but a task that failed is no error here.
    pub async fn wait_metadata(&self, task: &TaskRef) -> Result<TaskMetadata, WaitError> {
        Ok(Arc::unwrap_or_clone(self.end(task).await?))
    }

    /// What the metadata topic shows of a task now; `None` when no worker has claimed it yet, or
    /// its entry was evicted. Ends within a minute.
    ///
    /// # Errors
    /// When the metadata topic cannot be read.
    pub async fn get(&self, task: &TaskRef) -> Result<Option<TaskMetadata>, GetError> {
        let names = self.names(&task.topic)?;
        self.require_queue(&names).await.map_err(GetError::Transport)?;
        let place = partition(names.metadata, task.id.partition);
        self.inner.views.get(&place, task.id).await.map_err(GetError::Transport)
    }

    async fn end(&self, task: &TaskRef) -> Result<Arc<TaskMetadata>, WaitError> {
        let names = self.names(&task.topic)?;
        self.require_queue(&names).await.map_err(WaitError::Transport)?;
        let place = partition(names.metadata, task.id.partition);
        let objection = async {
            let cause = self.inner.existence.objection(&task.topic, task.id).await?;
            // What is shown did exist, even if its topic is another one by now.
            let shown = self.inner.views.look(&place, task.id).await;
            (!matches!(shown, Ok(Some(_)))).then_some(cause)
        };
        let end = self.inner.views.end(&place, task.id);
        tokio::pin!(end, objection);
        let end = tokio::select! {
            biased;
            end = &mut end => end,
            cause = &mut objection => match cause {
                Some(cause) => return Err(WaitError::NoSuchTask { task: Box::new(task.clone()), cause }),
                None => end.await,
            },
        };
        end.map_err(|unseen| match unseen {
            Unseen::Evicted => WaitError::Evicted,
            Unseen::Broken(error) => WaitError::Transport(error),
        })
    }
}
