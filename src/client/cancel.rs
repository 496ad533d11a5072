//! Requests to cancel or kill a task.

use super::publishers::PublishFailure;
use super::task_ref::TaskRef;
use super::{ActionError, Client, partition};
use crate::supervise::Backoff;
use crate::transport::Outgoing;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::task::text;

/// How often a request without a receipt is published.
const TRIES_MAX: u32 = 5;

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
    /// Sets the reason, shown in the [log of actions](crate::Queue::action_log).
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Ends the task without waiting for the processor. There is no grace: the slot is free within
    /// a second after the worker has read the request.
    ///
    /// An asynchronous processor is dropped at its next await point. A processor that blocks its
    /// thread cannot be stopped: it is left behind and continues until it returns, beside the task
    /// that gets its slot. Its result is discarded. A worker leaves behind at most as many
    /// processors as it has slots; the next one keeps its slot until one of them has ended.
    /// [`WorkerStats::left_behind`](crate::WorkerStats::left_behind) counts them, and the log names
    /// each. You can kill a task that was cancelled in vain.
    ///
    /// A processor that was left behind may still have side effects: its [fencing
    /// token](crate::TaskContext::fencing_token) stays the last one of the task. Worker versions
    /// that do not know kill requests treat them as cancel requests.
    pub fn kill(mut self) -> Self {
        self.kill = true;
        self
    }

    /// Sends the request, and resolves when it is stored.
    ///
    /// # Errors
    /// When the request could not be stored. Sending it again does no harm.
    pub async fn send(self) -> Result<(), ActionError> {
        let Self { client, task, reason, kill } = self;
        let reason = text::shortened(reason);
        let message = if kill {
            ledger::signed(ledger::kill(task.id, &reason), &client.operator, "kill")
        } else {
            let message = ledger::message(&Entry::Cancel(task.id), reason.as_bytes());
            ledger::signed(message, &client.operator, "cancel")
        };
        client.end_task(&task, &message).await
    }
}

impl Client {
    /// Cancels a task, whether it waits, runs or is to be retried. Resolves when the request is
    /// stored.
    ///
    /// A running processor is notified as soon as its worker has read the request, and has the
    /// worker's [cancel grace](crate::WorkerBuilder::cancel_grace) to end. Whatever it returns
    /// then, the task is not retried.
    ///
    /// The request is kept until it takes effect. It may come too late: a task that completes first
    /// stays completed. [`wait`](Self::wait) tells how the task ended.
    ///
    /// # Errors
    /// When the request could not be stored. Cancelling again does no harm.
    pub async fn cancel(&self, task: &TaskRef) -> Result<(), ActionError> {
        self.cancellation(task).send().await
    }

    /// Builds a request to cancel a task, with a reason or as a kill.
    pub fn cancellation(&self, task: &TaskRef) -> Cancellation {
        let (client, task) = (self.clone(), task.clone());
        Cancellation { client, task, reason: String::new(), kill: false }
    }

    async fn end_task(&self, task: &TaskRef, message: &Outgoing) -> Result<(), ActionError> {
        let names = self.names(&task.topic)?;
        self.require_queue(&names).await?;
        let topic = partition(names.ledger, task.id.partition);
        let mut backoff = Backoff::new(fastrand::Rng::new());
        for attempt in 1.. {
            match self.inner.publishers.publish(&topic, message.clone()).await {
                Ok(_) => return Ok(()),
                // Every cancel request has the same key and is sticky: a second one changes
                // nothing.
                Err(PublishFailure::Sent(error)) if attempt < TRIES_MAX => {
                    tracing::debug!(%task, %error, "publishing the cancellation again");
                    backoff.wait().await;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }
}
