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

/// A request to end a task: see [`Client::cancellation`].
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct Cancellation {
    client: Client,
    task: TaskRef,
    reason: String,
    kill: bool,
}

impl Cancellation {
    /// Why: the [log of actions](crate::Queue::action_log) shows it.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Does not wait for the processor: it has no grace, and its slot is free within a second of
    /// the worker's reading the request.
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
    pub fn kill(mut self) -> Self {
        self.kill = true;
        self
    }

    /// Sends the request, and resolves when it is stored.
    ///
    /// # Errors
    /// When the request could not be stored. Sending it again does no harm.
    pub async fn send(self) -> Result<(), CancelError> {
        let Self { client, task, reason, kill } = self;
        let reason = text::shortened(reason);
        let message = if kill {
            ledger::signed(ledger::kill(task.id, &reason), &client.operator, "kill")
        } else {
            ledger::by_operator(&Entry::Cancel(task.id), &reason, &client.operator, "cancel")
        };
        client.end_task(&task, &message).await
    }
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
        self.cancellation(task).send().await
    }

    /// A request to end a task, to which a reason can be added, and that its processor be killed.
    pub fn cancellation(&self, task: &TaskRef) -> Cancellation {
        let (client, task) = (self.clone(), task.clone());
        Cancellation { client, task, reason: String::new(), kill: false }
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
