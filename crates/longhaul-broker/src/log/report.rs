//! What the log says of itself.

use super::record::LogPosition;
use super::times::DurationHistogram;

/// The log at a moment: whoever needs to know more than that asks again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// The segments there are, the oldest first, with the bytes of their files.
    pub segments: Vec<(u32, u64)>,
    /// What the durable checkpoint stands for, if there is one.
    pub checkpoint: Option<LogPosition>,
    /// A group waits for a segment that cannot be made: [`super::WriteError::Full`].
    pub is_stuck: bool,
    /// How long the writer has waited for the disk to keep what was written.
    pub syncs: DurationHistogram,
}

impl LogStatus {
    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The segments before this one, the oldest first, with their sizes.
    pub fn before(&self, segment: u32) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.segments.iter().copied().filter(move |&(number, _)| number < segment)
    }

    /// Whether a checkpoint stands behind the segment, so that it may go.
    #[must_use]
    pub fn is_covered(&self, segment: u32) -> bool {
        self.checkpoint.is_some_and(|checkpoint| segment < checkpoint.segment)
    }
}
