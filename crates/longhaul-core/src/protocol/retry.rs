//! The step after a failed attempt: another attempt after a delay with full jitter, or the end.

use super::entry::{AttemptCause, NextAttempt, Outcome};
use std::time::Duration;

/// How long a task waits between attempts: uniformly between zero and a ceiling that doubles with
/// each attempt, or the delays of a list.
///
/// Full jitter spreads the retries of tasks that failed together better than any fixed delay does.
///
/// ```
/// # mod longhaul { pub use longhaul_core::protocol::retry::RetryPolicy; }
/// use longhaul::RetryPolicy;
/// use std::time::Duration;
///
/// let [second, minute] = [1, 60].map(Duration::from_secs);
/// assert_eq!(RetryPolicy::exponential(second, minute).ceiling(3), 4 * second);
/// let listed = RetryPolicy::intervals([second, minute]);
/// assert_eq!((listed.ceiling(1), listed.ceiling(2)), (second, minute));
/// assert_eq!(listed.attempts(), Some(3));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The ceiling after the first attempt. Default 1 s.
    pub base: Duration,
    /// The highest ceiling. Default 5 min.
    pub max: Duration,
    /// Explicit delays, one after each attempt but the last, so that N of them make N + 1 attempts.
    /// Base and maximum then apply only to tasks that a worker cannot decode. Default: empty.
    pub intervals: Vec<Duration>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), Duration::from_secs(300))
    }
}

impl RetryPolicy {
    /// Delays below a ceiling that doubles from the first of these to the second.
    #[must_use]
    pub const fn exponential(base: Duration, max: Duration) -> Self {
        Self { base, max, intervals: Vec::new() }
    }

    /// These delays, without jitter.
    #[must_use]
    pub fn intervals(intervals: impl Into<Vec<Duration>>) -> Self {
        Self { intervals: intervals.into(), ..Self::default() }
    }

    /// Number of attempts given by the list of delays; `None` without a list.
    #[must_use]
    pub fn attempts(&self) -> Option<u32> {
        let listed = (!self.intervals.is_empty()).then_some(self.intervals.len())?;
        Some(u32::try_from(listed).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// The delay after this attempt in the list. Attempts beyond the list, claimed by a worker with
    /// another list, use the last delay.
    fn listed(&self, attempt: u32) -> Option<Duration> {
        let at = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        self.intervals.get(at).or_else(|| self.intervals.last()).map(|delay| *delay.min(&DELAY_MAX))
    }

    /// The longest delay after this attempt (the first is 1).
    #[must_use]
    pub fn ceiling(&self, attempt: u32) -> Duration {
        if let Some(delay) = self.listed(attempt) {
            return delay;
        }
        let doublings = attempt.saturating_sub(1).min(63);
        let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
        let factor = u32::try_from(factor).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max).min(DELAY_MAX)
    }

    /// The delay after this attempt, for a sample drawn uniformly from all 32-bit numbers.
    #[must_use]
    pub fn delay(&self, attempt: u32, sample: u32) -> Duration {
        if let Some(delay) = self.listed(attempt) {
            return delay;
        }
        self.ceiling(attempt).mul_f64(f64::from(sample) / f64::from(u32::MAX))
    }

    /// The delay after an attempt that will fail again until its worker is replaced, whichever
    /// attempt it was: uniformly between half the highest ceiling and all of it.
    #[must_use]
    pub fn late_delay(&self, sample: u32) -> Duration {
        let half = self.max.min(DELAY_MAX) / 2;
        half + half.mul_f64(f64::from(sample) / f64::from(u32::MAX))
    }
}

/// The shortest snooze. Each round leaves two entries on the ledger, until a claim with a base has
/// made them superfluous.
pub(crate) const SNOOZE_MIN: Duration = Duration::from_secs(1);

/// The longest recorded delay: a hundred years. Other clients read the time as a number of 63 bits.
const DELAY_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Why an attempt ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// Try again after a delay by the policy.
    Retry,
    /// Try again after this delay.
    RetryAfter(Duration),
    /// Try again after one of the longest delays of the policy: another worker may succeed by then.
    RetryLate,
    /// Do not try again.
    Fatal,
    /// Try again after this delay, without counting the attempt.
    Snooze(Duration),
}

