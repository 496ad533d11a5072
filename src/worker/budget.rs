//! The budget that a task's message may carry: an ISO 8601 duration in the property `MAX_TASK_DURATION`; and when it is used up.

use crate::clock::{Clock, runtime_now};
use crate::protocol::moment::Moment;
use jiff::{SignedDuration, Span, SpanRelativeTo};
use std::time::Duration;

/// The longest budget that is written: a hundred years. A longer one is none.
const BUDGET_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// No duration needs a longer text.
const TEXT_BYTES_MAX: usize = 100;

/// Text or duration cannot be a budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a budget: `{text}`: {problem}")]
pub(crate) struct BudgetError {
    text: String,
    problem: String,
}

/// Reads a budget as the reference's clients write it: ISO 8601 with days, hours, minutes and seconds, above zero.
///
/// # Errors
/// For other forms (`1h`, weeks), for zero and for negative durations.
pub(super) fn parse_budget(text: &str) -> Result<Duration, BudgetError> {
    const SHOWN_MAX: usize = 40;
    let error =
        |problem: String| BudgetError { text: text.chars().take(SHOWN_MAX).collect(), problem };
    if text.len() > TEXT_BYTES_MAX {
        return Err(error(format!("it has more than {TEXT_BYTES_MAX} bytes")));
    }
    let unsigned = text.trim_start_matches(['+', '-']);
    if !unsigned.starts_with(['P', 'p']) || unsigned.contains(['W', 'w']) {
        return Err(error("expected an ISO 8601 duration such as PT1H30M".to_owned()));
    }
    let span: Span = text.parse().map_err(|cause: jiff::Error| error(cause.to_string()))?;
    let signed = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|cause| error(cause.to_string()))?;
    match Duration::try_from(signed) {
        Ok(budget) if !budget.is_zero() => Ok(budget),
        _ => Err(error("it must be above zero".to_owned())),
    }
}

/// What limits an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// `None`: nothing does.
    pub(super) limit: Option<Duration>,
    /// Why it is not what the task's message says.
    pub(super) problem: Option<BudgetError>,
}

/// What limits an attempt: what the message of its task says or, where it says nothing or nonsense, what the worker does by itself.
pub(super) fn budget_of(property: Option<&str>, by_default: Option<Duration>) -> Budget {
    match property.map(parse_budget) {
        None => Budget { limit: by_default, problem: None },
        Some(Ok(limit)) => Budget { limit: Some(limit), problem: None },
        Some(Err(error)) => Budget { limit: by_default, problem: Some(error) },
    }
}

/// Writes a budget: ISO 8601 with hours, minutes and seconds, as the reference's clients read it.
///
/// # Errors
/// For zero, and for more than a hundred years.
pub(crate) fn format_budget(budget: Duration) -> Result<String, BudgetError> {
    let error =
        |problem: &str| BudgetError { text: format!("{budget:?}"), problem: problem.to_owned() };
    if budget.is_zero() {
        return Err(error("it must be above zero"));
    }
    match SignedDuration::try_from(budget) {
        Ok(signed) if budget <= BUDGET_MAX => Ok(signed.to_string()),
        _ => Err(error("it must be at most a hundred years")),
    }
}

/// When the budget of an attempt is used up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deadline {
    /// By the clock that goes on while the machine is suspended.
    Clock {
        clock: Clock,
        at: Moment,
        /// Timers stand still while the machine is suspended, so the clock is looked at again this often.
        look_every: Duration,
    },
    /// By tokio's clock, which the unit test of a processor may pause.
    Runtime(tokio::time::Instant),
}

impl Deadline {
    /// What is left of the budget.
    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Self::Clock { clock, at, .. } => at.since(clock.now()),
            Self::Runtime(at) => at.saturating_duration_since(runtime_now()),
        }
    }

    /// Resolves when nothing is left.
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
    use proptest::prelude::*;

    /// A machine that was suspended for an hour once let a budget of a minute run on for a minute after it woke up.
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

    #[test]
    fn durations_of_the_reference_are_read() {
        let seconds = |text| parse_budget(text).map(|budget| budget.as_secs_f64()).ok();
        assert_eq!(seconds("PT3S"), Some(3.0));
        assert_eq!(seconds("PT0.5S"), Some(0.5));
        assert_eq!(seconds("P1DT2H3M4.5S"), Some(93_784.5));
        assert_eq!(seconds("PT36H"), Some(129_600.0));
        assert_eq!(seconds("+PT5S"), Some(5.0));
    }

    #[test]
    fn everything_else_is_refused_and_named() {
        for text in
            ["", "P", "PT", "P1H", "1h", "PT0S", "-PT5S", "P2W", "P1M", "PT-5S", "PT5S ", "é"]
        {
            let error = parse_budget(text).expect_err(text);
            assert!(error.to_string().starts_with("not a budget: `"), "{error}");
        }
    }

    #[test]
    fn what_is_no_budget_leaves_the_one_of_the_worker() {
        let (own, given) = (Some(Duration::from_secs(9)), Duration::from_secs(1));
        let (none, good, bad) = (None, Some("PT1S"), Some("1h"));
        for by_default in [None, own] {
            assert_eq!(budget_of(none, by_default), Budget { limit: by_default, problem: None });
            assert_eq!(budget_of(good, by_default), Budget { limit: Some(given), problem: None });
            let Budget { limit, problem } = budget_of(bad, by_default);
            assert_eq!((limit, problem.is_some()), (by_default, true));
        }
    }

    /// A property may have megabytes, and what is wrong with it is told in a message.
    #[test]
    fn the_error_about_a_long_text_is_short() {
        let error = parse_budget(&format!("PT{}S", "1".repeat(1_000_000))).unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
    }

    #[test]
    fn budgets_are_written_as_the_reference_reads_them() {
        let text = |seconds| format_budget(Duration::from_secs_f64(seconds));
        assert_eq!(text(5400.0).as_deref(), Ok("PT1H30M"));
        assert_eq!(text(0.5).as_deref(), Ok("PT0.5S"));
        assert_eq!(text(129_600.0).as_deref(), Ok("PT36H"));
        assert!(format_budget(Duration::ZERO).is_err());
        assert!(format_budget(Duration::MAX).is_err());
    }

    proptest! {
        #[test]
        fn a_written_budget_reads_back(seconds in 0..BUDGET_MAX.as_secs(), nanos in 1..1_000_000_000_u32) {
            let budget = Duration::new(seconds, nanos);
            prop_assert_eq!(parse_budget(&format_budget(budget).unwrap()), Ok(budget));
        }
    }
}
