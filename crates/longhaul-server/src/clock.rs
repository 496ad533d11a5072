//! The only place of this crate that reads time.

#![expect(clippy::disallowed_methods, reason = "this module is where time is read")]

use longhaul_api::values::Instant;
use std::time::{Duration, SystemTime};

/// The wall clock in ms since the epoch, for comparison with deadlines in answers.
pub(crate) fn wall_ms() -> u64 {
    Instant(SystemTime::now()).ms()
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
