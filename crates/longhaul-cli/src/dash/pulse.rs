//! How long a worker has been silent, and how many heartbeats are missing. Pure.
//!
//! Heartbeats carry the time of the worker's clock, which may differ from the local clock. The
//! difference is learned from heartbeats seen live.

use std::collections::VecDeque;

/// The default heartbeat interval of workers.
const INTERVAL_MS: u64 = 10_000;

/// The number of distances between heartbeats kept. Their median is the interval: one missed or
/// extra heartbeat does not change it.
const GAPS_MAX: usize = 5;

/// The heartbeats seen of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// The last one, in ms since the epoch by the worker's clock.
    last_ms: u64,
    /// How far the local clock is ahead of the worker's, as far as known.
    ahead_ms: i64,
    /// A heartbeat was seen live, so `ahead_ms` is more than a guess.
    is_live: bool,
    /// Distances between heartbeats, newest last.
    gaps: VecDeque<u64>,
}

impl Pulse {
    /// The first heartbeat seen, which may be old.
    pub(crate) fn new(last_ms: u64, now_ms: u64) -> Self {
        let ahead_ms = distance(last_ms, now_ms).min(0);
        Self { last_ms, ahead_ms, is_live: false, gaps: VecDeque::new() }
    }

    /// Takes the last heartbeat from an answer.
    pub(crate) fn hear(&mut self, last_ms: u64, now_ms: u64) {
        if last_ms <= self.last_ms {
            return;
        }
        self.gaps.push_back(last_ms - self.last_ms);
        if self.gaps.len() > GAPS_MAX {
            self.gaps.pop_front();
        }
        self.last_ms = last_ms;
        let seen = distance(last_ms, now_ms);
        self.ahead_ms = if self.is_live { self.ahead_ms.min(seen) } else { seen };
        self.is_live = true;
    }

    /// The silence in ms.
    pub(crate) fn silence_ms(&self, now_ms: u64) -> u64 {
        u64::try_from(distance(self.last_ms, now_ms).saturating_sub(self.ahead_ms)).unwrap_or(0)
    }

    /// The number of missed heartbeats. One that is less than half an interval late is not missed
    /// yet.
    pub(crate) fn missed(&self, now_ms: u64) -> u64 {
        let interval = self.interval_ms();
        let late = (2 * self.silence_ms(now_ms)).saturating_sub(interval);
        late.checked_div(2 * interval).unwrap_or_default()
    }

    fn interval_ms(&self) -> u64 {
        let mut gaps: Vec<_> = self.gaps.iter().copied().collect();
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied().unwrap_or(INTERVAL_MS)
    }
}

/// The time from one instant to another, possibly negative.
fn distance(from_ms: u64, to_ms: u64) -> i64 {
    let ms = i128::from(to_ms) - i128::from(from_ms);
    i64::try_from(ms).unwrap_or(if ms < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_in_intervals() {
        let pulse = Pulse::new(1_000_000, 1_000_000);
        for (silence, missed) in
            [(0, 0), (10_000, 0), (14_999, 0), (15_000, 1), (24_999, 1), (25_000, 2), (95_000, 9)]
        {
            let now = 1_000_000 + silence;
            assert_eq!((pulse.silence_ms(now), pulse.missed(now)), (silence, missed));
        }
    }

    #[test]
    fn the_interval_is_learned_from_what_comes() {
        let mut pulse = Pulse::new(100_000, 100_000);
        for beat in 1..4 {
            pulse.hear(100_000 + 2_000 * beat, 100_300 + 2_000 * beat);
        }
        assert_eq!(pulse.missed(106_300 + 2_999), 0);
        assert_eq!(pulse.missed(106_300 + 3_000), 1);
        // One long silence does not change the interval.
        pulse.hear(206_000, 206_300);
        assert_eq!(pulse.missed(206_300 + 5_000), 2);
    }

    /// A worker whose clock is five minutes behind must not look dead.
    #[test]
    fn a_clock_that_differs_is_no_silence() {
        for skew in [-300_000_i64, 300_000] {
            let at = |ms: u64| ms.checked_add_signed(skew).unwrap();
            let mut pulse = Pulse::new(at(1_000_000), 1_000_000);
            pulse.hear(at(1_010_000), 1_010_200);
            assert_eq!(pulse.silence_ms(1_010_200), 0);
            assert_eq!(pulse.silence_ms(1_030_200), 20_000);
            assert_eq!(pulse.missed(1_030_200), 1);
        }
    }

    /// The first answer after an outage shows old heartbeats.
    #[test]
    fn what_came_while_nobody_looked_is_as_old_as_it_is() {
        let mut pulse = Pulse::new(1_000_000, 1_000_100);
        pulse.hear(1_010_000, 1_010_100);
        pulse.hear(1_020_000, 1_080_100);
        assert_eq!(pulse.silence_ms(1_080_100), 60_000);
    }

    #[test]
    fn a_worker_that_was_silent_before_it_was_looked_at_is_silent() {
        let mut pulse = Pulse::new(1_000_000, 1_060_000);
        pulse.hear(1_000_000, 1_061_000);
        assert_eq!((pulse.silence_ms(1_061_000), pulse.missed(1_061_000)), (61_000, 5));
    }
}
