//! Why a backup or a restore is not possible.

use jiff::Timestamp;
use longhaul_broker::rescue::{RescueError, UnknownFormat};
use std::io;
use std::path::PathBuf;

/// Why a backup or a restore is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The place is neither a directory nor a URL of a known kind.
    #[error("cannot use {url} for backups: {reason}. Use a directory, or s3://bucket/folder")]
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
    /// The broker removes segments before they are stored.
    #[error(
        "the broker removes segments of the log before the backup has stored them: the store is \
         slower than the writes"
    )]
    Behind,
    /// The data directory lacks segments that are not stored either.
    #[error(
        "segments {segments:?} of the log are missing in {}, and the backup has not stored them: \
         `longhaul broker check` tells what is lost", directory.display()
    )]
    Missing {
        /// The data directory.
        directory: PathBuf,
        /// The numbers of the segments.
        segments: Vec<u32>,
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
    #[error("the backup is incomplete or damaged: {}. {}", absent(.missing), advice(*.earlier))]
    Incomplete {
        /// The numbers of the segments. Empty if the beginning of the log is missing.
        missing: Vec<u32>,
        /// The latest earlier time to which it can be restored, in ms since the epoch.
        earlier: Option<u64>,
    },
    /// Another version has stored the object.
    #[error("cannot read {object} of the backup")]
    Format {
        /// The object.
        object: String,
        /// The cause.
        source: UnknownFormat,
    },
    /// The new directory exists and is not empty, or cannot be made.
    #[error(transparent)]
    New(RescueError),
    /// The data directory cannot be read or written.
    #[error(transparent)]
    Rescue(#[from] RescueError),
}

impl BackupError {
    /// Whether what is read of the data directory may differ from what was read before.
    pub(crate) const fn is_of_directory(&self) -> bool {
        !matches!(self, Self::Store { .. } | Self::Behind | Self::Missing { .. })
    }

    /// Whether the data directory can be read, and the store does not take what is there.
    pub(crate) const fn is_of_store(&self) -> bool {
        matches!(self, Self::Store { .. } | Self::Behind)
    }
}

fn absent(missing: &[u32]) -> String {
    if missing.is_empty() {
        return "its beginning is missing".to_owned();
    }
    format!("segments {missing:?} are missing")
}

fn advice(earlier: Option<u64>) -> String {
    let earlier = earlier.and_then(|at| Timestamp::from_millisecond(i64::try_from(at).ok()?).ok());
    earlier.map_or_else(
        || "It cannot be restored to an earlier time".to_owned(),
        |at| format!("Restore an earlier time: --at {at}"),
    )
}

fn when(at: Option<u64>) -> &'static str {
    if at.is_some() { " from before the time of --at" } else { "" }
}
