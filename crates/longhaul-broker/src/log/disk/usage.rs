//! Size of the files of a data directory, by purpose.

use crate::log::disk::reserve;
use crate::log::disk::storage::Storage;
use crate::log::indices::index;
use crate::log::recover::checkpoint;
use crate::log::segments::segment::{self, FOLDER, SPARE, SPARE_NEW};
use std::io;

/// The folder of the compacted views.
const VIEWS: &str = "compact";

/// Sizes in bytes, by purpose of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Segments of the log.
    pub segments: u64,
    /// The spare segment.
    pub spare: u64,
    /// Indices of segments.
    pub indices: u64,
    /// The checkpoint, and the next one while it is written.
    pub checkpoint: u64,
    /// Compacted views of topics.
    pub views: u64,
    /// Space that is reserved for the next checkpoint.
    pub reserve: u64,
    /// Everything else.
    pub other: u64,
}

impl Usage {
    /// Measures the files. Blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read(storage: &dyn Storage) -> io::Result<Self> {
        let mut usage = Self::default();
        for (file, bytes) in storage.sizes("")? {
            *match file.as_str() {
                checkpoint::NAME | checkpoint::NAME_NEW => &mut usage.checkpoint,
                reserve::NAME => &mut usage.reserve,
                _ => &mut usage.other,
            } += bytes;
        }
        for (file, bytes) in storage.sizes(FOLDER)? {
            *if segment::number_of(&file).is_some() {
                &mut usage.segments
            } else if index::number_of(&file).is_some() {
                &mut usage.indices
            } else if [SPARE, SPARE_NEW].contains(&format!("{FOLDER}/{file}").as_str()) {
                &mut usage.spare
            } else {
                &mut usage.other
            } += bytes;
        }
        usage.views = storage.sizes(VIEWS)?.into_iter().map(|(_, bytes)| bytes).sum();
        Ok(usage)
    }

    /// Sizes by name of the purpose.
    #[must_use]
    pub const fn kinds(&self) -> [(&'static str, u64); 7] {
        [
            ("segments", self.segments),
            ("spare", self.spare),
            ("indices", self.indices),
            ("checkpoint", self.checkpoint),
            ("views", self.views),
            ("reserve", self.reserve),
            ("other", self.other),
        ]
    }

    /// Total size in bytes.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.kinds().into_iter().map(|(_, bytes)| bytes).sum()
    }
}
