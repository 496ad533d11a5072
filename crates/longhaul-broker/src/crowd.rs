//! Limits log entries about repeated connections. Pure.

use std::time::{Duration, Instant};

/// Minimum interval of log entries about too many or failed connections.
const CROWD_PAUSE: Duration = Duration::from_secs(60);

/// Connections that were closed because there are too many, or could not be accepted.
#[derive(Debug, Default)]
pub(crate) struct ConnectionWarnings {
    told: Option<Instant>,
    untold: u64,
}

impl ConnectionWarnings {
    /// Counts a connection. Returns the number since the last log entry if one is due, once a
    /// minute: a closed client comes back at once.
    pub(crate) fn note(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now.duration_since(told) < CROWD_PAUSE) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[test]
fn a_crowd_is_told_once_a_minute() {
    let (mut crowd, start) = (ConnectionWarnings::default(), crate::clock::monotonic());
    let mut at = |s| crowd.note(start + Duration::from_secs(s));
    assert_eq!([at(0), at(1), at(59), at(60), at(61)], [Some(1), None, None, Some(3), None]);
}
