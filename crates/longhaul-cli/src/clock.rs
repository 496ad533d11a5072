//! The only place where this program reads the time.

#![expect(clippy::disallowed_methods, reason = "this is the program's clock")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The wall clock.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// The wall clock in ms since the epoch.
pub(crate) fn wall_ms() -> u64 {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The monotonic clock.
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}
