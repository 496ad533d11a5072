//! The error of every action on a task or its dead letter.

use super::publishers::PublishFailure;
use super::submit::SubmitError;
use super::task_ref::TaskRef;
use super::tasks::TaskStatus;
use crate::topics::TopicNameError;
use crate::transport::{PublishError, TransportError};
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::operator::ActionRefusal;

/// The error of an action: cancel, kill, delete, force-fail, force-release, or a replay or purge of
/// dead letters. Completed steps are kept, and repeating the action does no harm.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActionError {
    /// The topic's name is not usable.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// No message of its topic has this id, or the message is gone.
    #[error("no task {task}: {cause}")]
    NoSuchTask {
        /// The task of the action.
        task: Box<TaskRef>,
        /// Why it does not exist.
        cause: String,
    },
    /// The task is over.
    #[error(
        "the task is over ({}), and stays as it is; one that has failed for good can be started again by a replay of its dead letter",
        format!("{_0:?}").to_lowercase()
    )]
    Over(TaskStatus),
    /// The task is no longer in the epoch that the operator gave: it was claimed or released since.
    #[error("the task is in epoch {current} by now")]
    Stale {
        /// The current epoch.
        current: u32,
    },
    /// The task does not run, so it cannot be released.
    #[error("the task is not running")]
    NotRunning,
    /// A worker was faster at every try.
    #[error("the task changes hands faster than it can be closed")]
    Contended,
    /// A topic of the queue cannot be read or written: the action changed nothing, or its effect
    /// cannot be read back.
    #[error("cannot use the queue")]
    Transport(#[from] TransportError),
    /// The task of a dead letter cannot be submitted again.
    #[error("cannot replay the task")]
    Submit(#[from] SubmitError),
    /// The broker gave no receipt, or refused: the action may not be stored.
    #[error("the action has no receipt")]
    NoReceipt(#[source] PublishError),
}

impl ActionError {
    pub(super) const fn refused(refusal: ActionRefusal) -> Self {
        match refusal {
            ActionRefusal::Over(phase) => Self::Over(status(phase)),
            ActionRefusal::Stale(Epoch(current)) => Self::Stale { current },
            ActionRefusal::NotRunning => Self::NotRunning,
        }
    }
}

impl From<PublishFailure> for ActionError {
    fn from(failure: PublishFailure) -> Self {
        match failure {
            PublishFailure::NotSent(error) => Self::Transport(error),
            PublishFailure::Sent(error) => Self::NoReceipt(error),
        }
    }
}

const fn status(phase: Phase) -> TaskStatus {
    match phase {
        Phase::Completed => TaskStatus::Completed,
        Phase::Final => TaskStatus::Failed,
        Phase::Cancelled => TaskStatus::Cancelled,
        Phase::Expired => TaskStatus::Expired,
        Phase::Sealed | Phase::New | Phase::Running | Phase::Retry => TaskStatus::Ended,
    }
}
