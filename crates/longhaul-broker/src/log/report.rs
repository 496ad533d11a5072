//! What the log says of itself.

use super::record::Position;
use std::time::Duration;

/// The log at a moment: whoever needs to know more than that asks again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The segments there are, the oldest first, with the bytes of their files.
    pub segments: Vec<(u32, u64)>,
    /// What the durable checkpoint stands for, if there is one.
    pub checkpoint: Option<Position>,
    /// A group waits for a segment that cannot be made: [`super::WriteError::Full`].
    pub is_stuck: bool,
    /// How long the writer has waited for the disk to keep what was written.
    pub syncs: SyncTimes,
}

/// Upper bounds of the classes into which syncs fall by their time, in ms. What takes longer is a class of its own.
pub const SYNC_BOUNDS_MS: [f64; 10] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 1000.0];

/// The times of many syncs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncTimes {
    /// All of them together.
    pub total: Duration,
    /// How many fell into each class of [`SYNC_BOUNDS_MS`], and how many took longer.
    pub counts: [u64; SYNC_BOUNDS_MS.len() + 1],
}

impl SyncTimes {
    pub(super) fn note(&mut self, took: Duration) {
        self.total += took;
        let ms = took.as_secs_f64() * 1000.0;
        let class = SYNC_BOUNDS_MS.iter().filter(|&&bound| bound < ms).count();
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1;
        }
    }
}

impl Report {
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

#[test]
fn a_sync_falls_into_the_first_class_that_has_its_time() {
    let mut syncs = SyncTimes::default();
    for micros in [0, 500, 501, 3_000, 1_000_000, 1_000_001, 9_000_000] {
        syncs.note(Duration::from_micros(micros));
    }
    assert_eq!(syncs.counts, [2, 1, 0, 1, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(syncs.total, Duration::from_micros(11_004_002));
}
