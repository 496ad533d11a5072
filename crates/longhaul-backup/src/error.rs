//! Why a backup or a restore is not possible.

use longhaul_broker::rescue::RescueError;
use std::io;
use std::path::PathBuf;

/// Why a backup or a restore is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The place is neither a directory nor a URL of a known kind.
    #[error("{url} cannot hold a backup: {reason}. Give a directory, or s3://bucket/folder")]
    Place {
        /// The place as it was given.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The store refused.
    #[error("could not {what}: {reason}")]
    Store {
        /// The action, with the object.
        what: String,
        /// What the store answered.
        reason: String,
    },
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// The action, with the path.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The store has no backup, or none of that time.
    #[error("{place} has no backup{}", when(*.at))]
    Nothing {
        /// The place.
        place: String,
        /// The wanted time, in ms since the epoch.
        at: Option<u64>,
    },
    /// Segments are missing without which messages would be lost.
    #[error(
        "the backup has not all segments of the log that its checkpoint needs: {missing:?} are missing. Restore an earlier time with --at"
    )]
    Incomplete {
        /// Their numbers.
        missing: Vec<u32>,
    },
    /// The data directory cannot be read, or not be made.
    #[error(transparent)]
    Rescue(#[from] RescueError),
    /// The restored directory is damaged.
    #[error(
        "the restored directory {} is damaged: restore an earlier time with --at into another directory, or run longhaul broker salvage on it",
        path.display()
    )]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What `longhaul broker check` says.
        report: String,
    },
}

fn when(at: Option<u64>) -> &'static str {
    if at.is_some() { " that is as old as --at says" } else { "" }
}
