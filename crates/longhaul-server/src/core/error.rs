//! The errors of the service.

use super::{QueueName, TaskName};
use longhaul::lease::{LeaseError, LeaseTokenError, ReportError};
use longhaul::topics::SetupError;
use longhaul::{ActionError, ReadError, SubmitError, WaitError, WorkerError};
use longhaul_api::{QueueNameError, TaskNameError};
use std::sync::Arc;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error(transparent)]
    QueueName(#[from] QueueNameError),
    #[error(transparent)]
    TaskName(#[from] TaskNameError),
    /// The queue does not exist, by the admin API.
    #[error("there is no queue `{0}`; create it with PUT /v1/queues/{0}")]
    NoQueue(QueueName),
    /// It is unknown whether the queue exists.
    #[error(
        "Pulsar's admin API did not answer whether the queue `{0}` exists; try again, or ask \
         another gateway"
    )]
    Untold(QueueName),
    /// No message has this id, or it is gone, and no topic knows such a task.
    #[error("there is no task {0}, or it ended long ago")]
    NoTask(TaskName),
    /// The result is available only when the task is over.
    #[error("the task {0} is not over; wait for it with GET …/tasks/{0}/wait")]
    NotOver(TaskName),
    /// The task has no result.
    #[error("the task {task} has no result: {reason}")]
    NoResult { task: TaskName, reason: String },
    /// The requested data is gone.
    #[error("{0}")]
    Gone(String),
    /// The queue has no topics for this priority: the task would wait for ever.
    #[error(
        "the queue `{0}` has no topics for priorities; create them with PUT /v1/queues/{0} and \
         the body {{\"levels\":true}}"
    )]
    NoLevels(QueueName),
    /// The task has not failed for good, so it cannot be replayed.
    #[error("the task {0} has not failed for good, so it cannot be replayed")]
    NotDead(TaskName),
    /// The tasks of this queue are the calls of webhooks: a task of anybody else could have the
    /// gateway sign anything.
    #[error("the queue `{0}` is reserved for calls of webhooks; use another queue")]
    Reserved(QueueName),
    /// The gateway does not call this URL.
    #[error("webhooks: {0}")]
    Webhook(String),
    /// Another task has the key.
    #[error("the unfinished task {0} has the same dedupe key; wait for its end, or cancel it")]
    DedupeConflict(TaskName),
    /// The gateway is not connected to the broker, so it cannot lease tasks.
    #[error(
        "the gateway is not connected to the broker of the queue `{0}`; try again, or ask another \
         gateway"
    )]
    NotConnected(QueueName),
    /// The gateway leases tasks of as many queues as its limit allows, and all of them are in use.
    #[error(
        "this gateway leases the tasks of {0} queues, its limit, and all of them are in use; ask \
         another gateway, or raise the limit on leased queues"
    )]
    ManyQueues(usize),
    /// The topics of another queue are being read.
    #[error("the topics of another queue are being read; try again in a second")]
    Inspecting,
    /// The queue's leases cannot be served.
    #[error("the gateway cannot serve the leases of the queue")]
    Leases(#[source] Arc<WorkerError>),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    LeaseToken(#[from] LeaseTokenError),
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The fields of a request are inconsistent.
    #[error("{0}")]
    Unfit(String),
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error(transparent)]
    Action(#[from] ActionError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Setup(#[from] SetupError),
}
