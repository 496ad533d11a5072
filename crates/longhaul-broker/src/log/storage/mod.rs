//! What the log needs of a disk, and nothing more, so that a simulated one can stand in for it.
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

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A data directory.
pub trait Storage: Debug + Send + Sync {
    /// How messages to the operator name a file.
    fn describe(&self, name: &str) -> String;
    /// Takes the directory for this process, until the lock is dropped. The error is a process id,
    /// if it is known.
    ///
    /// # Errors
    /// See [`LockError`].
    fn lock(&self) -> Result<Box<dyn StorageLock>, LockError>;
    /// The files of a folder, without the folder's name, in no order. A folder that does not exist
    /// has none.
    ///
    /// # Errors
    /// Those of the operating system.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
    /// The same files with their bytes. What goes meanwhile is left out.
    ///
    /// # Errors
    /// Those of the operating system.
    fn sizes(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let mut sizes = Vec::new();
        for file in self.list(folder)? {
            let path = if folder.is_empty() { file.clone() } else { format!("{folder}/{file}") };
            match self.open(&path).and_then(|opened| opened.len()) {
                Ok(bytes) => sizes.push((file, bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sizes)
    }
    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// Those of the operating system.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Creates an empty file, in place of one that may be there.
    ///
    /// # Errors
    /// Those of the operating system.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Gives a file another name, in place of the file that may have it.
    ///
    /// # Errors
    /// Those of the operating system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Who holds it open keeps reading it.
    ///
    /// # Errors
    /// Those of the operating system.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// How many bytes more the disk takes.
    ///
    /// # Errors
    /// Those of the operating system.
    fn free_bytes(&self) -> io::Result<u64>;
    /// How many file descriptors it has open.
    fn open_files(&self) -> usize {
        0
    }
    /// Makes the names of a folder durable; an empty name means the data directory itself.
    ///
    /// # Errors
    /// Those of the operating system.
    fn sync_dir(&self, folder: &str) -> io::Result<()>;
}

/// An open file. Reads and writes may come from several threads.
#[allow(clippy::len_without_is_empty, reason = "nobody asks that")]
pub trait StorageFile: Debug + Send + Sync {
    /// Bytes of the file.
    ///
    /// # Errors
    /// Those of the operating system.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has other names: somebody has taken a copy of it that way, so that nothing
    /// may be written to it.
    ///
    /// # Errors
    /// Those of the operating system.
    fn has_other_names(&self) -> io::Result<bool> {
        Ok(false)
    }
    /// Fills the buffer from this offset.
    ///
    /// # Errors
    /// Those of the operating system; `UnexpectedEof` when the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// The same, but only if the operating system has all of it in memory: it never waits for the
    /// disk. Says whether it had.
    ///
    /// # Errors
    /// Those of the operating system.
    fn read_cached_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<bool> {
        Ok(false)
    }
    /// Writes all of this, from this offset.
    ///
    /// # Errors
    /// Those of the operating system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes zeros over this range, past the memory of the operating system where it can: nobody
    /// reads them soon. False when it cannot, and then nothing is known of the range.
    ///
    /// # Errors
    /// Those of the operating system.
    fn write_zeros_past_cache(&self, _from: u64, _to: u64) -> io::Result<bool> {
        Ok(false)
    }
    /// Makes what was written durable.
    ///
    /// # Errors
    /// Those of the operating system. What is on disk is unknown then.
    fn sync_data(&self) -> io::Result<()>;
    /// Reserves room for this many bytes, where the file system can.
    ///
    /// # Errors
    /// Those of the operating system.
    fn allocate(&self, size: u64) -> io::Result<()>;
}

/// Keeps other processes away while it exists.
pub trait StorageLock: Debug + Send + Sync {}

/// Why a directory cannot be taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process has it, which may have left its id.
    Held(Option<u32>),
    /// The operating system refused.
    Io(io::Error),
}
