//! The only place of this crate that reads time.

#![expect(clippy::disallowed_methods, reason = "this module is where time is read")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, by the wall clock, in ms since the epoch: what deadlines in answers are compared with.
pub(crate) fn wall_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// An instant in ms since the epoch; zero for what lies before it.
pub(crate) fn instant_ms(instant: SystemTime) -> u64 {
    millis(instant.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Starts a stopwatch.
pub(crate) fn stopwatch() -> Stopwatch {
    Stopwatch(std::time::Instant::now())
}

/// Measures how long something takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// How long it has run.
    pub(crate) fn read(self) -> Duration {
        self.0.elapsed()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
