//! Time for the code without I/O.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on this process's own clock, which runs on while the machine is suspended. Only
/// differences are meaningful, and only on the same machine. Timestamps of other machines never
/// become moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    /// Time since `earlier`; zero if `earlier` is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_never_before_the_first() {
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let five = Duration::from_secs(5);
        assert_eq!((at(7) - five, at(3) - five, at(7) + five), (at(2), at(0), at(12)));
        assert_eq!((at(7).since(at(2)), at(2).since(at(7))), (five, Duration::ZERO));
    }
}
