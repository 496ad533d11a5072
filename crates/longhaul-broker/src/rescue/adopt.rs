//! Makes a data directory of files that were stored elsewhere.

use super::salvage::{self, Failed};
use super::{RescueError, RescueReport, check, open, reading, refused, unread};
use crate::log::{self, FileStorage, ReadOnlyStorage, Storage};
use crate::state::change::Numbers;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Numbers of ledgers and topics that are left out: the broker that wrote the files may have given
/// them to clients after the files were stored. Each topic takes a ledger at each start, and the
/// broker has at most 250,000 topics.
const LEDGERS_LEFT_OUT: u64 = 1 << 32;
const TOPICS_LEFT_OUT: u32 = 1 << 20;

/// Checks a directory whose files were stored while a broker wrote them, and sees to it that no
/// message gets an id that this broker may have given since. If the report names damage, nothing
/// was changed.
///
/// # Errors
/// See [`RescueError`]. Damage is not an error.
pub fn adopt(directory: &Path) -> Result<RescueReport, RescueError> {
    let report = check(directory)?;
    if !report.is_sound() {
        return Ok(report);
    }
    let (topic, ledger) = {
        let (storage, _lock) = open(directory)?;
        let read = reading::read(&storage).map_err(|source| refused(directory, source))?;
        read.state.next_numbers()
    };
    let storage: Arc<dyn Storage> = Arc::new(folders(directory)?);
    let numbers = Numbers {
        topic: topic.saturating_add(TOPICS_LEFT_OUT),
        ledger: ledger.saturating_add(LEDGERS_LEFT_OUT),
    };
    salvage::append(&storage, numbers.into()).map_err(|failed| match failed {
        Failed::Open(source) => refused(directory, source),
        Failed::Write(source) => RescueError::Write { path: directory.to_owned(), source },
    })?;
    Ok(report)
}

/// Makes the folders of a data directory in `new`, which must be empty or not exist.
///
/// # Errors
/// The operating system refuses, or the directory is not empty.
pub fn make_directory(new: &Path) -> Result<(), RescueError> {
    let io = |source| RescueError::Io { what: format!("make {}", new.display()), source };
    log::new_folder(new).map_err(io)?;
    if std::fs::read_dir(new).map_err(io)?.next().is_some() {
        return Err(RescueError::Exists { path: new.to_owned() });
    }
    folders(new).map(drop)
}

fn folders(directory: &Path) -> Result<FileStorage, RescueError> {
    let io = |source| RescueError::Io { what: format!("write {}", directory.display()), source };
    FileStorage::new(directory).map_err(io)
}

/// The segments that a directory's inventory lists; `None` without an inventory.
///
/// # Errors
/// The inventory cannot be read.
pub fn listed_segments(directory: &Path) -> Result<Option<BTreeSet<u32>>, RescueError> {
    let storage = ReadOnlyStorage::new(directory).map_err(|source| unread(directory, source))?;
    log::read_inventory(&storage).map_err(|source| refused(directory, source))
}

/// Writes the inventory of a directory. A start refuses the directory as long as one of these
/// segments is missing.
///
/// # Errors
/// The operating system refuses.
pub fn list_segments(directory: &Path, numbers: &[u32]) -> Result<(), RescueError> {
    let io = |source| RescueError::Io { what: format!("write {}", directory.display()), source };
    log::write_inventory(&folders(directory)?, numbers).map_err(io)
}

/// The paths of the compacted views that the log of a directory names, within the directory.
///
/// # Errors
/// See [`RescueError`].
pub fn named_views(directory: &Path) -> Result<Vec<String>, RescueError> {
    let (storage, _lock) = open(directory)?;
    let read = reading::read(&storage).map_err(|source| refused(directory, source))?;
    let views = read.state.topics().filter_map(|(_, topic)| topic.compacted.as_ref());
    Ok(views.map(|view| view.file.clone()).collect())
}
