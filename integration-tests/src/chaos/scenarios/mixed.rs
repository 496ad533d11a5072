//! All faults mixed: kills, freezes, unloads and restarts of the broker, in random order, under
//! load.

use super::faults::{Submitters, bench, rest, restart};
use crate::chaos::bench::Bench;
use crate::chaos::{Host, Options, Row};
use anyhow::Result;
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::sleep;

/// The possible faults, weighted by repetition.
const FAULTS: [Fault; 10] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Freeze,
    Fault::Freeze,
    Fault::Freeze,
    Fault::Unload,
    Fault::Unload,
    Fault::Unload,
    Fault::Restart,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    Freeze,
    Unload,
    Restart,
    /// Of ledger and metadata topic.
    Compact,
}

/// The number of each fault.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) kills: usize,
    pub(super) freezes: usize,
    pub(super) unloads: usize,
    pub(super) restarts: usize,
    pub(super) compactions: usize,
}

impl Count {
    pub(super) const fn by_name(&self) -> [(&'static str, usize); 4] {
        let Self { kills, freezes, unloads, restarts, .. } = *self;
        [("kills", kills), ("freezes", freezes), ("unloads", unloads), ("restarts", restarts)]
    }
}

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let count = options.faults.unwrap_or(if options.short { 6 } else { 40 });
    let mut bench = bench(host, "mixed", options).await?;
    let topics = [&bench.names.task, &bench.names.ledger, &bench.names.metadata].map(Clone::clone);
    let faults = (0..count).filter_map(|_| bench.rng.choice(FAULTS)).collect();
    let submitters = Submitters::new(&mut bench);
    let done = submitters.during(async |_| strike(&mut bench, host, &topics, faults).await).await?;
    rest(&mut bench).await?;
    for (name, count) in done.by_name() {
        bench.row.figure(name, count);
    }
    Ok(vec![bench.into_row()])
}

/// Injects these faults one after the other. A shared broker is not restarted; one of these topics
/// is unloaded instead.
pub(super) async fn strike(
    bench: &mut Bench,
    host: &mut Host,
    topics: &[String],
    faults: Vec<Fault>,
) -> Result<Count> {
    let mut done = Count::default();
    let admin = bench.sandbox.admin().clone();
    let mut frozen: Vec<usize> = Vec::new();
    for fault in faults {
        sleep(Duration::from_millis(bench.rng.u64(300..1500))).await;
        // The worker frozen for longest thaws: a freeze lasts for one fault to several, often
        // longer than the time after which an owner is stale.
        if frozen.len() > 1 || (!frozen.is_empty() && bench.rng.u8(0..3) == 0) {
            bench.fleet.signal(frozen.remove(0), Signal::CONT)?;
        }
        let awake: Vec<usize> =
            bench.fleet.alive().into_iter().filter(|w| !frozen.contains(w)).collect();
        let Some(victim) = bench.rng.choice(awake) else { continue };
        match (fault, host.own()) {
            (Fault::Kill, _) => {
                bench.fleet.kill(victim).await?;
                bench.fleet.start()?;
                done.kills += 1;
            }
            (Fault::Freeze, _) => {
                bench.fleet.signal(victim, Signal::STOP)?;
                frozen.push(victim);
                done.freezes += 1;
            }
            (Fault::Compact, _) => {
                bench.compactor.compact().await?;
                done.compactions += 1;
            }
            (Fault::Restart, Ok(broker)) => {
                restart(broker, bench.rng.bool()).await?;
                done.restarts += 1;
            }
            (Fault::Unload | Fault::Restart, _) => {
                if let Some(topic) = bench.rng.choice(topics) {
                    // A topic that is being loaded refuses; the next fault comes anyway.
                    done.unloads += usize::from(admin.unload(topic).await.is_ok());
                }
            }
        }
    }
    for worker in frozen {
        bench.fleet.signal(worker, Signal::CONT)?;
    }
    Ok(done)
}
