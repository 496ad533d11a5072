//! The wall clock, as the clock of the worker shows it: for what is to happen at an instant, months
//! ahead and across restarts.
//!
//! The worker calculates with a clock that never jumps. What the wall clock said beside it is noted
//! with each entry that is read, so at least once per heartbeat interval, and an instant is
//! converted when it is looked at: a wall clock that is set right takes effect by then.

use crate::protocol::moment::Moment;
use std::time::Duration;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct WallClock {
    /// What the wall clock said when the other one began, in ms since the epoch.
    zero_ms: i64,
}

impl WallClock {
    /// It says this now, in ms since the epoch.
    pub(super) fn set(&mut self, now: Moment, wall_ms: u64) {
        self.zero_ms = signed(wall_ms).saturating_sub(millis(now));
    }

    /// What it says, in ms since the epoch.
    pub(super) fn at(self, now: Moment) -> u64 {
        u64::try_from(self.zero_ms.saturating_add(millis(now))).unwrap_or(0)
    }

    /// When it says this: from then on [`WallClock::at`] is not below it.
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
