//! An outage of the broker, with running tasks.

use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::Script;
use crate::chaos::{Host, Options, Row, wall_ms};
use anyhow::Result;
use proofs::checkers::Run;
use std::time::Duration;
use tokio::time::sleep;

const START_LIMIT: Duration = Duration::from_secs(60);
const REST_LIMIT: Duration = Duration::from_secs(300);

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let (outages, heartbeat): (&[u64], u64) =
        if options.short { (&[3], 1) } else { (&[60, 180], 10) };
    let mut rows = Vec::new();
    for seconds in outages {
        let (outage, heartbeat) = (Duration::from_secs(*seconds), Duration::from_secs(heartbeat));
        rows.push(one(host, options, outage, heartbeat).await?);
    }
    Ok(rows)
}

async fn one(
    host: &mut Host,
    options: &Options,
    outage: Duration,
    heartbeat: Duration,
) -> Result<Row> {
    let workers = options.workers.unwrap_or(3);
    let tasks = options.tasks.unwrap_or(if options.short { 6 } else { 24 });
    let concurrency = tasks.div_ceil(workers) + 1;
    let settings = Settings { heartbeat, concurrency, ..Settings::default() };
    let mut bench = Bench::new(host, "outage", options, settings).await?;
    bench.fleet.start_ready(workers).await?;
    // Some tasks end during the outage, some after it. As many again wait for a slot.
    let whole = u64::try_from(outage.as_millis())? + 15_000;
    let long = (0..tasks).map(|_| Script::sleep(bench.rng.u64(whole / 4..whole * 3 / 2)));
    let scripts = long.chain(vec![Script::sleep(1000); tasks]).collect();
    let ids = bench.submit(scripts).await?;
    crate::wait::until("tasks running", START_LIMIT, async || {
        Ok((bench.fleet.runs()?.len() >= tasks).then_some(()))
    })
    .await?;
    sleep(2 * heartbeat).await;
    let broker = host.own()?;
    let from = wall_ms();
    broker.stop().await?;
    sleep(outage).await;
    broker.start().await?;
    let back = wall_ms();
    let (history, report) = bench.finish(REST_LIMIT + 4 * outage).await?;
    let row = &mut bench.row;
    let running = |task| {
        let mine = |run: &&Run| run.task == task && run.started_us / 1000 < from;
        history.runs.iter().filter(mine).any(|run| run.ended_us.is_none_or(|us| us / 1000 > from))
    };
    let moved = report.folds.iter().filter(|(task, fold)| fold.epoch.0 != 1 && running(**task));
    for (task, fold) in moved {
        row.violations.push(format!("{task} needed epoch {}: an outage is no reason", fold.epoch));
    }
    if report.takeovers > 0 || report.attempt_max > 1 {
        row.violations.push("a task was taken over, or an attempt burned".to_owned());
    }
    // A claim in progress at the start of the outage may be read back too late, and is then
    // released.
    row.figure("claims_given_back", report.released);
    let during = |us: u64| us / 1000 > from && us / 1000 < back;
    let ended_during: Vec<_> = history
        .runs
        .iter()
        .filter(|run| run.ended_us.is_some_and(during))
        .map(|run| run.task)
        .collect();
    let delays = history.ledger.iter().filter_map(|entry| {
        let done = entry.entry.as_ref().ok()?;
        let terminal = report.folds.get(&done.task()?)?.phase.is_terminal();
        let late = entry.publish_time_ms >= back && ended_during.contains(&done.task()?);
        (terminal && late).then(|| entry.publish_time_ms - back)
    });
    row.figure("away_ms", back - from);
    row.figure("tasks", ids.len());
    row.figure("ended_while_away", ended_during.len());
    row.spread("back_to_their_outcome min/p50/max", delays.collect());
    Ok(bench.into_row())
}
