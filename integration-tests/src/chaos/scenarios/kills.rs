//! Many kill -9, each worker restarted at once.

use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::Script;
use crate::chaos::{Host, Options, Row};
use anyhow::Result;
use std::time::Duration;
use tokio::time::sleep;

/// The time limit for the remaining tasks after the last kill.
const REST_LIMIT: Duration = Duration::from_secs(180);

/// Enough tasks that the workers are still busy at the last kill.
const TASKS_PER_KILL: usize = 15;

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let kills = options.faults.unwrap_or(if options.short { 3 } else { 20 });
    let tasks = options.tasks.unwrap_or(TASKS_PER_KILL * kills);
    let settings = Settings { max_attempts: 50, ..Settings::default() };
    let mut bench = Bench::new(host, "kills", options, settings).await?;
    bench.fleet.start_ready(options.workers.unwrap_or(4)).await?;
    bench.submit(vec![Script::sleep(1000); tasks]).await?;
    for _ in 0..kills {
        let pause = Duration::from_millis(bench.rng.u64(400..1600));
        sleep(pause).await;
        let alive = bench.fleet.alive();
        let Some(victim) = bench.rng.choice(alive) else { break };
        bench.fleet.kill(victim).await?;
        bench.fleet.start()?;
    }
    let (history, _) = bench.finish(REST_LIMIT).await?;
    let times =
        || history.ledger.iter().filter(|e| e.entry.as_ref().is_ok_and(|e| e.task().is_some()));
    let first = times().map(|entry| entry.publish_time_ms).min().unwrap_or_default();
    let last = times().map(|entry| entry.publish_time_ms).max().unwrap_or_default();
    bench.row.figure("tasks", tasks);
    bench.row.figure("kills", kills);
    bench.row.figure("runs", history.runs.len());
    bench.row.figure("whole_ms", last.saturating_sub(first));
    Ok(vec![bench.into_row()])
}
