//! Moves a queue to another cluster, or from the embedded broker to one: what it holds is read
//! ([`Queue::export`]), written to another place ([`Queue::import`]), and closed where it was
//! ([`Queue::close_moved`]).
//!
//! A task's id is that of its message, so a copy has another one. Of each task that is known at the
//! source, whether it is over or not, one task comes at the target:
//!
//! | of the task | at the target | by |
//! |---|---|---|
//! | message | a message with the same payload and properties; of one that is over an empty one, which is held back and acknowledged at once | its idempotency key or, if it has none, `moved/<source>/<old id>`: however often it is written, one task comes of it |
//! | attempts, checkpoint, due time, what it waits for | the ledger | a claim of the next attempt, the checkpoint, and its RELEASED, which gives that attempt back |
//! | end | the ledger | a closing claim, or a claim and its COMPLETED |
//! | entry on the metadata topic | the same under the new id | |
//! | dead letter | the same under the new id | |
//! | old id | on the register: `moved/<source>/<old id>` with the new one | a [mark](marks), written last, so that whoever begins again knows what is done |
//!
//! Both queues are paused meanwhile: the source, so that nothing begins which is copied, and the
//! target, so that nothing begins before its past is written. What decides that a task is not run
//! twice is the ledger of the source: there it is closed, before the target goes on, if it is still
//! in the epoch that was copied. One that has gone on since, because a worker read the pause late
//! or somebody resumed the queue between two runs, is left alone and copied again, and the target
//! waits. A step that was interrupted is done again as a whole; each entry is one that may be
//! written twice, or is known by the mark.

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

pub use closing::Closed;
pub use exporting::{Export, Exported};
pub use importing::{Imported, Unmoved};
pub use record::ExportRecord;

#[cfg(doc)]
use super::Queue;
use super::documents::DocumentError;
use super::letters::DeadLetterError;
use super::operator::OperatorError;
use super::publishers::PublishFailure;
use super::submit::SubmitError;
use super::tasks::{TaskViewError, ViewScope, partition_indices, partitions_of};
use super::{Client, partition};
use crate::topics::{Priority, TopicNameError, TopicNames};
use crate::transport::TransportError;
use ledgers::Ledger;
use record::ExportLevel;
use std::io;
use std::time::Duration;

/// What is done where a task was, in the words of entries by operators.
const MOVE: &str = "move";

/// What is done where it goes: it may be moved on from there.
const IMPORT: &str = "import";

/// Tasks that are closed, or taken from their workers, at once.
const CLOSED_AT_ONCE: usize = 256;

/// Within this time workers have read that their queue is paused, which takes them milliseconds.
/// One that has not, and begins a copy before its past is written, makes the import fail, and the
/// next one takes the copy as it is then.
const PAUSED_AFTER: Duration = Duration::from_millis(500);

/// Why a queue was not moved as a whole. What was done stays done, and the same once more goes on
/// with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The topic's name is not usable.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The task topic has partitions that the ledger has not.
    #[error(transparent)]
    Partitions(TaskViewError),
    /// A broker cannot be reached, or keeps us out.
    #[error("a broker cannot be used")]
    Transport(#[from] TransportError),
    /// The file of the export cannot be read or written.
    #[error("the export cannot be read or written")]
    File(#[from] io::Error),
    /// The export is not one, or was written by a newer version.
    #[error("not an export that this version can read: {0}")]
    Form(String),
    /// Settings or schedules cannot be read or written.
    #[error("settings or schedules cannot be read or written")]
    Document(#[from] DocumentError),
    /// Dead letters cannot be read.
    #[error("dead letters cannot be read")]
    Letters(#[from] DeadLetterError),
    /// A task cannot be submitted at the target.
    #[error("task {task} cannot be submitted")]
    Submit {
        /// Its id at the source.
        task: String,
        /// Why not.
        #[source]
        error: SubmitError,
    },
    /// A copy cannot be deleted whose task has ended at the source.
    #[error("a copy cannot be deleted")]
    Delete(#[from] OperatorError),
    /// An entry has no receipt.
    #[error("an entry was not stored: {0}")]
    NotStored(String),
    /// Somebody has begun a task while its past was written, or has taken a task while it was
    /// closed.
    #[error("{0}")]
    Busy(String),
}

impl From<TaskViewError> for MoveError {
    fn from(error: TaskViewError) -> Self {
        match error {
            TaskViewError::Topic(error) => Self::Topic(error),
            TaskViewError::Transport(error) => Self::Transport(error),
            error @ TaskViewError::NoLedger(_) => Self::Partitions(error),
        }
    }
}

impl MoveError {
    fn of_publish(failure: PublishFailure) -> Self {
        match failure {
            PublishFailure::NotSent(error) => Self::Transport(error),
            PublishFailure::Sent(error) => Self::NotStored(error.to_string()),
        }
    }
}

/// A level of a queue: its topics, and the ledgers of its partitions.
struct OpenLevel {
    level: ExportLevel,
    names: TopicNames,
    ledgers: Vec<Ledger>,
}

impl Client {
    /// Opens the ledgers of the levels that a queue has.
    async fn open_levels(&self, queue: &TopicNames) -> Result<Vec<OpenLevel>, MoveError> {
        let mut open = Vec::new();
        for level in ExportLevel::ALL {
            let priority = level.priority();
            let names = self.level_names(queue, priority)?;
            if priority != Priority::Normal && !self.inner.transport.exists(&names.task).await? {
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
