//! Moves a queue to another cluster, or from the embedded broker to a cluster, in three steps: read
//! its content ([`Queue::export`]), write it to the target ([`Queue::import`]), and close it at the
//! source ([`Queue::close_moved`]).
//!
//! A task's id is that of its message, so a copy has another id. Every task that the source knows,
//! finished or not, appears exactly once at the target:
//! | of the task | at the target | by |
//! |---|---|---|
//! | message | a message with the same payload and properties; of one that is over an empty one, which is held back and acknowledged at once | its idempotency key or, if it has none, `moved/<source>/<old id>`: however often it is written, one task comes of it. With a dedupe key it is written once: the next import [finds](unmarked) what an interrupted one has written |
//! | attempts, checkpoint, due time, what it waits for | the ledger | a claim of the next attempt, the checkpoint, and its RELEASED, which gives that attempt back |
//! | end | the ledger | a closing claim, or a claim and its COMPLETED |
//! | entry on the metadata topic | the same under the new id | |
//! | dead letter | the same under the new id | |
//! | old id | on the register: `moved/<source>/<old id>` with the new one | a [mark](marks), written last, so that whoever begins again knows what is done; with a dedupe key one without the new id is written first |
//!
//! Both queues are paused during the move: the source, so that no copied task starts there, and the
//! target, so that no task starts before its past is written. The ledger of the source decides that
//! a task does not run twice: before the target resumes, the task is closed there, if it is still
//! in the epoch that was copied. A task may have changed since, because a worker read the pause
//! late or the queue was resumed between two runs. Such a task is left alone and copied again, and
//! the target waits. An interrupted step is repeated as a whole; each entry may be written twice,
//! or is recognized by the mark.

mod closing;
mod copy;
mod exporting;
mod file;
mod importing;
mod ledgers;
mod marks;
mod past;
mod reading;
mod record;
mod running;
#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;
mod unmarked;

pub use closing::Closed;
pub use exporting::{Export, Exported};
pub use importing::{Imported, Unmoved};
pub use record::ExportRecord;

#[cfg(doc)]
use super::Queue;
use super::publishers::PublishFailure;
use super::submit::SubmitError;
use super::tasks::{ViewScope, partition_indices, partitions_of};
use super::{ActionError, Client, ReadError, partition};
use crate::topics::{Priority, TopicNameError, TopicNames};
use crate::transport::TransportError;
use ledgers::Ledger;
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use std::io;
use std::time::Duration;

/// The operator action of entries that close tasks at the source.
const MOVE: &str = "move";

/// The operator action of entries at the target; it differs, so that copies can be moved on.
const IMPORT: &str = "import";

/// The number of tasks closed, or taken from their workers, together.
const CLOSED_AT_ONCE: usize = 256;

/// The time after which all workers have read the pause; it takes them milliseconds. If a slower
/// worker starts a copy before its past is written, the import fails, and the next import handles
/// the copy as it is then.
const PAUSED_AFTER: Duration = Duration::from_millis(500);

/// Why a queue was not moved completely. Finished steps are kept; repeating the call continues.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The topic's name is not usable.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The task topic has partitions that the ledger does not have.
    #[error(transparent)]
    Partitions(ReadError),
    /// A broker cannot be reached, or denies access.
    #[error("a broker cannot be used")]
    Transport(#[from] TransportError),
    /// The file of the export cannot be read or written.
    #[error("the export cannot be read or written")]
    File(#[from] io::Error),
    /// The file is not an export, or was written by a newer version.
    #[error("not an export that this version can read: {0}")]
    Form(String),
    /// Settings or schedules cannot be read or written, or the copy of a task that has ended at the
    /// source cannot be deleted.
    #[error("a task, the settings or the schedules of the queue cannot be read or changed")]
    Action(#[from] ActionError),
    /// A task cannot be submitted at the target.
    #[error("task {task} cannot be submitted")]
    Submit {
        /// Its id at the source.
        task: String,
        /// Why it cannot be submitted.
        #[source]
        error: SubmitError,
    },
    /// An entry has no receipt.
    #[error("an entry was not stored: {0}")]
    NotStored(String),
    /// A task was started while its past was written, or claimed while it was closed.
    #[error("{0}")]
    Busy(String),
}

classified!(MoveError);

impl MoveError {
    const fn class(&self) -> Class {
        match self {
            Self::Topic(error) => error.class(),
            Self::Partitions(error) => error.class(),
            Self::Transport(error) => error.kind.class(),
            Self::File(_) => (ErrorKind::Internal, "file_unusable"),
            Self::Form(_) => (ErrorKind::Unreadable, "export_unreadable"),
            Self::Action(error) => error.class(),
            Self::Submit { error, .. } => error.class(),
            Self::NotStored(_) => (ErrorKind::Unknown, "outcome_unknown"),
            Self::Busy(_) => (ErrorKind::Busy, "contended"),
        }
    }
}

impl From<ReadError> for MoveError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Topic(error) => Self::Topic(error),
            ReadError::Transport(error) => Self::Transport(error),
            ReadError::NoLedger(_) | ReadError::NotInLog { .. } | ReadError::Undecodable(_) => {
                Self::Partitions(error)
            }
        }
    }
}

impl From<PublishFailure> for MoveError {
    fn from(failure: PublishFailure) -> Self {
        match failure {
            PublishFailure::NotSent(error) => Self::Transport(error),
            PublishFailure::Sent(error) => Self::NotStored(error.to_string()),
        }
    }
}

/// A level of a queue: its topics, and the ledgers of its partitions.
struct OpenLevel {
    level: Priority,
    names: TopicNames,
    ledgers: Vec<Ledger>,
}

impl Client {
    /// Opens the ledgers of the queue's existing levels.
    async fn open_levels(&self, queue: &TopicNames) -> Result<Vec<OpenLevel>, MoveError> {
        let mut open = Vec::new();
        for level in Priority::ALL {
            let names = self.level_names(queue, level)?;
            if level != Priority::Normal && !self.inner.transport.exists(&names.task).await? {
                continue;
            }
            let mut ledgers = Vec::new();
            let count = partitions_of(&self.inner.transport, &names, ViewScope::All).await?;
            for index in partition_indices(count) {
                ledgers.push(Ledger::open(self, partition(names.ledger.clone(), index)).await?);
            }
            open.push(OpenLevel { level, names, ledgers });
        }
        Ok(open)
    }
}
