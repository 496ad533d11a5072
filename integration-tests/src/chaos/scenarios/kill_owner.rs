//! kill -9 of the owner during a task; another, idle worker starts it.

use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::Script;
use crate::chaos::{Host, Options, Row};
use anyhow::{Context, Result};
use longhaul::TaskState;
use std::ops::Range;
use std::time::Duration;
use tokio::time::sleep;

/// When an idle worker shows the next attempt of a task whose owner falls silent: after two
/// heartbeat intervals since the last heartbeat, which is up to one old, and with as much again for
/// a busy machine.
pub(super) fn takeover(heartbeat: Duration) -> Range<Duration> {
    heartbeat..4 * heartbeat
}

/// The time limit until an attempt starts.
const START_LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let rounds = options.tasks.unwrap_or(if options.short { 1 } else { 10 });
    let workers = options.workers.unwrap_or(2);
    let settings = Settings::default();
    let heartbeat = settings.heartbeat;
    let mut bench = Bench::new(host, "kill-owner", options, settings).await?;
    bench.fleet.start_ready(workers).await?;
    let mut kills = Vec::new();
    for _ in 0..rounds {
        let script = Script::new("sleep 60000,ok first|sleep 200,ok second");
        let task = *bench.submit(vec![script]).await?.first().context("no receipt")?;
        let (owner, _) = bench.fleet.run_of(task, 1, START_LIMIT).await?;
        // At any point between two heartbeats.
        let middle = Duration::from_millis(bench.rng.u64(200..1200));
        sleep(middle).await;
        let killed_ms = bench.fleet.kill(owner).await?;
        bench.fleet.run_of(task, 2, START_LIMIT).await?;
        kills.push((task, killed_ms));
        bench.fleet.start_ready(1).await?;
    }
    let (history, _) = bench.finish(START_LIMIT).await?;
    let mut latencies = Vec::new();
    for (task, killed_ms) in kills {
        let shown = history.view.iter().find(|shown| {
            let second =
                |m: &longhaul::TaskMetadata| m.state == TaskState::Processing && m.attempts == 2;
            shown.key == task.to_string() && shown.metadata.as_ref().is_some_and(second)
        });
        let shown = shown.context("attempt 2 was never shown")?;
        latencies.push(shown.publish_time_ms.saturating_sub(killed_ms));
    }
    bench.row.within("kill_to_PROCESSING(2) min/p50/max", latencies, takeover(heartbeat));
    bench.row.figure("H_ms", u64::try_from(heartbeat.as_millis())?);
    Ok(vec![bench.into_row()])
}
