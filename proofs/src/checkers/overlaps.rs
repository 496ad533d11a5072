//! Counts attempts of one task that ran at the same time. They are not forbidden.

use super::Run;
use longhaul::TaskId;
use std::collections::BTreeMap;

/// Number of pairs of attempts of one task that ran at the same time. An attempt that died with its
/// process has no end and is left out.
pub(super) fn count(runs: &[Run]) -> usize {
    let mut by_task: BTreeMap<TaskId, Vec<(u64, u64)>> = BTreeMap::new();
    for run in runs {
        if let Some(ended) = run.ended_us {
            by_task.entry(run.task).or_default().push((run.started_us, ended));
        }
    }
    let mut count = 0;
    for mut spans in by_task.into_values() {
        spans.sort_unstable();
        count += spans.windows(2).filter(|pair| matches!(pair, [a, b] if b.0 < a.1)).count();
    }
    count
}
