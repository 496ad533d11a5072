//! A data directory in the file system.

use super::{LockError, Storage, StorageFile, StorageLock};
use crate::log::error::unless_missing;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Name of the lock file.
pub(super) const LOCK: &str = "LOCK";
/// The folders of a data directory.
const FOLDERS: &[&str] = &["log", "compact"];
/// Only the owner may access new directories and files: they hold all payloads.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A data directory.
#[derive(Clone, Debug)]
pub struct FileStorage {
    root: PathBuf,
    /// The directory and its folders, open: syncing a name must not fail for lack of a file
    /// descriptor.
    folders: Arc<[(&'static str, File)]>,
    /// Number of open files.
    open: Arc<AtomicUsize>,
}

impl FileStorage {
    /// Uses this directory. If it does not exist, it is created for this user alone.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        for folder in FOLDERS {
            new_folder(&root.join(folder))?;
        }
        let open = |folder| Ok((folder, File::open(root.join(folder))?));
        let folders = [""].iter().chain(FOLDERS).copied().map(open).collect::<io::Result<_>>()?;
        let storage = Self { root, folders, open: Arc::default() };
        if storage.is_open_to_others()? {
            let data = storage.root.display();
            tracing::warn!(%data, "other users of this machine may read the data directory, with all payloads: run `chmod -R go-rwx` on it");
        }
        storage.sync_dir("")?;
        // The directory's own name is stored in its parent, which may not be readable.
        if let Some(parent) = storage.root.parent().filter(|path| !path.as_os_str().is_empty()) {
            drop(File::open(parent).and_then(|parent| parent.sync_all()));
        }
        Ok(storage)
    }

    /// Whether other users may access the folders. A new directory never allows that; the mode of
    /// an existing one is not changed.
    fn is_open_to_others(&self) -> io::Result<bool> {
        let others =
            |folder: &str| Ok::<_, io::Error>(self.root.join(folder).metadata()?.mode() & 0o007);
        let mut open = false;
        for folder in FOLDERS {
            open |= others(folder)? & 0o005 != 0;
        }
        Ok(open && others("")? & 0o001 != 0)
    }
}

impl Storage for FileStorage {
    fn describe(&self, name: &str) -> String {
        if name.is_empty() {
            return self.root.display().to_string();
        }
        self.root.join(name).display().to_string()
    }

