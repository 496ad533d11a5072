//! The error of everything that reads a queue.

use crate::topics::TopicNameError;
use crate::transport::TransportError;
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};

/// The error of a read: of a task, of all tasks of a queue, or of its logs.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The topic's name is not usable.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// A topic cannot be read. An outage of the broker is an error only for reads that end; views
    /// and watches wait for the broker.
    #[error("cannot read the queue")]
    Transport(#[from] TransportError),
    /// The task topic has partitions and no ledger: its topics were never set up. Following the
    /// ledger would create a topic without partitions, so nothing was tried.
    #[error("{0} has partitions, but no ledger with partitions: set the topics up first")]
    NoLedger(String),
    /// The log was deleted up to a later time, in ms since the epoch, or has no entry any more.
    #[error("the log does not go back so far: it begins at {begins_ms:?} ms since the epoch")]
    NotInLog {
        /// The time at which the first remaining entry was published.
        begins_ms: Option<u64>,
    },
    /// The message of the task cannot be read as a task, and why. A worker fails it for good.
    #[error("the message of the task cannot be read: {0}")]
    Undecodable(String),
}

classified!(ReadError);

impl ReadError {
    pub(super) const fn class(&self) -> Class {
        match self {
            Self::Topic(error) => error.class(),
            Self::Transport(error) => error.kind.class(),
            Self::NoLedger(_) => (ErrorKind::NotSetUp, "queue_not_set_up"),
            Self::NotInLog { .. } => (ErrorKind::Gone, "gone"),
            Self::Undecodable(_) => (ErrorKind::Unreadable, "task_unreadable"),
        }
    }
}
