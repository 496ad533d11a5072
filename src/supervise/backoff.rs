//! Pauses between tries.

use std::time::Duration;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Waits before sessions are opened again: from 100 ms, doubling to 5 s, reduced by a random part
/// of up to a half.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
    rng: fastrand::Rng,
}

impl Backoff {
    pub(crate) const fn new(rng: fastrand::Rng) -> Self {
        Self { next: BACKOFF_MIN, max: BACKOFF_MAX, rng }
    }

    /// Limits each wait.
    pub(crate) const fn up_to(rng: fastrand::Rng, max: Duration) -> Self {
        Self { max, ..Self::new(rng) }
    }

    /// For a worker, whose heartbeats others wait for. Earlier, after an outage of the broker, the
    /// first worker back took over the tasks of workers that still waited for the next try, because
    /// their wait exceeded the silence that others tolerate.
    pub(crate) fn of_worker(rng: fastrand::Rng, heartbeat: Duration) -> Self {
        let max = (heartbeat / 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
        Self::up_to(rng, max)
    }

    pub(crate) const fn reset(&mut self) {
        self.next = BACKOFF_MIN;
    }

    /// Resets the wait after a session that was open for as long as the longest wait. A session
    /// that opens and then fails at once must not be retried at full speed.
    pub(crate) fn was_open_for(&mut self, time: Duration) {
        if time >= self.max {
            self.reset();
        }
    }

    pub(crate) async fn wait(&mut self) {
        let part = self.next.mul_f64(1.0 - self.rng.f64() / 2.0);
        self.next = (2 * self.next).min(self.max);
        tokio::time::sleep(part).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wait of a worker must stay below the silence that others tolerate, which is 2 heartbeat
    /// intervals.
    #[test]
    fn a_worker_waits_for_half_a_heartbeat_at_most() {
        for (heartbeat, max) in [
            (Duration::from_secs(4), Duration::from_secs(2)),
            (Duration::from_secs(60), BACKOFF_MAX),
            (Duration::from_millis(1), BACKOFF_MIN),
        ] {
            let backoff = Backoff::of_worker(fastrand::Rng::with_seed(1), heartbeat);
            assert_eq!(backoff.max, max, "{heartbeat:?}");
        }
    }

    #[test]
    fn what_was_open_for_as_long_as_the_longest_wait_may_be_opened_soon_again() {
        for (open, next) in [(BACKOFF_MAX, BACKOFF_MIN), (BACKOFF_MAX / 2, 8 * BACKOFF_MIN)] {
            let mut backoff = Backoff::new(fastrand::Rng::with_seed(1));
            backoff.next = 8 * BACKOFF_MIN;
            backoff.was_open_for(open);
            assert_eq!(backoff.next, next, "open for {open:?}");
        }
    }

    /// Earlier, no test failed when waits were too long, or could be zero. Time is tokio's, which
    /// passes at once here.
    #[tokio::test(start_paused = true)]
    async fn waits_double_and_are_shortened_by_half_at_most() {
        let mut backoff = Backoff::new(fastrand::Rng::with_seed(1));
        let clock = longhaul_memory::simulated_clock(0);
        let mut longest = BACKOFF_MIN;
        for _ in 0..50 {
            let begin = clock.now();
            backoff.wait().await;
            let waited = clock.now().since(begin);
            // A timer may be 1 ms late.
            let late = Duration::from_millis(1);
            assert!((longest / 2..=longest + late).contains(&waited), "{waited:?} of {longest:?}");
            longest = (2 * longest).min(BACKOFF_MAX);
        }
    }
}
