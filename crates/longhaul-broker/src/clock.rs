//! The only module that reads time.

#![expect(clippy::disallowed_methods, reason = "this module is where time is read")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock, in ms since the epoch, as used in messages and for delayed delivery.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How long ago this was by the wall clock; `None` if it is in the future.
pub(crate) fn age(then: SystemTime) -> Option<Duration> {
    SystemTime::now().duration_since(then).ok()
}

/// A monotonic clock.
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

/// A monotonic clock in ms that starts at zero.
#[derive(Debug)]
pub(crate) struct Uptime(Instant);

impl Uptime {
    pub(crate) fn begin() -> Self {
        Self(monotonic())
    }

    pub(crate) fn ms(&self) -> u64 {
        let since = monotonic().duration_since(self.0);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// The time in µs at `time`.
    pub(crate) fn us_at(&self, time: Instant) -> u64 {
        let since = time.duration_since(self.0);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}
