//! Limits repeated log entries: too many connections, files that cannot be used. Pure.

use std::time::{Duration, Instant};

/// Minimum interval of log entries about the same.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// Counts what happens again and again, such as connections that are closed because there are too
/// many.
#[derive(Debug, Default)]
pub(crate) struct WarningThrottle {
    told: Option<Instant>,
    untold: u64,
}

impl WarningThrottle {
    /// Counts one more. Returns the number since the last log entry if one is due, once a minute: a
    /// closed client comes back at once.
    pub(crate) fn note(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now.duration_since(told) < WARNING_PAUSE) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[test]
fn what_is_repeated_is_told_once_a_minute() {
    let (mut throttle, start) = (WarningThrottle::default(), crate::clock::monotonic());
    let mut at = |s| throttle.note(start + Duration::from_secs(s));
    assert_eq!([at(0), at(1), at(59), at(60), at(61)], [Some(1), None, None, Some(3), None]);
}
