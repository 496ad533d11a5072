//! Ledger and metadata topic compacted, and workers killed and frozen, in random order, under load.

use super::faults::{Submitters, bench, rest};
use super::mixed::{Fault, strike};
use crate::chaos::{Host, Options, Row};
use anyhow::{Result, ensure};

/// Two of four faults are kills, one is a freeze, and one a compaction of both topics.
const KILLS: usize = 2;

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
    let done = submitters.during(async |_| strike(&mut bench, host, &[], faults).await).await?;
    let (kills, freezes, compactions) = (done.kills, done.freezes, done.compactions);
    ensure!(
        (kills, freezes, compactions) == (KILLS * rounds, rounds, rounds),
        "faults had no worker to strike: give it more than two"
    );
    bench.row.figure("kills", kills);
    bench.row.figure("freezes", freezes);
    bench.row.figure("compactions_under_load", 2 * compactions);
    rest(&mut bench).await?;
    Ok(vec![bench.into_row()])
}
