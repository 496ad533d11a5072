//! Histograms of durations.

use std::time::Duration;

/// Upper bounds of the histogram's classes. Longer times have a class of their own.
pub const TIME_BOUNDS: [Duration; 13] = [
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_millis(1000),
    Duration::from_millis(5000),
];

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// Sum of all durations.
    pub total: Duration,
    /// Number of durations per class of [`TIME_BOUNDS`], and of longer ones.
    pub counts: [u64; TIME_BOUNDS.len() + 1],
}

impl DurationHistogram {
    /// Adds a duration.
    pub fn note(&mut self, took: Duration) {
        self.total += took;
        let class = TIME_BOUNDS.partition_point(|&bound| bound < took);
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1;
        }
    }

    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[test]
fn a_time_falls_into_the_first_class_that_has_it() {
    let mut times = DurationHistogram::default();
    for micros in [0, 100, 101, 3_000, 1_000_000, 1_000_001, 9_000_000] {
        times.note(Duration::from_micros(micros));
    }
    assert_eq!(times.counts, [2, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1]);
    assert_eq!((times.total, times.count()), (Duration::from_micros(11_003_202), 7));
}
