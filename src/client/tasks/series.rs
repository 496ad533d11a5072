//! Throughput and latencies of a queue, by steps of equal length. Pure.

use super::TaskStatus;

/// The most steps of a series.
pub(super) const STEPS_MAX: usize = 1_440;

/// One step of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskStep {
    /// When the step began, in ms since the epoch.
    pub from_ms: u64,
    /// Tasks that were submitted.
    pub submitted: u64,
    /// Tasks that completed.
    pub completed: u64,
    /// Tasks that ended without completing: failed for good, cancelled or expired.
    pub not_completed: u64,
    /// How many of these were cancelled.
    pub cancelled: u64,
    /// The median time from submission to end of the completed tasks, in ms.
    pub latency_p50_ms: Option<u64>,
    /// The 95th percentile of the same time, in ms.
    pub latency_p95_ms: Option<u64>,
}

/// Counts tasks by the steps in which they were submitted and ended.
#[derive(Debug)]
pub(super) struct SeriesBuilder {
    from_ms: u64,
    step_ms: u64,
    steps: Vec<(TaskStep, Vec<u64>)>,
}

impl SeriesBuilder {
    /// Steps of this length. The last one contains `to_ms`. Steps begin at multiples of their
    /// length, so that repeated queries get the same steps.
    pub(super) fn new(to_ms: u64, step_ms: u64, steps: usize) -> Self {
        let (step_ms, steps) = (step_ms.max(1), steps.clamp(1, STEPS_MAX));
        let last_ms = to_ms - to_ms % step_ms;
        let from_ms = last_ms.saturating_sub(step_ms.saturating_mul(steps as u64 - 1));
        let step = |at: usize| {
            let from_ms = from_ms.saturating_add(step_ms.saturating_mul(at as u64));
            (TaskStep { from_ms, ..TaskStep::default() }, Vec::new())
        };
        Self { from_ms, step_ms, steps: (0..steps).map(step).collect() }
    }

    fn step_of(&mut self, at_ms: u64) -> Option<&mut (TaskStep, Vec<u64>)> {
        let at = at_ms.checked_sub(self.from_ms)? / self.step_ms;
        self.steps.get_mut(usize::try_from(at).ok()?)
    }

    pub(super) fn add(&mut self, status: TaskStatus, created_ms: u64, changed_ms: u64) {
        if let Some((step, _)) = self.step_of(created_ms) {
            step.submitted += 1;
        }
        if !status.is_terminal() {
            return;
        }
        let Some((step, took)) = self.step_of(changed_ms) else { return };
        if status == TaskStatus::Completed {
            step.completed += 1;
            took.push(changed_ms.saturating_sub(created_ms));
        } else {
            step.not_completed += 1;
            step.cancelled += u64::from(status == TaskStatus::Cancelled);
        }
    }

    /// The steps, the oldest first.
    pub(super) fn finish(self) -> Vec<TaskStep> {
        let finish = |(mut step, mut took): (TaskStep, Vec<u64>)| {
            took.sort_unstable();
            step.latency_p50_ms = below(&took, 50);
            step.latency_p95_ms = below(&took, 95);
            step
        };
        self.steps.into_iter().map(finish).collect()
    }
}

/// The smallest value that `percent` of 100 values do not exceed.
fn below(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_count_where_they_were_submitted_and_where_they_ended() {
        let mut series = SeriesBuilder::new(1_029, 10, 3);
        series.add(TaskStatus::Completed, 1_000, 1_009);
        series.add(TaskStatus::Completed, 900, 1_005);
        series.add(TaskStatus::Failed, 1_010, 1_020);
        series.add(TaskStatus::Cancelled, 900, 1_020);
        series.add(TaskStatus::Running, 1_019, 1_029);
        series.add(TaskStatus::Completed, 900, 999);
        series.add(TaskStatus::Completed, 1_030, 1_031);
        let steps = series.finish();
        let seen: Vec<_> = steps
            .iter()
            .map(|step| (step.from_ms, step.submitted, step.completed, step.not_completed))
            .collect();
        assert_eq!(seen, [(1_000, 1, 2, 0), (1_010, 2, 0, 0), (1_020, 0, 0, 2)]);
        let first = steps.first().unwrap();
        assert_eq!((first.latency_p50_ms, first.latency_p95_ms), (Some(9), Some(105)));
        let last = steps.last().unwrap();
        assert_eq!((last.cancelled, last.latency_p50_ms), (1, None));
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(
            (below(&hundred, 50), below(&hundred, 95), below(&[7], 95), below(&[], 50)),
            (Some(50), Some(95), Some(7), None)
        );
    }

    #[test]
    fn odd_questions_have_an_answer() {
        assert_eq!(SeriesBuilder::new(5, 0, 0).finish().len(), 1);
        assert_eq!(SeriesBuilder::new(u64::MAX, u64::MAX, usize::MAX).finish().len(), STEPS_MAX);
        assert_eq!(SeriesBuilder::new(0, 60_000, 60).finish().len(), 60);
    }
}
