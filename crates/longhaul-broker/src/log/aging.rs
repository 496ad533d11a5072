//! Which sealed segments get their index: pure.
//!
//! Most messages are over soon, and their segments go with them. To read each segment once more,
//! for an index that is removed seconds later, took a tenth of a busy broker's processor time. So
//! an index is made when the log rests, or when the segment has been there for some time. A start
//! reads what has none.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// While the log is busy a segment gets its index after once to twice this time.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Tells when a sealed segment is old enough for its index.
#[derive(Debug, Default)]
pub(super) struct Aging {
    /// Segments up to this one are old enough.
    old: u32,
    /// The newest one at the last look, and when to look again.
    seen: Option<(u32, Instant)>,
}

impl Aging {
    /// How long to wait until the first of the segments without an index is old enough; these are
    /// the first and the last of them.
    pub(super) fn wait(
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
