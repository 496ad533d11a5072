//! Files that are read again when they change: tokens and certificates.
//!
//! There is no notification: each use of the value checks the files, at most once a second. If a
//! changed file cannot be used, the last value stays in force, the log says so once for each reason,
//! and the next check reads the file again.

use crate::clock::{self, Stopwatch};
use longhaul_http::FileStamps;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// The minimum interval between checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A value that is read from files.
#[derive(Debug)]
pub(crate) struct Reloaded<T> {
    files: Vec<PathBuf>,
    value: RwLock<Arc<T>>,
    last: Mutex<LastCheck>,
}

#[derive(Debug)]
struct LastCheck {
    looked: Stopwatch,
    /// The stamps of the files that the value is from.
    stamps: FileStamps,
    /// Why the last read failed; empty if it succeeded.
    failure: String,
}

impl<T> Reloaded<T> {
    /// Reads the files for the first time.
    pub(crate) fn open<E>(
        files: Vec<PathBuf>,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<Self, E> {
        let (looked, stamps) = (clock::stopwatch(), FileStamps::of(&files));
        let last = Mutex::new(LastCheck { looked, stamps, failure: String::new() });
        Ok(Self { value: RwLock::new(Arc::new(read()?)), files, last })
    }

    /// The value; read again if a file has changed.
    pub(crate) fn get<E: Display>(&self, read: impl FnOnce() -> Result<T, E>) -> Arc<T> {
        // If the lock is taken, another caller is checking.
        if let Ok(mut last) = self.last.try_lock()
            && last.looked.read() >= LOOK_EVERY
        {
            last.looked = clock::stopwatch();
            self.check(&mut last, read);
        }
        Arc::clone(&self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn check<E: Display>(&self, last: &mut LastCheck, read: impl FnOnce() -> Result<T, E>) {
        let now = FileStamps::of(&self.files);
        if now == last.stamps {
            last.failure.clear();
            return;
        }
        match read() {
            Ok(value) => {
                *self.value.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                // A failed read leaves the stamps as they were, so that the next check reads again.
                (last.stamps, last.failure) = (now, String::new());
                tracing::info!(event = "file_reloaded", files = ?self.files, "file read again");
            }
            Err(error) => {
                let failure = error.to_string();
                if failure != last.failure {
                    tracing::error!(event = "file_not_reloaded", files = ?self.files, %error, "cannot read the file again; keeping the previous content");
                }
                last.failure = failure;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that could not be read once, for example for want of a file descriptor.
    #[test]
    fn a_failed_read_is_repeated_though_the_file_has_not_changed_since() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = || std::fs::read_to_string(file.path());
        std::fs::write(file.path(), "old").unwrap();
        let reloaded = Reloaded::open(vec![file.path().to_owned()], read).unwrap();
        let check = |read: &dyn Fn() -> Result<String, String>| {
            reloaded.check(&mut reloaded.last.lock().unwrap(), read);
            String::clone(&reloaded.value.read().unwrap())
        };
        std::fs::write(file.path(), "newer").unwrap();
        assert_eq!(check(&|| Err("too many open files".to_owned())), "old");
        let read = || read().map_err(|error| error.to_string());
        assert_eq!(check(&read), "newer");
        assert_eq!(check(&|| panic!("it has not changed")), "newer");
    }
}
