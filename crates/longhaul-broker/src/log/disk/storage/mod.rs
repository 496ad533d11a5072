//! The interface between the log and a disk. A simulated disk can implement it.
//!
//! Names are paths within the data directory, as `log/0000000001.seg`.

mod directory;
mod read_only;
#[cfg(any(test, feature = "testing"))]
mod simulated;

pub use directory::{FileStorage, new_file, new_folder};
pub use read_only::ReadOnlyStorage;
#[cfg(any(test, feature = "testing"))]
pub use simulated::{SimulatedStorage, Surprise};

use crate::log::error::unless_missing;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A data directory.
pub trait Storage: Debug + Send + Sync {
    /// Name of a file in messages to the operator.
    fn describe(&self, name: &str) -> String;
    /// Locks the directory for this process until the lock is dropped.
    ///
    /// # Errors
    /// See [`LockError`].
    fn lock(&self) -> Result<Box<dyn StorageLock>, LockError>;
    /// The files of a folder, without the folder's name, in no order. A missing folder has none.
    ///
    /// # Errors
    /// I/O errors.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
    /// The files of a folder with their sizes in bytes. Files that are removed meanwhile are left
    /// out.
    ///
    /// # Errors
    /// I/O errors.
    fn sizes(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let mut sizes = Vec::new();
        for file in self.list(folder)? {
            let path = if folder.is_empty() { file.clone() } else { format!("{folder}/{file}") };
            let bytes = unless_missing(self.open(&path).and_then(|opened| opened.len()))?;
            sizes.extend(bytes.map(|bytes| (file, bytes)));
        }
        Ok(sizes)
    }
    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// I/O errors.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Creates an empty file; replaces an existing one.
    ///
    /// # Errors
    /// I/O errors.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Renames a file; replaces an existing one.
    ///
    /// # Errors
    /// I/O errors.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Open handles can still read it.
    ///
    /// # Errors
    /// I/O errors.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Free bytes of the disk.
    ///
    /// # Errors
    /// I/O errors.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Number of open file descriptors.
    fn open_files(&self) -> usize {
        0
    }
    /// Makes the names of a folder durable; an empty name means the data directory itself.
    ///
    /// # Errors
    /// I/O errors.
    fn sync_dir(&self, folder: &str) -> io::Result<()>;
}

/// An open file. Reads and writes may come from several threads.
#[allow(clippy::len_without_is_empty, reason = "nobody asks that")]
pub trait StorageFile: Debug + Send + Sync {
    /// Size of the file in bytes.
    ///
    /// # Errors
    /// I/O errors.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has other names: somebody has copied it by a hard link, so it must not be
    /// written.
    ///
    /// # Errors
    /// I/O errors.
    fn has_other_names(&self) -> io::Result<bool> {
        Ok(false)
    }
    /// Fills the buffer from this offset.
    ///
    /// # Errors
    /// I/O errors; `UnexpectedEof` when the file is too short.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Like [`read_at`](Self::read_at), but only if the operating system has all of it in memory:
    /// it never waits for the disk. Returns whether it had.
    ///
    /// # Errors
    /// I/O errors.
    fn read_cached_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<bool> {
        Ok(false)
    }
    /// Writes all bytes at this offset.
    ///
    /// # Errors
    /// I/O errors.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes zeros over this range, bypassing the page cache if possible, because nobody reads
    /// them soon. Returns false if that is not possible; the content of the range is then
    /// undefined.
    ///
    /// # Errors
    /// I/O errors.
    fn write_zeros_past_cache(&self, _from: u64, _to: u64) -> io::Result<bool> {
        Ok(false)
    }
    /// Makes all writes durable.
    ///
    /// # Errors
    /// I/O errors. The content on disk is then unknown.
    fn sync_data(&self) -> io::Result<()>;
    /// Reserves this many bytes, if the file system supports it.
    ///
    /// # Errors
    /// I/O errors.
    fn allocate(&self, size: u64) -> io::Result<()>;
}

/// Keeps other processes away while it exists.
pub trait StorageLock: Debug + Send + Sync {}

/// Why a directory cannot be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process has locked it; with its process id, if known.
    Held(Option<u32>),
    /// The operating system refused.
    Io(io::Error),
}

/// Replaces a file: `fill` writes it under the name `new`, then it is synced and renamed. After a
/// crash the old or the new one exists, and after an error the old one. The name is not yet durable.
pub(in crate::log) fn replace(
    storage: &dyn Storage,
    [new, name]: [&str; 2],
    fill: impl FnOnce(&dyn StorageFile) -> io::Result<()>,
) -> io::Result<Arc<dyn StorageFile>> {
    let written = storage.create(new).and_then(|file| {
        fill(&*file)?;
        file.sync_data()?;
        storage.rename(new, name)?;
        Ok(file)
    });
    if written.is_err() {
        drop(storage.remove(new));
    }
    written
}
