//! Decides which sealed segments get an index. Pure.
//!
//! Most messages are short-lived, and so are their segments. Reading each segment once more for an
//! index that is removed seconds later took a tenth of a busy broker's processor time. So an index
//! is built when the log is idle, or when the segment has existed for some time. A start reads
//! segments without an index.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// While the log is busy, a segment gets its index after 1 to 2 times this interval.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Determines when a sealed segment is old enough for its index.
#[derive(Debug, Default)]
pub(in crate::log) struct Aging {
    /// Segments up to this number are old enough.
    old: u32,
    /// The newest segment at the last check, and the time of the next check.
    seen: Option<(u32, Instant)>,
}

impl Aging {
    /// Time until the first of the segments without an index is old enough; `without` has the first
    /// and the last of them.
    pub(in crate::log) fn wait(
        &mut self,
        without: Option<RangeInclusive<u32>>,
        now: Instant,
    ) -> Option<Duration> {
        let Some(without) = without else {
            self.seen = None;
            return None;
        };
        let (seen, look_at) = *self.seen.get_or_insert_with(|| (*without.end(), now + LOOK_EVERY));
        if now >= look_at {
            self.old = seen;
            self.seen = Some((*without.end(), now + LOOK_EVERY));
        }
        if *without.start() <= self.old {
            return Some(Duration::ZERO);
        }
        self.seen.map(|(_, look_at)| look_at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_gets_its_index_after_once_to_twice_the_time() {
        let (mut aging, began) = (Aging::default(), crate::clock::monotonic());
        let mut wait = |without, seconds| {
            let wait = aging.wait(without, began + Duration::from_secs(seconds));
            wait.map(|wait| wait.as_secs())
        };
        assert_eq!(wait(Some(3..=3), 0), Some(5));
        assert_eq!(wait(Some(3..=4), 1), Some(4));
        assert_eq!(wait(Some(3..=4), 5), Some(0), "3 is old enough");
        assert_eq!(wait(Some(4..=4), 5), Some(5), "4 came after the first look");
        assert_eq!(wait(Some(4..=9), 10), Some(0));
        assert_eq!(wait(Some(5..=9), 11), Some(4));
        assert_eq!(wait(None, 12), None);
        assert_eq!(wait(Some(20..=20), 100), Some(5), "as if it were the first");
    }
}
