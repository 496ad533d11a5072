//! Status of the log.

use super::times::DurationHistogram;
use crate::log::segments::record::LogPosition;

/// Status of the log at a point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// The existing segments, the oldest first, with the sizes of their files in bytes.
    pub segments: Vec<(u32, u64)>,
    /// Position of the durable checkpoint, if there is one.
    pub checkpoint: Option<LogPosition>,
    /// Whether a group waits for a segment that cannot be created: [`super::WriteError::Full`].
    pub is_stuck: bool,
    /// Durations of syncs.
    pub syncs: DurationHistogram,
}

impl LogStatus {
    /// Size of all segments in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The segments before this one, the oldest first, with their sizes.
    pub fn before(&self, segment: u32) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.segments.iter().copied().filter(move |&(number, _)| number < segment)
    }

    /// Whether a checkpoint covers the segment, so that it may be removed.
    #[must_use]
    pub fn is_covered(&self, segment: u32) -> bool {
        self.checkpoint.is_some_and(|checkpoint| segment < checkpoint.segment)
    }
}
