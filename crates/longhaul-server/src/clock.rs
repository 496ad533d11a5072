//! The only place of this crate that reads time.

#![expect(clippy::disallowed_methods, reason = "this module is where time is read")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The wall clock in ms since the epoch, for comparison with deadlines in answers.
pub(crate) fn wall_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// An instant in ms since the epoch; 0 for earlier ones.
pub(crate) fn instant_ms(instant: SystemTime) -> u64 {
    millis(instant.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Starts a stopwatch.
pub(crate) fn stopwatch() -> Stopwatch {
    Stopwatch(std::time::Instant::now())
}

/// Measures elapsed time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// The elapsed time.
    pub(crate) fn read(self) -> Duration {
        self.0.elapsed()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
