//! The only place that reads time.

#![expect(clippy::disallowed_methods, reason = "this module is where time is read")]

use crate::protocol::moment::Moment;
#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicU64, Ordering};
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
        /// What the monotonic clock shows at the start.
        uptime: Duration,
        /// By how much it runs too fast (or too slow, when negative), in millionths.
        drift_ppm: i32,
        /// For how many microseconds the machine has stood still and its monotonic clock with it.
        stood_still: Option<&'static AtomicU64>,
    },
}

impl Clock {
    /// A simulated clock that starts now.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn simulated(wall_ms: u64) -> Self {
        Self::Simulated {
            start: tokio::time::Instant::now(),
            wall_ms,
            uptime: Duration::ZERO,
            drift_ppm: 0,
            stood_still: None,
        }
    }

    /// The clock of another machine: its wall clock shows `wall_ms` now, it has been up for `uptime`, and both run too fast by
    /// `drift_ppm` millionths. The system's clock stays what it is.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn of_another_machine(self, wall_ms: u64, uptime: Duration, drift_ppm: i32) -> Self {
        match self {
            Self::System => Self::System,
            Self::Simulated { .. } => {
                let start = tokio::time::Instant::now();
                // Clocks are copied into whatever reads time. A simulation has a handful of machines.
                let stood_still = Some(&*Box::leak(Box::<AtomicU64>::default()));
                Self::Simulated { start, wall_ms, uptime, drift_ppm, stood_still }
            }
        }
    }

    /// The machine stands still for so long and its monotonic clock does not notice, as when a virtual machine is saved and started
    /// again later. Whoever runs on it must be suspended meanwhile. Only a clock of another machine does that.
    #[cfg(feature = "testing")]
    pub fn stand_still(&self, time: Duration) {
        if let Self::Simulated { stood_still: Some(stood_still), .. } = self {
            let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            stood_still.fetch_add(micros, Ordering::Relaxed);
        }
    }

    /// Now, on the process's own clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        match self {
            Self::System => Moment(boot_time()),
            #[cfg(feature = "testing")]
            Self::Simulated { start, uptime, drift_ppm, stood_still, .. } => {
                let lost = stood_still.map_or(0, |micros| micros.load(Ordering::Relaxed));
                let shown = *uptime + drifted(start.elapsed(), *drift_ppm);
                Moment(shown.saturating_sub(Duration::from_micros(lost)))
            }
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
            Self::Simulated { start, wall_ms, drift_ppm, .. } => {
                wall_ms + as_millis(drifted(start.elapsed(), *drift_ppm))
            }
        }
    }

    /// The wall clock in microseconds since the epoch, for measurements.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        let since = match self {
            Self::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Self::Simulated { start, wall_ms, drift_ppm, .. } => {
                Duration::from_millis(*wall_ms) + drifted(start.elapsed(), *drift_ppm)
            }
        };
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Waits until `at`.
    pub async fn sleep_until(&self, at: Moment) {
        let left = at.since(self.now());
        match self {
            Self::System => tokio::time::sleep(left).await,
            // The inverse of the drift: good to a few millionths of itself, and whoever waits looks at the clock again.
            #[cfg(feature = "testing")]
            Self::Simulated { drift_ppm, .. } => {
                tokio::time::sleep(drifted(left, -*drift_ppm)).await;
            }
        }
    }
}

/// Now, by tokio's clock, which unit tests of a processor may pause.
pub(crate) fn runtime_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// So much time on a clock that runs too fast by so many millionths.
#[cfg(feature = "testing")]
fn drifted(time: Duration, drift_ppm: i32) -> Duration {
    let part = time.mul_f64(f64::from(drift_ppm.unsigned_abs()) / 1e6);
    if drift_ppm < 0 { time.saturating_sub(part) } else { time + part }
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
