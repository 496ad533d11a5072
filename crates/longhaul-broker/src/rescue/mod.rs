//! Checks and repairs data directories.
//!
//! [`check()`] reads everything and reports the damage and its consequences. [`salvage()`] creates
//! a new directory from the readable data. [`scrub()`] only tells which files are damaged. None
//! changes what it reads.

mod adopt;
mod follow;
mod linked;
mod reading;
mod report;
mod salvage;
mod scrub;
mod views;

use crate::log::{
    INVENTORY, LockError, OpenError, ReadOnlyStorage, Storage, StorageLock, WriteError, new_folder,
    segment_numbers,
};
use crate::state::BrokerState;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::log::{
    SegmentFollower, SegmentLink, SegmentPiece, UnknownFormat, checkpoint_segment,
    encode_inventory, listed_segments, segment_link, segment_name,
};
pub use adopt::{adopt, begin_restore, list_segments, named_views, rebuild_view};
pub use follow::{follow, inventory, missing_segments, segments};
pub(crate) use linked::remove_stale;
pub use report::RescueReport;
pub use salvage::salvage;
pub use scrub::scrub;

/// Why a data directory cannot be checked, salvaged or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RescueError {
    /// A broker uses the directory.
    #[error("a broker uses {} ({}): stop it first", path.display(), holder(*pid))]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// Process id of the broker, if known.
        pid: Option<u32>,
    },
    /// The directory has no log.
    #[error("{} is not a broker's data directory: it has no log and no checkpoint", path.display())]
    NoLog {
        /// The directory.
        path: PathBuf,
    },
    /// A restore into the directory has not ended.
    #[error("a restore into {} has not ended: delete it, and restore again", path.display())]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// The new directory would be inside the directory that it is made of.
    #[error("{} is inside {}, which must not be changed: choose another directory", new.display(), path.display())]
    Within {
        /// The data directory, or the store of the backup.
        path: PathBuf,
        /// The new directory.
        new: PathBuf,
    },
    /// The new directory exists and is not empty.
    #[error("{} already exists and is not empty: choose another directory", path.display())]
    Exists {
        /// The new directory.
        path: PathBuf,
    },
    /// A later version has written the directory, or the operating system refused.
    #[error("cannot read {}", path.display())]
    Read {
        /// The data directory.
        path: PathBuf,
        /// The cause.
        source: OpenError,
    },
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// The action, with the path.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The new directory could not be written.
    #[error("could not write {}", path.display())]
    Write {
        /// The new directory.
        path: PathBuf,
        /// The cause.
        source: WriteError,
    },
    /// A compacted view could not be written.
    #[error("could not write the compacted view of {topic}: {reason}")]
    View {
        /// The topic of the view.
        topic: String,
        /// The reason.
        reason: String,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "its process is not known".to_owned(), |pid| format!("process {pid}"))
}

/// Reads a data directory, and reports its damage. Hard links in a folder of the directory keep what
/// is read, so a broker may use the directory before and meanwhile. Without permission to write, and
/// on a file system without links, no broker may.
///
/// # Errors
/// See [`RescueError`]. Damage is not an error.
pub fn check(directory: &Path) -> Result<RescueReport, RescueError> {
    let opened = match open(directory) {
        Err(RescueError::InUse { .. }) => return linked::check_used(directory),
        opened => opened?,
    };
    match linked::link_unused(directory) {
        Ok(folder) => {
            drop(opened);
            check_links(directory, folder.path())
        }
        Err(_) => check_opened(directory, opened, |_| ()).map(|(report, ())| report),
    }
}

/// Checks links, and reports on the directory that they were made of.
fn check_links(directory: &Path, links: &Path) -> Result<RescueReport, RescueError> {
    let (mut report, ()) = check_opened(directory, open(links)?, |_| ())?;
    report.rename(links, directory);
    Ok(report)
}

