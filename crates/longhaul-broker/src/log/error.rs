//! What can go wrong, each with the place and with what to do about it.

use rustix::io::Errno;
use std::io;

/// Why a record cannot be appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Its body is above the limit.
    #[error(
        "a record of {size} bytes is above the limit of {limit}: send less at once or raise the limit"
    )]
    TooLarge {
        /// Bytes of the body.
        size: usize,
        /// What is allowed.
        limit: u32,
    },
}

/// Why something was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The next segment cannot be made at the moment: the disk has no room, or the process no file
    /// descriptor. Nothing is lost: submit the same group again when there is.
    #[error(
        "cannot make {file}: {reason}. Free space, or file descriptors, then submit the same group again"
    )]
    Full {
        /// The file that could not be made.
        file: String,
        /// What the operating system said.
        reason: String,
    },
    /// A write or a sync failed, now or earlier. What the disk holds is known only after a restart.
    #[error("the log is closed for writes until the next start, because {reason}")]
    Poisoned {
        /// What failed.
        reason: String,
    },
    /// A checkpoint could not be written. The one before it still counts.
    #[error("could not write {file}: {reason}; the earlier checkpoint still counts")]
    Checkpoint {
        /// The file.
        file: String,
        /// What the operating system said.
        reason: String,
    },
    /// Another checkpoint is under way.
    #[error("another checkpoint is under way")]
    Busy,
    /// The log has been closed.
    #[error("the log has been closed")]
    Closed,
}

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The segment is not, or no longer, there.
    #[error("segment {segment} is not in the log: it has been removed or was never written")]
    Gone {
        /// Its number.
        segment: u32,
    },
    /// What stands there is not what was written.
    #[error("{file} is damaged at offset {offset}: check the disk")]
    Damaged {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
    },
    /// The operating system refused.
    #[error("could not read {file} at offset {offset}: {reason}")]
    Io {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What the operating system said.
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
        /// The process that holds it, if it said so.
        pid: Option<u32>,
    },
    /// Bytes that were confirmed are not there any more.
    #[error(
        "{file} is damaged at offset {offset}: {what}. Nothing was changed. Restore the data directory from a copy, or salvage what can be read"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A segment is missing between others, or behind the checkpoint.
    #[error(
        "{file} is missing, but the log needs it. Nothing was changed. Restore the data directory from a copy, or salvage what can be read"
    )]
    Missing {
        /// The file.
        file: String,
    },
    /// A segment is missing that only the inventory names. The log is whole without it, but for
    /// what it held.
    #[error(
        "{file} is missing, and the broker has not removed it. Put it back, or restore the data directory from a copy, or salvage what can be read. To go on without what it held, delete {inventory}. Nothing was changed"
    )]
    NotRemoved {
        /// The file.
        file: String,
        /// The file that names it.
        inventory: String,
    },
    /// A later version wrote the file.
    #[error(
        "{file} has format version {version}, which this broker does not know: use a later broker"
    )]
    Version {
        /// The file.
        file: String,
        /// What it says.
        version: u32,
    },
    /// The options contradict each other.
    #[error("the options of the log are wrong: {0}")]
    Options(&'static str),
    /// The caller could not apply what was replayed.
    #[error("{file} at offset {offset} cannot be applied: {reason}")]
    Apply {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What the caller said.
        reason: String,
    },
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// What the operating system said.
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
    /// It is not what a writer finished.
    #[error("{file} is damaged at offset {offset}: {what}")]
    Damaged {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A later version wrote it.
    #[error(
        "{file} has format version {version}, which this broker does not know: use a later broker"
    )]
    Version {
        /// The file.
        file: String,
        /// What it says.
        version: u32,
    },
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Whether the disk, or the owner's share of it, has no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether it may go well a little later: there was no room, or no file descriptor or no memory for
/// what was to be opened.
pub(super) fn is_passing(error: &io::Error) -> bool {
    let lacking =
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(|errno| Some(errno.raw_os_error()));
    let is_lacking = lacking.contains(&error.raw_os_error());
    is_full(error) || is_lacking
}
