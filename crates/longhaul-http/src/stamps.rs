//! How files look, to notice that they have changed.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Inode, size and time of change of files, in order; `None` for one that is missing. The time of
/// modification does not suffice: some tools set it to a constant.
///
/// Take them before the files are read: a change in between is then noticed later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamps(Vec<Option<(u64, u64, i64, i64)>>);

impl FileStamps {
    /// How these files look now.
    #[must_use]
    pub fn of(files: &[PathBuf]) -> Self {
        let stamp = |file: &PathBuf| {
            let it = std::fs::metadata(file).ok()?;
            Some((it.ino(), it.size(), it.ctime(), it.ctime_nsec()))
        };
        Self(files.iter().map(stamp).collect())
    }
}
