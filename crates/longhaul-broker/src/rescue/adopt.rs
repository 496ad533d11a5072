//! Makes a data directory of files that were stored elsewhere.

use super::salvage::{self, Failed};
use super::{
    RescueError, RescueReport, UNFINISHED, check_opened, make_folder, make_outside, open_any,
    reading, refused,
};
use crate::log::{self, FileStorage, Storage};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes an empty directory, or accepts one, that nobody may use before [`adopt`] has ended.
///
/// # Errors
/// The operating system refuses, or the directory is not empty, or inside the `store`.
pub fn begin_restore(new: &Path, store: Option<&Path>) -> Result<(), RescueError> {
    let io = |source| RescueError::Io { what: format!("make {}", new.display()), source };
    match store {
        Some(store) => make_outside(store, new)?,
        None => make_folder(new)?,
    }
    log::new_file(&new.join(UNFINISHED)).and_then(|file| file.sync_all()).map_err(io)?;
    folders(new)?.sync_dir("").map_err(io)
}

/// Sees to it that no message gets an id that the broker may have given since the files of this
/// directory were stored, and checks it. If the report names damage, the directory is still one
/// that nobody may use. `cut_off` is the place at which the records of the newest segment end before
/// its bytes do: a start takes that for the end of the log.
///
/// # Errors
/// See [`RescueError`]. Damage is not an error.
pub fn adopt(
    directory: &Path,
    cut_off: Option<(PathBuf, u64)>,
) -> Result<RescueReport, RescueError> {
    let io = |source| RescueError::Io { what: format!("write {}", directory.display()), source };
    let (mut report, numbers) =
        check_opened(directory, open_any(directory)?, reading::numbers_after)?;
    report.cut_off(cut_off);
    if !report.is_sound() {
        return Ok(report);
    }
    let storage: Arc<dyn Storage> = Arc::new(folders(directory)?);
    salvage::append(&storage, numbers.into()).map_err(|failed| match failed {
        Failed::Open(source) => refused(directory, source),
        Failed::Write(source) => RescueError::Write { path: directory.to_owned(), source },
    })?;
    for folder in ["log", "compact", ""] {
        storage.sync_dir(folder).map_err(io)?;
    }
    storage.remove(UNFINISHED).and_then(|()| storage.sync_dir("")).map_err(io)?;
    Ok(report)
}

fn folders(directory: &Path) -> Result<FileStorage, RescueError> {
    let io = |source| RescueError::Io { what: format!("write {}", directory.display()), source };
    FileStorage::new(directory).map_err(io)
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
    let (storage, _lock) = open_any(directory)?;
    let read = reading::read(&storage).map_err(|source| refused(directory, source))?;
    let views = read.state.topics().filter_map(|(_, topic)| topic.compacted.as_ref());
    Ok(views.map(|view| view.file.clone()).collect())
}
