//! The only place that reads time.

#![expect(clippy::disallowed_methods, reason = "this module is where time is read")]

use crate::protocol::moment::Moment;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads time: the real one, or that of a runtime whose time is paused.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's clocks. The monotonic one goes on while the machine is suspended, so that a worker that slept for an hour
    /// knows that its view is an hour old.
    System,
    /// tokio's clock, which tests pause and advance.
    #[cfg(feature = "testing")]
    Simulated {
        /// The start of the simulation, on tokio's clock.
        start: tokio::time::Instant,
        /// The wall clock at the start, in ms since the epoch.
        wall_ms: u64,
    },
}

impl Clock {
    /// A simulated clock that starts now.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn simulated(wall_ms: u64) -> Self {
        Self::Simulated { start: tokio::time::Instant::now(), wall_ms }
    }

    /// Now, on the process's own clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        match self {
            Self::System => Moment(boot_time()),
            #[cfg(feature = "testing")]
            Self::Simulated { start, .. } => Moment(start.elapsed()),
        }
    }

    /// The wall clock in ms since the epoch. Only for records; nothing is decided by it.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        match self {
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                as_millis(since)
            }
            #[cfg(feature = "testing")]
            Self::Simulated { start, wall_ms } => wall_ms + as_millis(start.elapsed()),
        }
    }

    /// The wall clock in microseconds since the epoch, for measurements.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        let since = match self {
            Self::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Self::Simulated { start, wall_ms } => Duration::from_millis(*wall_ms) + start.elapsed(),
        };
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Waits until `at`.
    pub async fn sleep_until(&self, at: Moment) {
        tokio::time::sleep(at.since(self.now())).await;
    }
}

/// A duration in whole milliseconds.
pub fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn boot_time() -> Duration {
    #[cfg(target_os = "linux")]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
