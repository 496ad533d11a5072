//! What an owner may choose about a log.

use super::index::FactsOf;
use super::segment::HEADER_BYTES;
use std::hash::{BuildHasher, RandomState};

/// Choices for a log. The defaults fit a broker; tests make everything smaller.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of the first segment. Small, so that an idle broker is small.
    pub segment_bytes_first: u32,
    /// Size that the doubling of segments ends at.
    pub segment_bytes_max: u32,
    /// Largest body of a record.
    pub body_bytes_max: u32,
    /// Goes into the checksums of the segments that are begun while the log is open. It should
    /// differ from process to process, so that nobody can publish a message whose bytes imitate a
    /// record of the log.
    pub salt: u64,
    /// Finds in an entry what a start has to know of it, for the indices of segments. Without it
    /// none are made, and a start reads every segment.
    pub facts: Option<FactsOf>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes_first: 4 * 1024 * 1024,
            segment_bytes_max: 64 * 1024 * 1024,
            body_bytes_max: 16 * 1024 * 1024,
            // The standard library's hasher is keyed at random.
            salt: RandomState::new().hash_one(0),
            facts: None,
        }
    }
}

/// Largest body that any log accepts: offsets within a segment then fit 32 bits with room to spare.
const BODY_BYTES_LIMIT: u32 = 1024 * 1024 * 1024;

impl LogOptions {
    /// Says what is wrong with the choices.
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

    /// The size of the segment after one of this size.
    pub(super) fn size_after(&self, size: u32) -> u32 {
        size.saturating_mul(2).clamp(self.segment_bytes_first, self.segment_bytes_max)
    }
}
