//! Errors of the log, each with the place and the remedy.

use rustix::io::Errno;
use std::io;

/// Why a record cannot be appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The body is above the limit.
    #[error(
        "a record of {size} bytes is above the limit of {limit}: send less at once or raise the limit"
    )]
    TooLarge {
        /// Size of the body in bytes.
        size: usize,
        /// Limit in bytes.
        limit: u32,
    },
}

/// Why a group or a checkpoint was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The next segment cannot be created at the moment: the disk is full, or the process has no
    /// file descriptor. Nothing is lost: submit the same group again when there is room.
    #[error(
        "cannot create {file}: {reason}. Free space, or file descriptors, then submit the same group again"
    )]
    Full {
        /// The file that could not be created.
        file: String,
        /// The error of the operating system.
        reason: String,
    },
    /// A write or a sync failed, now or earlier. The content on disk is known only after a restart.
    #[error("the log is closed for writes until the next start, because {reason}")]
    Poisoned {
        /// The failure.
        reason: String,
    },
    /// A checkpoint could not be written. The previous one remains valid.
    #[error("could not write {file}: {reason}; the earlier checkpoint stays in use")]
    Checkpoint {
        /// The file.
        file: String,
        /// The error of the operating system.
        reason: String,
    },
    /// Another checkpoint is in progress.
    #[error("another checkpoint is under way")]
    Busy,
    /// The log has been closed.
    #[error("the log has been closed")]
    Closed,
}

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogReadError {
    /// The segment does not exist, or no longer.
    #[error("segment {segment} is not in the log: it has been removed or was never written")]
    Gone {
        /// Number of the segment.
        segment: u32,
    },
    /// The stored bytes are not those that were written.
    #[error("{file} is damaged at offset {offset}: check the disk")]
    Damaged {
        /// The file.
        file: String,
        /// Offset in the file.
        offset: u64,
    },
    /// The operating system refused.
    #[error("could not read {file} at offset {offset}: {reason}")]
    Io {
        /// The file.
        file: String,
        /// Offset in the file.
        offset: u64,
        /// The error of the operating system.
        reason: String,
    },
}

/// Why a log cannot be opened. Nothing has been changed, unless the error is [`OpenError::Io`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process holds the directory.
    #[error("{directory} is in use by {}: stop it first, or choose another directory", holder(*pid))]
    Locked {
        /// The data directory.
        directory: String,
        /// The process id of the holder, if known.
        pid: Option<u32>,
    },
    /// Confirmed bytes are lost.
    #[error(
        "{file} is damaged at offset {offset}: {what}. Nothing was changed. Restore the data directory from a copy, or salvage what can be read"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Offset in the file.
        offset: u64,
        /// The damage.
        what: String,
    },
    /// A segment is missing between others, or after the checkpoint.
    #[error(
        "{file} is missing, but the log needs it. Nothing was changed. Restore the data directory from a copy, or salvage what can be read"
    )]
    Missing {
        /// The file.
        file: String,
    },
    /// A segment is missing that only the inventory lists. The log is complete without it, except
    /// for its entries.
    #[error(
        "{file} is missing, and the broker has not removed it. Nothing was changed. Put it back, or restore the data directory from a copy, or salvage what can be read. To start without its data, delete {inventory}"
    )]
    NotRemoved {
        /// The file.
        file: String,
        /// The inventory.
        inventory: String,
    },
    /// Another version wrote the file.
    #[error(
        "{file} has format version {version}, which this broker does not read: use the version that wrote it, or a later one"
    )]
    Version {
        /// The file.
        file: String,
        /// The version in the file.
        version: u32,
    },
    /// The options contradict each other.
    #[error("the options of the log are wrong: {0}")]
    Options(&'static str),
    /// The caller could not apply a replayed item.
    #[error("{file} at offset {offset} cannot be applied: {reason}")]
    Apply {
        /// The file.
        file: String,
        /// Offset in the file.
        offset: u64,
        /// The caller's error.
        reason: String,
    },
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// The action, with the path.
        what: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Why a compacted file cannot be written or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactedError {
    /// The entries are too many or too large for one file.
    #[error("{file} would be above the limit of a compacted file")]
    TooLarge {
        /// The file.
        file: String,
    },
    /// The file was not completed by a writer, or was changed since.
    #[error("{file} is damaged at offset {offset}: {what}")]
    Damaged {
        /// The file.
        file: String,
        /// Offset in the file.
        offset: u64,
        /// The damage.
        what: &'static str,
    },
    /// Another version wrote the file.
    #[error(
        "{file} has format version {version}, which this broker does not read: use the version that wrote it, or a later one"
    )]
    Version {
        /// The file.
        file: String,
        /// The version in the file.
        version: u32,
    },
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// The action, with the path.
        what: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// A file has a format that this version does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it has format version {0}, which this version of longhaul does not read: use the version that wrote it, or a later one"
)]
pub struct UnknownFormat(pub u32);

/// Why bytes are not the header of a segment, or not an inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormatFault {
    /// They are damaged, or something else.
    Damaged,
    /// A later version of the broker wrote it.
    Version(u32),
}

impl FormatFault {
    /// Takes damaged bytes for nothing.
    pub(super) fn unless_damaged<T>(decoded: Result<T, Self>) -> Result<Option<T>, UnknownFormat> {
        match decoded {
            Ok(decoded) => Ok(Some(decoded)),
            Err(Self::Damaged) => Ok(None),
            Err(Self::Version(version)) => Err(UnknownFormat(version)),
        }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// The result for a file that may be missing: `None` if it is.
pub(crate) fn unless_missing<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

/// Whether the disk, or the owner's quota, is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a later try may succeed: there was no room, no file descriptor or no memory.
pub(super) fn is_passing(error: &io::Error) -> bool {
    let lacking =
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(|errno| Some(errno.raw_os_error()));
    let is_lacking = lacking.contains(&error.raw_os_error());
    is_full(error) || is_lacking
}
