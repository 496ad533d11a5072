//! MAX_TASK_DURATION with a much longer keep-alive.

use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::Script;
use crate::chaos::{Host, Options, Row};
use anyhow::Result;
use longhaul::{TaskMetadata, TaskState};
use std::time::Duration;

const REST_LIMIT: Duration = Duration::from_secs(60);
/// The budget of each task.
const BUDGET: Duration = Duration::from_secs(2);
/// How much earlier than its start an attempt may be recorded or shown, and how late its end may be
/// on a busy machine.
const EARLY: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(1);

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    // With a grace the processor lives long enough to record the notification; without one FAILED
    // comes at once.
    for (name, grace) in [("budget grace 0", 0), ("budget grace 1 s", 1000)] {
        let grace = Duration::from_millis(grace);
        rows.push(one(host, options, name, grace).await?);
    }
    Ok(rows)
}

async fn one(host: &mut Host, options: &Options, name: &str, grace: Duration) -> Result<Row> {
    let count = options.tasks.unwrap_or(if options.short { 2 } else { 50 });
    let settings = Settings {
        cancel_grace: grace,
        max_attempts: 1,
        concurrency: count,
        heartbeat: Duration::from_secs(10),
        ..Settings::default()
    };
    let mut bench = Bench::new(host, "budget", options, settings).await?;
    bench.row.scenario = name.to_owned();
    bench.fleet.start_ready(1).await?;
    let scripts = vec![Script::sleep(30_000).budget("PT2S"); count];
    let tasks = bench.submit(scripts).await?;
    let (history, report) = bench.finish(REST_LIMIT).await?;
    let told =
        history.runs.iter().filter_map(|run| Some((run.cancelled_us? - run.started_us) / 1000));
    let ended = history.runs.iter().filter_map(|run| Some((run.ended_us? - run.started_us) / 1000));
    let shown = tasks.iter().filter_map(|task| {
        let at = |state: TaskState| {
            let is = |m: &TaskMetadata| m.state == state;
            let mut shown = history.view.iter().filter(|shown| shown.key == task.to_string());
            shown.find(|s| s.metadata.as_ref().is_some_and(is)).map(|s| s.publish_time_ms)
        };
        Some(at(TaskState::Failed)? - at(TaskState::Processing)?)
    });
    let row = &mut bench.row;
    let told_at = BUDGET - EARLY..BUDGET + LATE;
    // The processor does not listen, so it is ended after the grace.
    let ended_at = told_at.start + grace..told_at.end + grace;
    if !grace.is_zero() {
        row.within("start_to_cancelled min/p50/max", told.collect(), told_at);
        row.within("start_to_end min/p50/max", ended.collect(), ended_at.clone());
    }
    row.within("PROCESSING_to_FAILED min/p50/max", shown.collect(), ended_at);
    if report.failed != count {
        row.violations.push(format!("{} of {count} went over their budget", report.failed));
    }
    Ok(bench.into_row())
}
