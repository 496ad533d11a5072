//! Options of a log.

use crate::log::indices::index::FactsOf;
use crate::log::segments::segment::HEADER_BYTES;
use std::hash::{BuildHasher, RandomState};

/// Options of a log. The defaults suit a broker; tests use smaller values.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of the first segment in bytes. Small, so that an idle broker needs little space.
    pub segment_bytes_first: u32,
    /// Maximum segment size in bytes. Each segment is twice as large as the previous one, up to
    /// this size.
    pub segment_bytes_max: u32,
    /// Largest body of a record, in bytes.
    pub body_bytes_max: u32,
    /// Salt of the checksums of new segments. It should differ from process to process, so that
    /// nobody can publish a message whose bytes imitate a record of the log.
    pub salt: u64,
    /// Extracts the facts about an entry that a start needs, for the indices of segments. With
    /// `None` no index is built, and a start reads every segment.
    pub facts: Option<FactsOf>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes_first: 4 * 1024 * 1024,
            segment_bytes_max: 64 * 1024 * 1024,
            body_bytes_max: 16 * 1024 * 1024,
            // The standard library's hasher has random keys.
            salt: RandomState::new().hash_one(0),
            facts: None,
        }
    }
}

/// Largest body that any log accepts, in bytes: offsets in a segment then fit 32 bits with room to
/// spare.
const BODY_BYTES_LIMIT: u32 = 1024 * 1024 * 1024;

impl LogOptions {
    /// Returns what is wrong with the options.
    pub(super) fn validate(&self) -> Result<(), &'static str> {
        if self.segment_bytes_first < 2 * HEADER_BYTES {
            return Err("`segment_bytes_first` is below 8 KiB");
        }
        if self.segment_bytes_max < self.segment_bytes_first {
            return Err("`segment_bytes_max` is below `segment_bytes_first`");
        }
        if self.segment_bytes_max > BODY_BYTES_LIMIT || self.body_bytes_max > BODY_BYTES_LIMIT {
            return Err("`segment_bytes_max` or `body_bytes_max` is above 1 GiB");
        }
        Ok(())
    }

    /// Size of the segment after one of this size.
    pub(super) fn size_after(&self, size: u32) -> u32 {
        size.saturating_mul(2).clamp(self.segment_bytes_first, self.segment_bytes_max)
    }
}
