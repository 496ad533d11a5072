//! Waits for the end of a task, and reads its current state.

use super::task_ref::TaskRef;
use super::{Client, ReadError, partition};
use crate::topics::TopicNameError;
use crate::transport::TransportError;
use longhaul_core::task::{FailureCause, FromPayload, PayloadError, TaskMetadata, TaskOutcome};
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use std::sync::Arc;

/// Why a wait ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The task failed for good, was cancelled, or expired.
    #[error("{}", ended((*outcome, *cause), *attempts, reason))]
    Failed {
        /// Why the last attempt failed.
        cause: FailureCause,
        /// Why the last attempt failed, in plain words: see [`TaskMetadata::reason`].
        reason: String,
        /// How the task ended.
        outcome: TaskOutcome,
        /// The number of attempts.
        attempts: u32,
    },
    /// The task ended, but its result cannot be decoded as the requested type.
    #[error("the result cannot be decoded: {0}")]
    Decode(PayloadError),
    /// No message of the topic has this id, and none ever will: the partition does not exist, or
    /// the id is beyond the last message.
    #[error("no task {task}: {cause}")]
    NoSuchTask {
        /// The task that was waited for.
        task: Box<TaskRef>,
        /// Why it cannot exist.
        cause: String,
    },
    /// The task ended, and its entry was evicted before it was read: the result is gone.
    #[error("the task has ended and its result was evicted")]
    Evicted,
    /// The name of the task's topic is invalid.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The metadata topic cannot be followed. This says nothing about the task.
    #[error("cannot follow the metadata topic")]
    Transport(#[source] TransportError),
}

classified!(WaitError);

fn ended((outcome, cause): (TaskOutcome, FailureCause), attempts: u32, reason: &str) -> String {
    match (outcome, cause) {
        (_, FailureCause::Cancelled | FailureCause::Expired) => reason.to_owned(),
        (TaskOutcome::Cancelled, _) => format!("the task was cancelled: {reason}"),
        (TaskOutcome::Expired, _) => format!("the task has expired: {reason}"),
        (TaskOutcome::Final | _, _) => {
            let plural = if attempts == 1 { "" } else { "s" };
            format!("the task failed after {attempts} attempt{plural}: {reason}")
        }
    }
}

impl WaitError {
    const fn class(&self) -> Class {
        match self {
            Self::Failed { outcome: TaskOutcome::Cancelled, .. } => {
                (ErrorKind::TaskCancelled, "task_cancelled")
            }
            Self::Failed { outcome: TaskOutcome::Expired, .. } => {
                (ErrorKind::TaskExpired, "task_expired")
            }
            Self::Failed { .. } => (ErrorKind::TaskFailed, "task_failed"),
            Self::Decode(_) => (ErrorKind::Unreadable, "result_unreadable"),
            Self::NoSuchTask { .. } => (ErrorKind::NotFound, "task_not_found"),
            Self::Evicted => (ErrorKind::Gone, "gone"),
            Self::Topic(error) => error.class(),
            Self::Transport(error) => error.kind.class(),
        }
    }
}

impl Client {
    /// Waits for a task's result.
    ///
    /// The wait has no time limit; set one with [`tokio::time::timeout`]. It may be dropped at any
    /// time, and continues across broker outages. An id that no message can have is an error, as
    /// far as the broker reports the topic's last id.
    ///
    /// The first wait on a partition reads its metadata topic from the start; later waits share
    /// what was read, as long as the client lives. For each task that is not evicted, the client
    /// keeps the position of its last entry, some hundred bytes.
    ///
    /// # Errors
    /// When the task failed for good, its result has another type, or the metadata topic cannot be
    /// followed.
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
            cause: end.failure_cause.unwrap_or_default(),
            reason: end.reason().unwrap_or_default().to_owned(),
            outcome: end.outcome.unwrap_or(TaskOutcome::Final),
            attempts: end.attempts,
        })
    }

    /// As [`wait`](Self::wait), but returns the whole entry with which the task ended, in success
    /// or failure.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), except that a failed task is not an error.
    pub async fn wait_metadata(&self, task: &TaskRef) -> Result<TaskMetadata, WaitError> {
        Ok(Arc::unwrap_or_clone(self.end(task).await?))
    }

    /// Returns the metadata entry of a task as of now; `None` when no worker has claimed the task
    /// yet, or the entry was evicted. Ends within a minute.
    ///
    /// # Errors
    /// When the metadata topic cannot be read.
    pub async fn get(&self, task: &TaskRef) -> Result<Option<TaskMetadata>, ReadError> {
        let names = self.names(&task.topic)?;
        self.require_queue(&names).await?;
        let place = partition(names.metadata, task.id.partition);
        Ok(self.inner.views.get(&place, task.id).await?)
    }

    async fn end(&self, task: &TaskRef) -> Result<Arc<TaskMetadata>, WaitError> {
        let names = self.names(&task.topic)?;
        self.require_queue(&names).await.map_err(WaitError::Transport)?;
        let place = partition(names.metadata, task.id.partition);
        let objection = async {
            let cause = self.inner.existence.objection(&task.topic, task.id).await?;
            // A task that is shown did exist, even if its topic was recreated since.
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
        end.map_err(WaitError::Transport)?.ok_or(WaitError::Evicted)
    }
}
