//! The only module that reads time.

#![expect(clippy::disallowed_methods, reason = "this module is where time is read")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The wall clock, in ms since the epoch.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A clock that never goes back.
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}
