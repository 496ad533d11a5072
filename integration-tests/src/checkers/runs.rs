//! Checks what was really run against what the ledger allowed.

use super::{Accepted, History, Report, Run, Violation};
use longhaul::TaskId;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(history: &History, accepted: &Accepted, report: &mut Report) {
    let mut epochs = BTreeSet::new();
    let mut attempts: BTreeMap<(TaskId, u32), Vec<u32>> = BTreeMap::new();
    for run in &history.runs {
        if !epochs.insert((run.task, run.epoch)) {
            report.violations.push(Violation::RunTwice(run.task, run.epoch));
        }
        if accepted.attempts.get(&(run.task, run.epoch)) != Some(&run.attempt) {
            report.violations.push(Violation::RunWithoutClaim(run.task, run.epoch));
        }
        attempts.entry((run.task, run.attempt)).or_default().push(run.epoch);
    }
    for ((task, attempt), mut epochs) in attempts {
        epochs.sort_unstable();
        // All but the last of them must have been given back.
        epochs.pop();
        if epochs.iter().any(|epoch| !accepted.released.contains(&(task, *epoch))) {
            report.violations.push(Violation::AttemptTwice(task, attempt));
        }
    }
    report.overlaps = overlaps(&history.runs);
}

/// Pairs of attempts of one task that ran at the same time. What died with its process has no end and is left out.
fn overlaps(runs: &[Run]) -> usize {
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