    fn lock(&self) -> Result<Box<dyn StorageLock>, LockError> {
        let path = self.root.join(LOCK);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let mut file = options.open(path).map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let read = file.read_to_string(&mut text).ok();
                return Err(LockError::Held(read.and_then(|_| text.trim().parse().ok())));
            }
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        // The process id only helps the operator, so a full disk must not prevent a start.
        drop(file.set_len(0).and_then(|()| file.rewind()));
        drop(writeln!(file, "{}", std::process::id()));
        Ok(Box::new(FileLock { _file: file }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        list(&self.root.join(folder))
    }

    fn sizes(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let mut sizes = Vec::new();
        for entry in fs::read_dir(self.root.join(folder))? {
            let entry = entry?;
            if let Some(about) = unless_missing(entry.metadata())?.filter(fs::Metadata::is_file) {
                sizes.push((entry.file_name().to_string_lossy().into_owned(), about.len()));
            }
        }
        Ok(sizes)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let path = self.root.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Arc::new(DirectoryFile::new(file, path, &self.open)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let path = self.root.join(name);
        Ok(Arc::new(DirectoryFile::new(new_file(&path)?, path, &self.open)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.root.join(name))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.root)?;
        // Some file systems do not report their size.
        if disk.f_blocks == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn open_files(&self) -> usize {
        self.folders.len() + self.open.load(Ordering::Relaxed)
    }

    fn sync_dir(&self, folder: &str) -> io::Result<()> {
        match self.folders.iter().find(|(known, _)| *known == folder) {
            Some((_, folder)) => folder.sync_all(),
            None => File::open(self.root.join(folder))?.sync_all(),
        }
    }
}

/// Creates a directory that only its owner may read, if it does not exist.
///
/// # Errors
/// I/O errors.
pub fn new_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Creates or empties a file that only its owner may read.
///
/// # Errors
/// I/O errors.
pub fn new_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE).open(path)
}

/// The files of a folder.
pub(super) fn list(folder: &Path) -> io::Result<Vec<String>> {
    let Some(entries) = unless_missing(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        // File names of the broker are always UTF-8.
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

#[derive(Debug)]
pub(super) struct DirectoryFile {
    file: File,
    /// Path when the file was opened; it may have been renamed.
    path: PathBuf,
    /// Number of open files.
    open: Arc<AtomicUsize>,
}

impl DirectoryFile {
    pub(super) fn new(file: File, path: PathBuf, open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self { file, path, open: Arc::clone(open) }
    }
}

impl Drop for DirectoryFile {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Zeros per write, in bytes.
#[cfg(target_os = "linux")]
const ZEROS_BYTES: usize = 1024 * 1024;
/// Alignment of direct writes, in memory and in the file, on all current disks.
#[cfg(target_os = "linux")]
const DIRECT_BYTES: usize = 4096;

impl StorageFile for DirectoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn has_other_names(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 1)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    #[cfg(target_os = "linux")]
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let whole = buffer.len();
        let read =
            preadv2(&self.file, &mut [io::IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
        match read {
            Ok(count) => Ok(count == whole),
            // Not in memory, or the file system cannot tell.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    #[cfg(target_os = "linux")]
    fn write_zeros_past_cache(&self, from: u64, to: u64) -> io::Result<bool> {
        use rustix::fs::OFlags;
        use rustix::io::Errno;
        let is_whole = |at: u64| at.is_multiple_of(DIRECT_BYTES as u64);
        let mut options = OpenOptions::new();
        let direct = options.write(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        // File systems without direct writes refuse here, or at the first write.
        let Ok(direct) = direct.open(&self.path) else { return Ok(false) };
        let id = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        if !is_whole(from) || !is_whole(to) || id(&direct)? != id(&self.file)? {
            return Ok(false);
        }
        let zeros = vec![0; ZEROS_BYTES + DIRECT_BYTES];
        let aligned = zeros.as_ptr().align_offset(DIRECT_BYTES);
        let zeros = zeros.get(aligned..).unwrap_or_default();
        let mut at = from;
        while at < to {
            let rest = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZEROS_BYTES);
            match direct.write_all_at(zeros.get(..rest).unwrap_or_default(), at) {
                Ok(()) => at += rest as u64,
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        reserve(&self.file, size)
    }
}

#[cfg(target_os = "linux")]
fn reserve(file: &File, size: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        // A file system that cannot reserve fails later, when it is filled with zeros.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Filling with zeros reserves the space too, only later.
#[cfg(not(target_os = "linux"))]
fn reserve(_file: &File, _size: u64) -> io::Result<()> {
    Ok(())
}

/// The operating system releases the lock when the file is closed.
#[derive(Debug)]
struct FileLock {
    _file: File,
}

impl StorageLock for FileLock {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn what_is_new_is_the_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("data");
        let storage = FileStorage::new(&root).unwrap();
        let _lock = storage.lock().unwrap();
        drop(storage.create("log/one").unwrap());
        for path in ["", "log", "compact"] {
            assert_eq!(mode(&root.join(path)), 0o700, "{path:?}");
        }
        for path in ["LOCK", "log/one"] {
            assert_eq!(mode(&root.join(path)), 0o600, "{path}");
        }
        assert!(!storage.is_open_to_others().unwrap());
    }

    #[test]
    fn what_was_there_is_left_as_it_is_and_told_if_others_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("data");
        let set = |path: &str, mode| {
            fs::set_permissions(root.join(path), Permissions::from_mode(mode)).unwrap();
        };
        let is_open = || FileStorage::new(&root).unwrap().is_open_to_others().unwrap();
        fs::create_dir(&root).unwrap();
        set("", 0o755);
        assert!(!is_open(), "what is in it is the owner's alone");
        set("log", 0o755);
        assert!(is_open());
        assert_eq!((mode(&root), mode(&root.join("log"))), (0o755, 0o755));
        set("", 0o750);
        assert!(!is_open(), "the way in is closed");
    }
}
