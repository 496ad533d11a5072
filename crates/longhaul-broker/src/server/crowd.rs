//! How the log tells of connections that come again and again. Pure.

use std::time::{Duration, Instant};

/// How often the log says that there are too many connections, or that none can be accepted.
const CROWD_PAUSE: Duration = Duration::from_secs(60);

/// Connections that were closed because there are too many, or could not be accepted.
#[derive(Debug, Default)]
pub(crate) struct ConnectionWarnings {
    told: Option<Instant>,
    untold: u64,
}

impl ConnectionWarnings {
    /// Whoever was closed comes again at once, so that the log says so once a minute: how many
    /// there were since it was told last.
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