/// Reads an opened directory, and reports its damage and something of its state.
fn check_opened<T>(
    directory: &Path,
    (storage, _lock): LockedDirectory,
    about: impl FnOnce(&BrokerState) -> T,
) -> Result<(RescueReport, T), RescueError> {
    let read = reading::read(&storage).map_err(|source| refused(directory, source))?;
    let views = views::check(&read.state, &*storage);
    let views = views.map_err(|source| refused(directory, source))?;
    let mut report = RescueReport::new(directory, &read, &views);
    let about = about(&read.state);
    if report.is_sound() {
        drop(read);
        // The check of a start decides.
        report.refusal = reading::refusal(&*storage);
    }
    Ok((report, about))
}

fn refused(directory: &Path, source: OpenError) -> RescueError {
    RescueError::Read { path: directory.to_owned(), source }
}

/// Creates a directory, or accepts an empty one.
fn make_folder(new: &Path) -> Result<(), RescueError> {
    let io = |source| RescueError::Io { what: format!("make {}", new.display()), source };
    new_folder(new).map_err(io)?;
    if std::fs::read_dir(new).map_err(io)?.next().is_some() {
        return Err(RescueError::Exists { path: new.to_owned() });
    }
    Ok(())
}

/// Creates a directory, or accepts an empty one. It must not be inside the other one.
fn make_outside(directory: &Path, new: &Path) -> Result<(), RescueError> {
    let io = |source| RescueError::Io { what: format!("make {}", new.display()), source };
    let path = directory.canonicalize().map_err(|source| unread(directory, source))?;
    // The new directory may not exist yet: its nearest existing ancestor tells where it will be.
    let absolute = std::path::absolute(new).map_err(io)?;
    let mut existing = absolute.ancestors().filter_map(|part| part.canonicalize().ok());
    if existing.next().is_some_and(|part| part.starts_with(&path)) {
        return Err(RescueError::Within { path: directory.to_owned(), new: new.to_owned() });
    }
    make_folder(new)
}

/// A data directory that is read, and the lock that keeps brokers away meanwhile.
type LockedDirectory = (Arc<dyn Storage>, Box<dyn StorageLock>);

/// A file that a directory has while it is restored: nobody may use the directory meanwhile.
pub(crate) const UNFINISHED: &str = "restoring";

/// Files besides the folders of a log.
const FILES: [&str; 3] = ["confirmed", "checkpoint", INVENTORY];

/// Refuses a directory that no broker has ever used, or that has no files of a log left.
fn require_log(directory: &Path, storage: &dyn Storage) -> Result<(), RescueError> {
    let numbers = segment_numbers(storage).map_err(|source| unread(directory, source))?;
    let is_there = |name| directory.join(name).is_file();
    if numbers.is_empty() && !FILES.into_iter().any(is_there) {
        return Err(RescueError::NoLog { path: directory.to_owned() });
    }
    Ok(())
}

fn unread(directory: &Path, source: io::Error) -> RescueError {
    RescueError::Io { what: format!("read {}", directory.display()), source }
}

/// Opens a directory for reading, and keeps brokers away meanwhile.
fn open(directory: &Path) -> Result<LockedDirectory, RescueError> {
    let opened = open_any(directory)?;
    if opened.0.open(UNFINISHED).is_ok() {
        return Err(RescueError::Unfinished { path: directory.to_owned() });
    }
    Ok(opened)
}

/// As [`open`], also while the directory is restored.
fn open_any(directory: &Path) -> Result<LockedDirectory, RescueError> {
    let io = |source| unread(directory, source);
    let storage = ReadOnlyStorage::new(directory).map_err(io)?;
    require_log(directory, &storage)?;
    let lock = storage.lock().map_err(|error| match error {
        LockError::Held(pid) => RescueError::InUse { path: directory.to_owned(), pid },
        LockError::Io(source) => io(source),
    })?;
    Ok((Arc::new(storage), lock))
}
