//! Asks for the end of a task.

use super::publishers::PublishFailure;
use super::task_ref::TaskRef;
use super::{Client, partition};
use crate::supervise::Backoff;
use crate::topics::TopicNameError;
use crate::transport::{Outgoing, PublishError, TransportError};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::task::text;

/// How often a request of unknown fate is published.
const TRIES_MAX: u32 = 5;

/// Why a request to cancel is not known to be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CancelError {
    /// The task's topic is not one.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The broker cannot be reached: the request is not stored.
    #[error("cannot publish to the ledger")]
    Transport(#[source] TransportError),
    /// The broker gave no receipt, or refused, each time. Asking again does no harm.
    #[error("the request to cancel has no receipt")]
    NoReceipt(#[source] PublishError),
}

impl Client {
    /// Asks for the end of a task, whether it waits, runs or is to be tried again. Resolves when
    /// the request is stored.
    ///
    /// A processor that runs hears of it as soon as its worker has read the request, and has the
    /// worker's [cancel grace](crate::WorkerBuilder::cancel_grace) to end. Whatever it answers
    /// then, the task is not tried again.
    ///
    /// The request stays until it is met. It may come too late: a task that completes first stays
    /// completed. How the task ended is what [`wait`](Self::wait) tells.
    ///
    /// # Errors
    /// When the request could not be stored. Cancelling again does no harm.
    pub async fn cancel(&self, task: &TaskRef) -> Result<(), CancelError> {
        self.cancel_for(task, "").await
    }

    /// As [`cancel`](Self::cancel), with a reason, which is in the
    /// [log of actions](Self::action_log).
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel).
    pub async fn cancel_for(
        &self,
        task: &TaskRef,
        reason: impl AsRef<str>,
    ) -> Result<(), CancelError> {
        let reason = text::shortened(reason.as_ref().to_owned());
        let message =
            ledger::by_operator(&Entry::Cancel(task.id), &reason, &self.operator, "cancel");
        self.end_task(task, &message).await
    }

    /// As [`cancel`](Self::cancel), without waiting for the processor: it has no grace, and its
    /// slot is free within a second of the worker's reading the request.
    ///
    /// An asynchronous processor is dropped at its next await point. One that blocks its thread
    /// cannot be ended from outside: it is left behind and goes on until it returns, beside the
    /// tasks that get its slot. What it returns is not used. A worker leaves behind as many
    /// processors as it has slots; the next one keeps its slot until one of them has ended.
    /// [`WorkerStats::left_behind`](crate::WorkerStats::left_behind) counts them, and the log names
    /// each. A task may be killed after it was cancelled in vain.
    ///
    /// Nothing is promised of what the processor does outside meanwhile: its
    /// [fencing token](crate::TaskContext::fencing_token) stays the last one of the task. A worker
    /// of a version that does not know the request takes it for one to cancel.
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel).
    pub async fn kill(&self, task: &TaskRef) -> Result<(), CancelError> {
        self.kill_for(task, "").await
    }

    /// As [`kill`](Self::kill), with a reason, which is in the [log of actions](Self::action_log).
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel).
    pub async fn kill_for(
        &self,
        task: &TaskRef,
        reason: impl AsRef<str>,
    ) -> Result<(), CancelError> {
        let reason = text::shortened(reason.as_ref().to_owned());
        let message = ledger::signed(ledger::kill(task.id, &reason), &self.operator, "kill");
        self.end_task(task, &message).await
    }

    async fn end_task(&self, task: &TaskRef, message: &Outgoing) -> Result<(), CancelError> {
        let names = self.names(&task.topic)?;
        self.require_queue(&names).await.map_err(CancelError::Transport)?;
        let topic = partition(names.ledger, task.id.partition);
        let mut backoff = Backoff::new(fastrand::Rng::new());
        for attempt in 1.. {
            match self.inner.publishers.publish(&topic, message.clone()).await {
                Ok(_) => return Ok(()),
                Err(PublishFailure::NotSent(error)) => return Err(CancelError::Transport(error)),
                Err(PublishFailure::Sent(error)) if attempt >= TRIES_MAX => {
                    return Err(CancelError::NoReceipt(error));
                }
                // The key is shared on purpose and the entry sticky: a second one changes nothing.
                Err(PublishFailure::Sent(error)) => {
                    tracing::debug!(%task, %error, "publishing the cancellation again");
                    backoff.wait().await;
                }
            }
        }
        Ok(())
    }
}
