//! The wall clock in terms of the worker's clock, for instants that may be months ahead and across
//! restarts.
//!
//! The worker calculates with a clock that never jumps. It notes the wall clock beside it with each
//! entry read, so at least once per heartbeat interval. An instant is converted when it is needed:
//! a corrected wall clock takes effect by then.

use crate::protocol::moment::Moment;
use std::time::Duration;

/// The offset between the wall clock and the worker's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct WallClock {
    /// The wall-clock time at the zero of the worker's clock, in ms since the epoch.
    zero_ms: i64,
}

impl WallClock {
    /// Sets the wall-clock time at this moment, in ms since the epoch.
    pub(super) fn set(&mut self, now: Moment, wall_ms: u64) {
        self.zero_ms = signed(wall_ms).saturating_sub(millis(now));
    }

    /// The wall-clock time at this moment, in ms since the epoch.
    pub(super) fn at(self, now: Moment) -> u64 {
        u64::try_from(self.zero_ms.saturating_add(millis(now))).unwrap_or(0)
    }

    /// The moment at which the wall clock shows this time: from then on [`WallClock::at`] is not
    /// below it.
    pub(super) fn moment(self, wall_ms: u64) -> Moment {
        let ms = signed(wall_ms).saturating_sub(self.zero_ms);
        Moment(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn millis(at: Moment) -> i64 {
    i64::try_from(at.0.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_instant_has_come_when_its_moment_has(
            nanos in 0..u64::MAX / 4, wall_ms in 0..u64::MAX / 4, instant in 0..u64::MAX / 4, later in 0..u64::MAX / 4,
        ) {
            let mut wall = WallClock::default();
            let (now, then) = (Moment(Duration::from_nanos(nanos)), Moment(Duration::from_nanos(later)));
            wall.set(now, wall_ms);
            prop_assert_eq!(wall.at(now), wall_ms);
            prop_assert_eq!(wall.at(then) >= instant, then >= wall.moment(instant));
        }
    }
}
