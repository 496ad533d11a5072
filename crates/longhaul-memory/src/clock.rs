//! The clocks of simulated machines: tokio's clock, which tests pause and advance, as each of them
//! shows it.

#![expect(clippy::disallowed_methods, reason = "simulated time is read here")]

use longhaul_transport::clock::{Clock, SimulatedClock};
use longhaul_transport::moment::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A clock that starts now, at zero; the wall clock shows so many ms since the epoch.
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
    /// By how much both run too fast (or too slow, when negative), in millionths.
    drift_ppm: i32,
    /// For how many microseconds the machine has stood still and its monotonic clock with it.
    stood_still: AtomicU64,
}

impl MachineClock {
    /// A machine whose wall clock shows `wall_ms` now, which has been up for `uptime`, and whose
    /// clocks run too fast by `drift_ppm` millionths.
    #[must_use]
    pub fn start(wall_ms: u64, uptime: Duration, drift_ppm: i32) -> &'static Self {
        let (start, wall) = (Instant::now(), Duration::from_millis(wall_ms));
        // Clocks are copied into whatever reads time. A simulation has a handful of machines.
        Box::leak(Box::new(Self { start, wall, uptime, drift_ppm, stood_still: AtomicU64::new(0) }))
    }

    /// Reads them.
    #[must_use]
    pub fn clock(&'static self) -> Clock {
        Clock::Simulated(self)
    }

    /// The machine stands still for so long and its monotonic clock does not notice, as when a
    /// virtual machine is saved and started again later. Whoever runs on it must be suspended
    /// meanwhile.
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

    /// The inverse of the drift: good to a few millionths of itself, and whoever waits looks at the
    /// clock again.
    fn sleep_for(&self, time: Duration) -> Duration {
        drifted(time, -self.drift_ppm)
    }
}

/// So much time on a clock that runs too fast by so many millionths.
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
