//! The clocks of simulated machines, based on tokio's clock, which tests pause and advance.

#![expect(clippy::disallowed_methods, reason = "simulated time is read here")]

use longhaul_transport::clock::{Clock, SimulatedClock};
use longhaul_transport::moment::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A clock that starts now, at zero, with this wall-clock time in ms since the epoch.
#[must_use]
pub fn simulated_clock(wall_ms: u64) -> Clock {
    MachineClock::start(wall_ms, Duration::ZERO, 0).clock()
}

/// The clocks of one machine.
#[derive(Debug)]
pub struct MachineClock {
    /// When it was started, on tokio's clock.
    start: Instant,
    /// The wall clock at the start.
    wall: Duration,
    /// The monotonic clock at the start.
    uptime: Duration,
    /// How much too fast both run (too slow if negative), in millionths.
    drift_ppm: i32,
    /// How long the machine was suspended, with its monotonic clock, in µs.
    stood_still: AtomicU64,
}

impl MachineClock {
    /// A machine whose wall clock shows `wall_ms` now, which has been up for `uptime`, and whose
    /// clocks run too fast by `drift_ppm` millionths.
    #[must_use]
    pub fn start(wall_ms: u64, uptime: Duration, drift_ppm: i32) -> &'static Self {
        let (start, wall) = (Instant::now(), Duration::from_millis(wall_ms));
        // Clocks are copied to all their readers. A simulation has only a few machines.
        Box::leak(Box::new(Self { start, wall, uptime, drift_ppm, stood_still: AtomicU64::new(0) }))
    }

    /// The clock of the machine.
    #[must_use]
    pub fn clock(&'static self) -> Clock {
        Clock::Simulated(self)
    }

    /// Suspends the machine for this time without its monotonic clock noticing, as when a virtual
    /// machine is saved and started again later. The processes on it must be suspended meanwhile.
    pub fn stand_still(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.stood_still.fetch_add(micros, Ordering::Relaxed);
    }

    fn shown_since_start(&self) -> Duration {
        drifted(self.start.elapsed(), self.drift_ppm)
    }
}

impl SimulatedClock for MachineClock {
    fn now(&self) -> Moment {
        let lost = Duration::from_micros(self.stood_still.load(Ordering::Relaxed));
        Moment((self.uptime + self.shown_since_start()).saturating_sub(lost))
    }

    fn wall(&self) -> Duration {
        self.wall + self.shown_since_start()
    }

    /// The inverse of the drift: accurate to a few millionths of itself; waiters check the clock
    /// again.
    fn sleep_for(&self, time: Duration) -> Duration {
        drifted(time, -self.drift_ppm)
    }
}

/// This time on a clock that runs too fast by this many millionths.
fn drifted(time: Duration, drift_ppm: i32) -> Duration {
    let part = time.mul_f64(f64::from(drift_ppm.unsigned_abs()) / 1e6);
    if drift_ppm < 0 { time.saturating_sub(part) } else { time + part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_machine_shows_its_own_time() {
        const MINUTE: Duration = Duration::from_secs(60);
        let machine = MachineClock::start(5_000, MINUTE, 1_000);
        let clock = machine.clock();
        tokio::time::advance(Duration::from_secs(1_000)).await;
        assert_eq!(
            (clock.now(), clock.wall_ms()),
            (Moment(MINUTE + Duration::from_secs(1_001)), 1_006_000)
        );
        machine.stand_still(MINUTE);
        assert_eq!((clock.now(), clock.wall_ms()), (Moment(Duration::from_secs(1_001)), 1_006_000));
        let (before, start) = (clock.now(), Instant::now());
        clock.sleep_until(before + MINUTE).await;
        let slept = start.elapsed();
        assert!(
            (Duration::from_millis(59_935)..MINUTE).contains(&slept),
            "{slept:?} is a minute of a fast clock"
        );
    }
}
