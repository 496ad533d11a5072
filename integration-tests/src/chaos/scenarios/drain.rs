//! SIGTERM of a worker under load.

use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::Script;
use crate::chaos::{Host, Options, Row};
use anyhow::{Context, Result};
use longhaul::TaskId;
use longhaul_core::protocol::entry::{Done, Entry, Outcome};
use proofs::checkers::History;
use rustix::process::Signal;
use std::ops::Range;
use std::time::Duration;
use tokio::time::sleep;

const END_LIMIT: Duration = Duration::from_secs(60);
const REST_LIMIT: Duration = Duration::from_secs(180);
/// How long a worker takes to end after its drain time, and a released task to its next claim where
/// a slot is free. Generous, since the machine may be busy.
const EXIT_MAX: Duration = Duration::from_secs(2);
const MOVE_MAX: Duration = Duration::from_secs(2);

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let (full, spare) = if options.short { (24, 6) } else { (96, 12) };
    let full = options.tasks.unwrap_or(full);
    Ok(vec![
        one(host, options, "drain: every slot taken", (full, false), 1000..8000).await?,
        one(host, options, "drain: slots to spare", (spare, true), 8000..9000).await?,
    ])
}

async fn one(
    host: &Host,
    options: &Options,
    name: &str,
    (count, has_slots): (usize, bool),
    run_ms: Range<u64>,
) -> Result<Row> {
    let drain = Duration::from_secs(if options.short { 1 } else { 2 });
    let settings = Settings {
        drain,
        heartbeat: Duration::from_secs(10),
        concurrency: 8,
        ..Settings::default()
    };
    let mut bench = Bench::new(host, "drain", options, settings).await?;
    bench.row.scenario = name.to_owned();
    bench.fleet.start_ready(options.workers.unwrap_or(3)).await?;
    let scripts = (0..count).map(|_| Script::sleep(bench.rng.u64(run_ms.clone()))).collect();
    bench.submit(scripts).await?;
    sleep(Duration::from_secs(2)).await;
    let alive = bench.fleet.alive();
    let victim = bench.rng.choice(alive).context("no worker")?;
    let asked_ms = bench.fleet.signal(victim, Signal::TERM)?;
    let ended_ms = bench.fleet.ended(victim, END_LIMIT).await?;
    let unfinished = bench
        .fleet
        .runs_of(victim)?
        .iter()
        .filter(|run| run.ended_us.is_some_and(|us| us / 1000 > asked_ms))
        .count();
    let (history, report) = bench.finish(REST_LIMIT).await?;
    let row = &mut bench.row;
    if report.attempt_max > 1 {
        row.violations.push(format!("a drain cost an attempt: {}", report.attempt_max));
    }
    row.figure("tasks", count);
    row.figure("drain_ms", u64::try_from(drain.as_millis())?);
    row.within("SIGTERM_to_exit", vec![ended_ms - asked_ms], Duration::ZERO..drain + EXIT_MAX);
    row.figure("running_at_SIGTERM", unfinished);
    row.figure("released", report.released);
    let moves = moves(&history);
    if has_slots && report.released > 0 {
        row.within("released_to_next_claim min/p50/max", moves, Duration::ZERO..MOVE_MAX);
    } else {
        row.spread("released_to_next_claim min/p50/max", moves);
    }
    Ok(bench.into_row())
}

/// How long each released task waited for its next claim.
fn moves(history: &History) -> Vec<u64> {
    let mut waits = Vec::new();
    for (at, released) in history.ledger.iter().enumerate() {
        let Ok(Entry::Done(Done { outcome: Outcome::Released(_), key, .. })) = &released.entry
        else {
            continue;
        };
        let next = history.ledger.iter().skip(at).find(|entry| claims(&entry.entry, key.task));
        waits
            .extend(next.map(|next| next.publish_time_ms.saturating_sub(released.publish_time_ms)));
    }
    waits
}

fn claims(entry: &Result<Entry, String>, task: TaskId) -> bool {
    matches!(entry, Ok(Entry::Claim(claim)) if claim.key.task == task)
}
