//! The clock of a test engine, readable between two calls as well.

use longhaul_transport::clock::{Clock, SimulatedClock};
use longhaul_transport::moment::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// The broker's clock. Between two calls of the engine, outside its runtime, it shows the last
/// time: time stands still then.
#[derive(Debug)]
pub(super) struct EngineClock {
    broker: Clock,
    /// In microseconds.
    now: AtomicU64,
    wall: AtomicU64,
}

impl EngineClock {
    /// Must be called in the runtime of the engine. Everything that reads time copies the
    /// reference, so each engine leaks one clock.
    pub(super) fn start(broker: Clock) -> &'static Self {
        let (now, wall) = (AtomicU64::default(), AtomicU64::default());
        let clock: &'static Self = Box::leak(Box::new(Self { broker, now, wall }));
        clock.stop();
        clock
    }

    /// Stops time before the engine returns. Must be called in its runtime.
    pub(super) fn stop(&self) {
        let Moment(now) = self.broker.now();
        self.now.store(micros(now), Ordering::Relaxed);
        self.wall.store(self.broker.wall_ms().saturating_mul(1000), Ordering::Relaxed);
    }
}

impl SimulatedClock for EngineClock {
    fn now(&self) -> Moment {
        if Handle::try_current().is_ok() {
            return self.broker.now();
        }
        Moment(Duration::from_micros(self.now.load(Ordering::Relaxed)))
    }

    fn wall(&self) -> Duration {
        if Handle::try_current().is_ok() {
            return Duration::from_millis(self.broker.wall_ms());
        }
        Duration::from_micros(self.wall.load(Ordering::Relaxed))
    }

    fn sleep_for(&self, time: Duration) -> Duration {
        time
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