/// The outcome of an attempt that waits until other tasks are over. If they are over already it
/// acts like the shortest snooze; otherwise a processor that waits for them repeatedly would fill
/// the ledger.
#[must_use]
pub fn outcome_of_waiting(now_ms: u64) -> Outcome {
    let delay_ms = u64::try_from(SNOOZE_MIN.as_millis()).unwrap_or(u64::MAX);
    let at_ms = now_ms.saturating_add(delay_ms);
    Outcome::Released(NextAttempt { at_ms, delay_ms, after: AttemptCause::Others })
}

/// The outcome of a failed attempt. `now_ms` is wall-clock time and only recorded.
#[must_use]
pub fn outcome_of_failure(
    failure: AttemptFailure,
    attempt: u32,
    max_attempts: u32,
    policy: &RetryPolicy,
    sample: u32,
    now_ms: u64,
) -> Outcome {
    let after = |delay: Duration| {
        let delay_ms = u64::try_from(delay.min(DELAY_MAX).as_millis()).unwrap_or(u64::MAX);
        NextAttempt::new(now_ms.saturating_add(delay_ms), delay_ms)
    };
    match failure {
        AttemptFailure::Snooze(delay) => Outcome::Released(after(delay.max(SNOOZE_MIN))),
        AttemptFailure::Fatal => Outcome::Final,
        AttemptFailure::Retry | AttemptFailure::RetryAfter(_) | AttemptFailure::RetryLate
            if attempt >= max_attempts =>
        {
            Outcome::Final
        }
        AttemptFailure::Retry => Outcome::Failed(after(policy.delay(attempt, sample))),
        AttemptFailure::RetryAfter(delay) => Outcome::Failed(after(delay)),
        AttemptFailure::RetryLate => Outcome::Failed(after(policy.late_delay(sample))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ceiling_doubles_up_to_the_maximum() {
        let policy = RetryPolicy::default();
        let seconds = |attempt| policy.ceiling(attempt).as_secs();
        assert_eq!([1, 2, 3, 9, 10, 40, u32::MAX].map(seconds), [1, 2, 4, 256, 300, 300, 300]);
    }

    #[test]
    fn the_last_attempt_fails_for_good_and_a_snooze_never_does() {
        let policy = RetryPolicy::default();
        let outcome =
            |failure, attempt| outcome_of_failure(failure, attempt, 3, &policy, u32::MAX, 10);
        assert_eq!(outcome(AttemptFailure::Retry, 3), Outcome::Final);
        assert_eq!(outcome(AttemptFailure::RetryAfter(Duration::ZERO), 3), Outcome::Final);
        assert_eq!(outcome(AttemptFailure::RetryLate, 3), Outcome::Final);
        assert_eq!(outcome(AttemptFailure::Fatal, 1), Outcome::Final);
        let next = NextAttempt::new(1010, 1000);
        assert_eq!(outcome(AttemptFailure::Retry, 1), Outcome::Failed(next));
        assert_eq!(
            outcome(AttemptFailure::Snooze(Duration::from_secs(1)), 3),
            Outcome::Released(next)
        );
    }

    /// Earlier, a processor that waited for finished tasks began again at once, as fast as the
    /// broker accepted its entries.
    #[test]
    fn waiting_for_other_tasks_lasts_a_second_at_least() {
        let next = NextAttempt { after: AttemptCause::Others, ..NextAttempt::new(1010, 1000) };
        assert_eq!(outcome_of_waiting(10), Outcome::Released(next));
        assert!(next.is_parked());
    }

    /// Earlier, a processor that snoozed for zero time filled the ledger as fast as the broker
    /// accepted entries.
    #[test]
    fn a_snooze_lasts_a_second_at_least() {
        let policy = RetryPolicy::default();
        let outcome =
            outcome_of_failure(AttemptFailure::Snooze(Duration::ZERO), 1, 3, &policy, 0, 10);
        let next = NextAttempt::new(1010, 1000);
        assert_eq!(outcome, Outcome::Released(next));
    }

    #[test]
    fn no_delay_is_too_long() {
        for policy in [
            RetryPolicy::exponential(Duration::MAX, Duration::MAX),
            RetryPolicy { max: Duration::MAX, ..RetryPolicy::intervals([Duration::MAX]) },
        ] {
            check_longest(&policy);
        }
    }

    fn check_longest(policy: &RetryPolicy) {
        let (after, snooze) =
            (AttemptFailure::RetryAfter(Duration::MAX), AttemptFailure::Snooze(Duration::MAX));
        for failure in [AttemptFailure::Retry, AttemptFailure::RetryLate, after, snooze] {
            match outcome_of_failure(failure, 1, 3, policy, u32::MAX, 10) {
                Outcome::Failed(next) | Outcome::Released(next) => {
                    assert!(next.at_ms < u64::MAX / 2 && next.delay_ms > 1_000_000_000);
                }
                Outcome::Completed | Outcome::Final | Outcome::Cancelled => panic!("no delay"),
            }
        }
    }

    #[test]
    fn listed_delays_are_what_the_list_says_and_one_attempt_more() {
        let seconds = [1, 10, 60].map(Duration::from_secs);
        let policy = RetryPolicy::intervals(seconds);
        assert_eq!((policy.attempts(), RetryPolicy::default().attempts()), (Some(4), None));
        for sample in [0, 7, u32::MAX] {
            let delays = [1, 2, 3, 4, u32::MAX].map(|attempt| policy.delay(attempt, sample));
            assert_eq!(delays, [seconds[0], seconds[1], seconds[2], seconds[2], seconds[2]]);
        }
        let last = outcome_of_failure(AttemptFailure::Retry, 4, 4, &policy, 0, 10);
        let next = outcome_of_failure(AttemptFailure::Retry, 2, 4, &policy, 0, 10);
        assert_eq!(
            (last, next),
            (Outcome::Final, Outcome::Failed(NextAttempt::new(10_010, 10_000)))
        );
    }

    /// Earlier, a backoff that did not grow passed all tests: they covered the first attempt, and
    /// delays that could also be zero.
    #[test]
    fn the_delay_is_the_drawn_part_of_a_ceiling_that_grows_with_the_attempt() {
        let policy = RetryPolicy::default();
        for (attempt, seconds) in [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300)] {
            let ceiling = Duration::from_secs(seconds);
            assert_eq!(policy.delay(attempt, u32::MAX), ceiling);
            assert_eq!(policy.delay(attempt, 0), Duration::ZERO);
            let half = policy.delay(attempt, u32::MAX / 2);
            assert!(
                half.abs_diff(ceiling / 2) < Duration::from_millis(1),
                "{half:?} of {ceiling:?}"
            );
            let max = attempt + 1;
            let outcome =
                outcome_of_failure(AttemptFailure::Retry, attempt, max, &policy, u32::MAX, 0);
            let next = NextAttempt::new(1_000 * seconds, 1_000 * seconds);
            assert_eq!(outcome, Outcome::Failed(next));
        }
    }

    /// Earlier, a worker of an old version read a task of a new one three times within two seconds
    /// and failed it for good.
    #[test]
    fn a_late_delay_is_long_after_the_first_attempt_too() {
        let policy = RetryPolicy::default();
        for (sample, seconds) in [(0, 150), (u32::MAX, 300)] {
            let outcome = outcome_of_failure(AttemptFailure::RetryLate, 1, 3, &policy, sample, 10);
            let delay_ms = 1000 * seconds;
            assert_eq!(outcome, Outcome::Failed(NextAttempt::new(10 + delay_ms, delay_ms)));
        }
    }

    proptest! {
        /// Earlier, a delay that was always zero passed: only the ceiling was checked.
        #[test]
        fn delay_spreads_from_zero_to_its_ceiling(attempt in 0..100_u32, sample: u32) {
            let policy = RetryPolicy::default();
            let (delay, ceiling) = (policy.delay(attempt, sample), policy.ceiling(attempt));
            prop_assert!(delay <= ceiling);
            let share = delay.as_secs_f64() / ceiling.as_secs_f64();
            prop_assert!((share - f64::from(sample) / f64::from(u32::MAX)).abs() < 1e-6);
            prop_assert_eq!(policy.delay(attempt, 0), Duration::ZERO);
            prop_assert_eq!(policy.delay(attempt, u32::MAX), ceiling);
        }
    }
}
