//! Time as the pure parts see it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on this process's own clock, which goes on while the machine is suspended. Only differences mean anything, and only
/// on the same machine; times that others wrote never become moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    /// How long ago `earlier` was; zero if it is still to come.
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
