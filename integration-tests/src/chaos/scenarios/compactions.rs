//! Ledger and metadata topic compacted, and workers killed and frozen, in random order, under load.

use super::faults::{Submitters, bench, rest};
use crate::chaos::bench::Bench;
use crate::chaos::{Host, Options, Row};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::sleep;

/// Two of four faults are kills, one is a freeze, and one a compaction of both topics.
const KILLS: usize = 2;
/// The most workers frozen at a time: the others must continue.
const FROZEN_MAX: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Freeze,
    Compact,
}

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    // With 80 faults: 40 kills, 20 freezes, 20 compactions.
    let rounds = options.faults.unwrap_or(if options.short { 12 } else { 80 }).div_ceil(4);
    let options = &Options { workers: options.workers.or(Some(4)), ..options.clone() };
    let mut bench = bench(host, "compactions", options).await?;
    // Only requested compactions count here.
    bench.compactor.stop().await;
    let mut faults = Vec::new();
    for _ in 0..rounds {
        faults.extend([Fault::Kill; KILLS]);
        faults.extend([Fault::Freeze, Fault::Compact]);
    }
    bench.rng.shuffle(&mut faults);
    let submitters = Submitters::new(&mut bench);
    submitters.during(async |_| strike(&mut bench, faults).await).await?;
    bench.row.figure("kills", KILLS * rounds);
    bench.row.figure("freezes", rounds);
    bench.row.figure("compactions_under_load", 2 * rounds);
    rest(&mut bench).await?;
    Ok(vec![bench.into_row()])
}

async fn strike(bench: &mut Bench, faults: Vec<Fault>) -> Result<()> {
    let mut frozen: Vec<usize> = Vec::new();
    for fault in faults {
        sleep(Duration::from_millis(bench.rng.u64(300..1500))).await;
        // The worker frozen for longest thaws: a freeze lasts for one fault to several, often
        // longer than the time after which an owner is stale.
        if frozen.len() == FROZEN_MAX || (!frozen.is_empty() && bench.rng.u8(0..3) == 0) {
            bench.fleet.signal(frozen.remove(0), Signal::CONT)?;
        }
        let awake: Vec<usize> =
            bench.fleet.alive().into_iter().filter(|worker| !frozen.contains(worker)).collect();
        ensure!(awake.len() > 1, "too few workers: give it more than {FROZEN_MAX}");
        let victim = bench.rng.choice(awake).context("no worker")?;
        match fault {
            Fault::Kill => {
                bench.fleet.kill(victim).await?;
                bench.fleet.start()?;
            }
            Fault::Freeze => {
                bench.fleet.signal(victim, Signal::STOP)?;
                frozen.push(victim);
            }
            Fault::Compact => bench.compactor.compact().await?,
        }
    }
    for worker in frozen {
        bench.fleet.signal(worker, Signal::CONT)?;
    }
    Ok(())
}
