//! The end of an attempt's budget.

use crate::clock::{Clock, runtime_now};
use longhaul_core::protocol::moment::Moment;
use std::time::Duration;

/// The time at which the budget of an attempt ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deadline {
    /// By a clock that goes on while the machine is suspended.
    Clock {
        clock: Clock,
        at: Moment,
        /// Interval at which the clock is checked: timers stop while the machine is suspended.
        look_every: Duration,
    },
    /// By tokio's clock, which the unit test of a processor may pause.
    Runtime(tokio::time::Instant),
}

impl Deadline {
    /// The rest of the budget.
    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Self::Clock { clock, at, .. } => at.since(clock.now()),
            Self::Runtime(at) => at.saturating_duration_since(runtime_now()),
        }
    }

    /// Resolves when the budget is used up.
    pub(crate) async fn wait(self) {
        match self {
            Self::Clock { look_every, .. } => wait_out(|| self.remaining(), look_every).await,
            Self::Runtime(at) => tokio::time::sleep_until(at).await,
        }
    }
}

async fn wait_out(remaining: impl Fn() -> Duration, look_every: Duration) {
    loop {
        let left = remaining();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(look_every)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier, a machine that was suspended for an hour let a budget of a minute run on for a
    /// minute after it woke up.
    #[tokio::test(start_paused = true)]
    async fn a_suspended_machine_does_not_stretch_a_budget() {
        let (seconds, timer) = (Duration::from_secs, longhaul_memory::simulated_clock(0));
        let suspended = std::cell::Cell::new(Duration::ZERO);
        let remaining = || seconds(60).saturating_sub(timer.now().0 + suspended.get());
        let suspend = async {
            tokio::time::sleep(seconds(15)).await;
            suspended.set(seconds(3600));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = wait_out(remaining, seconds(10)) => {}
            () = suspend => {}
        }
        assert_eq!(timer.now().0, seconds(20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_ends_when_it_is_used_up_and_not_later() {
        let clock = longhaul_memory::simulated_clock(0);
        let at = clock.now() + Duration::from_millis(25_300);
        let deadline = Deadline::Clock { clock, at, look_every: Duration::from_secs(10) };
        deadline.wait().await;
        assert_eq!(clock.now(), at);
        assert_eq!(deadline.remaining(), Duration::ZERO);
    }
}
