//! A data directory that is only read: nothing in it changes, not even its lock file.

use super::directory::DirectoryFile;
use super::{LockError, Storage, StorageFile, StorageLock};
use crate::log::error::unless_missing;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are treated as unreadable together.
const BLOCK_BYTES: usize = 4096;

/// A data directory that is only read. Unreadable blocks are read as zeros, which no checksum
/// accepts.
#[derive(Clone, Debug)]
pub struct ReadOnlyStorage {
    root: PathBuf,
    /// Whether unreadable blocks are errors.
    is_strict: bool,
}

impl ReadOnlyStorage {
    /// Reads this directory.
    ///
    /// # Errors
    /// I/O errors, for example if the directory does not exist.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        if fs::metadata(&root)?.is_dir() {
            Ok(Self { root, is_strict: false })
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }
}

impl ReadOnlyStorage {
    /// Has unreadable blocks fail.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { is_strict: true, ..self }
    }
}

fn refused() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

impl Storage for ReadOnlyStorage {
    fn describe(&self, name: &str) -> String {
        if name.is_empty() {
            self.root.display().to_string()
        } else {
            self.root.join(name).display().to_string()
        }
    }

    fn lock(&self) -> Result<Box<dyn StorageLock>, LockError> {
        let file = File::open(self.root.join(super::directory::LOCK));
        // Without it, no broker has used the directory: it is a copy.
        let file = unless_missing(file).map_err(LockError::Io)?;
        let Some(mut file) = file else { return Ok(Box::new(Unlocked)) };
        match file.try_lock_shared() {
            Ok(()) => Ok(Box::new(SharedLock { _file: file })),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let read = file.read_to_string(&mut text).ok();
                Err(LockError::Held(read.and_then(|_| text.trim().parse().ok())))
            }
            Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        super::directory::list(&self.root.join(folder))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let path = self.root.join(name);
        let file = File::open(&path)?;
        let file = DirectoryFile::new(file, path, &Arc::default());
        if self.is_strict { Ok(Arc::new(file)) } else { Ok(Arc::new(Patched(file))) }
    }

    fn create(&self, _name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Err(refused())
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Err(refused())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn sync_dir(&self, _folder: &str) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct SharedLock {
    _file: File,
}

impl StorageLock for SharedLock {}

#[derive(Debug)]
struct Unlocked;

impl StorageLock for Unlocked {}

/// A file with zeros in place of unreadable blocks.
#[derive(Debug)]
struct Patched(DirectoryFile);

impl StorageFile for Patched {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.0.read_at(buffer, offset) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {}
            read => return read,
        }
        let mut at = offset;
        for block in buffer.chunks_mut(BLOCK_BYTES) {
            if self.0.read_at(block, at).is_err() {
                block.fill(0);
            }
            at += block.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(refused())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _size: u64) -> io::Result<()> {
        Err(refused())
    }
}
