//! Files that are read again when they change: tokens and certificates.
//!
//! There is no notification: each use of the value checks the files, at most once a second. If a
//! changed file cannot be used, the last value stays, and the log says so once.

use crate::clock::{self, Stopwatch};
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// The minimum interval between checks.
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

/// The properties by which a changed file is detected.
type FileStamp = (Option<SystemTime>, u64);

impl<T> Reloaded<T> {
    /// Reads the files for the first time.
    pub(crate) fn open<E>(
        files: Vec<PathBuf>,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<Self, E> {
        // Stat the files before reading them: a change in between is then read again.
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
        // Another caller is checking.
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
