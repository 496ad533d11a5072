//! Time limits of attempts.

use super::*;
use longhaul_core::task::text;

/// Regression: a task without a limit ran forever when its processor hung, and kept its slot.
#[tokio::test(start_paused = true)]
async fn a_task_without_a_limit_of_its_own_has_that_of_the_worker() {
    let config =
        WorkerConfig { max_duration: Some(5 * SECOND), max_attempts: 1, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, |context| async move {
        context.cancelled().await;
        Ok(Text("late".to_owned()))
    });
    let limits = [bench.submit(&[]), bench.submit(&[("MAX_TASK_DURATION", "PT20S")])];
    bench.run_for(60 * SECOND).await;
    for (task, seconds) in limits.into_iter().zip([5, 20]) {
        let shown = bench.shown_of(task).into_iter();
        let times: Vec<_> = shown.map(|(at, it)| (at, it.failure_reason)).collect();
        let [(start, None), (end, Some(reason))] = times.as_slice() else { panic!("{times:?}") };
        assert_eq!(((end - start) / 1_000, reason.as_str()), (seconds, text::OVER_BUDGET));
    }
}
