//! The only module that reads time.

#![expect(clippy::disallowed_methods, reason = "this module is where time is read")]

use longhaul_types::moment::Moment;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads the real time, or that of a simulation.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's clocks. The monotonic clock runs on while the machine is suspended, so a
    /// worker that slept for an hour knows that its view is an hour old.
    System,
    /// The clocks of a simulated machine.
    Simulated(&'static dyn SimulatedClock),
}

/// Clocks of a simulated machine.
pub trait SimulatedClock: fmt::Debug + Sync {
    /// The monotonic clock.
    fn now(&self) -> Moment;

    /// The wall clock, since the epoch.
    fn wall(&self) -> Duration;

    /// How long to sleep by tokio's clock so that `time` passes by this machine's clock.
    fn sleep_for(&self, time: Duration) -> Duration;
}

impl Clock {
    /// Now, on the process's own clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        match self {
            Self::System => Moment(boot_time()),
            Self::Simulated(clock) => clock.now(),
        }
    }

    /// The wall clock in ms since the epoch. It is only recorded; no decision depends on it.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        as_millis(match self {
            Self::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Self::Simulated(clock) => clock.wall(),
        })
    }

    /// Waits until `at`.
    pub async fn sleep_until(&self, at: Moment) {
        let left = at.since(self.now());
        tokio::time::sleep(match self {
            Self::System => left,
            Self::Simulated(clock) => clock.sleep_for(left),
        })
        .await;
    }
}

/// Now, by tokio's clock. Unit tests of a processor may pause it.
#[must_use]
pub fn runtime_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// A duration in whole milliseconds.
#[must_use]
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
