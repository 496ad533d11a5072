//! A timer for frequently moved deadlines: it is set often and rarely fires.

use crate::clock;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep};

/// Fires at the deadline that was set last, or earlier; the caller checks the time. Moving the
/// deadline further away costs nothing.
#[derive(Debug)]
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// When it fires; `None` after it has fired.
    at: Option<Instant>,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self { sleep: Box::pin(sleep(Duration::ZERO)), at: None }
    }

    /// Sets the latest time at which it fires.
    pub(super) fn set(&mut self, at: Instant) {
        if self.at.is_none_or(|set| at < set) {
            self.sleep.as_mut().reset(at.into());
            self.at = Some(at);
        }
    }

    /// Sets the deadline relative to now.
    pub(super) fn set_in(&mut self, wait: Duration) {
        self.set(clock::monotonic() + wait);
    }

    /// Waits until it fires. Cancel safe.
    pub(super) async fn rings(&mut self) {
        self.sleep.as_mut().await;
        self.at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_rings_for_the_earliest_time_and_then_for_the_next() {
        let mut alarm = Alarm::new();
        let began = clock::monotonic();
        alarm.set(began + Duration::from_secs(3600));
        alarm.set(began + Duration::from_millis(5));
        alarm.set(began + Duration::from_secs(7200));
        alarm.rings().await;
        assert!(clock::monotonic() >= began + Duration::from_millis(5), "not before its time");
        assert_eq!(alarm.at, None);
        let again = clock::monotonic() + Duration::from_millis(5);
        alarm.set(again);
        alarm.rings().await;
        assert!(clock::monotonic() >= again, "it can be set again");
    }
}
