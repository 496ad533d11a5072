//! Files that are read again when they change: tokens and certificates.
//!
//! Nobody is told by the system: whoever uses the value asks at most once in a second whether a
//! file is another one. A file that cannot be used leaves the last value in its place, and is told
//! in the log once.

use crate::clock::{self, Stopwatch};
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// So often the files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A value that is read from files.
#[derive(Debug)]
pub(crate) struct Reloaded<T> {
    files: Vec<PathBuf>,
    value: RwLock<Arc<T>>,
    seen: Mutex<FileStamps>,
}

#[derive(Debug)]
struct FileStamps {
    looked: Stopwatch,
    stamps: Vec<Option<FileStamp>>,
}

/// What another content of a file changes.
type FileStamp = (Option<SystemTime>, u64);

impl<T> Reloaded<T> {
    /// Reads the files for the first time.
    pub(crate) fn open<E>(
        files: Vec<PathBuf>,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<Self, E> {
        // Looked at before they are read: what changes in between is read again.
        let seen = Mutex::new(FileStamps { looked: clock::stopwatch(), stamps: stamps(&files) });
        Ok(Self { value: RwLock::new(Arc::new(read()?)), files, seen })
    }

    /// The value; read again if a file has changed.
    pub(crate) fn get<E: Display>(&self, read: impl FnOnce() -> Result<T, E>) -> Arc<T> {
        if self.has_changed() {
            match read() {
                Ok(value) => {
                    *self.value.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                    tracing::info!(event = "file_reloaded", files = ?self.files, "read again");
                }
                Err(error) => {
                    tracing::error!(event = "file_not_reloaded", files = ?self.files, %error, "what was read before stays in force");
                }
            }
        }
        Arc::clone(&self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_changed(&self) -> bool {
        // Somebody else looks meanwhile.
        let Ok(mut seen) = self.seen.try_lock() else { return false };
        if seen.looked.read() < LOOK_EVERY {
            return false;
        }
        seen.looked = clock::stopwatch();
        let now = stamps(&self.files);
        let changed = now != seen.stamps;
        seen.stamps = now;
        changed
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<FileStamp>> {
    let stamp = |file: &PathBuf| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok(), metadata.len()))
    };
    files.iter().map(stamp).collect()
}
