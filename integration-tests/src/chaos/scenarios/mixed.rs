//! Everything at once: kills, freezes, unloads and restarts of the broker, in random order, under load.

use super::faults::{Submitters, bench, rest, restart};
use crate::chaos::{Host, Options, Row};
use anyhow::Result;
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::sleep;

/// What may happen, each as often as it stands here.
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
enum Fault {
    Kill,
    Freeze,
    Unload,
    Restart,
}

/// How often each fault happened.
#[derive(Debug, Default)]
struct Count {
    kills: usize,
    freezes: usize,
    unloads: usize,
    restarts: usize,
}

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let count = options.faults.unwrap_or(if options.short { 6 } else { 40 });
    let mut bench = bench(host, "mixed", options).await?;
    let mut done = Count::default();
    let admin = bench.sandbox.admin().clone();
    let topics = [&bench.names.task, &bench.names.ledger, &bench.names.metadata].map(Clone::clone);
    let mut frozen: Vec<usize> = Vec::new();
    let submitters = Submitters::new(&mut bench);
    submitters
        .during(async |_| {
            for _ in 0..count {
                sleep(Duration::from_millis(bench.rng.u64(300..1500))).await;
                // Whoever was frozen longest thaws; so a freeze lasts from one fault to a few.
                if frozen.len() > 1 || (!frozen.is_empty() && bench.rng.bool()) {
                    bench.fleet.signal(frozen.remove(0), Signal::CONT)?;
                }
                let awake: Vec<usize> =
                    bench.fleet.alive().into_iter().filter(|w| !frozen.contains(w)).collect();
                let Some(victim) = bench.rng.choice(awake) else { continue };
                match (bench.rng.choice(FAULTS), host.own()) {
                    (Some(Fault::Kill), _) => {
                        bench.fleet.kill(victim).await?;
                        bench.fleet.start()?;
                        done.kills += 1;
                    }
                    (Some(Fault::Freeze), _) => {
                        bench.fleet.signal(victim, Signal::STOP)?;
                        frozen.push(victim);
                        done.freezes += 1;
                    }
                    (Some(Fault::Restart), Ok(broker)) => {
                        restart(broker, bench.rng.bool()).await?;
                        done.restarts += 1;
                    }
                    (Some(Fault::Unload | Fault::Restart) | None, _) => {
                        let topic = bench.rng.usize(..topics.len());
                        if let Some(topic) = topics.get(topic) {
                            // A topic that is just being loaded refuses; the next fault comes anyway.
                            done.unloads += usize::from(admin.unload(topic).await.is_ok());
                        }
                    }
                }
            }
            for worker in frozen.drain(..) {
                bench.fleet.signal(worker, Signal::CONT)?;
            }
            Ok(())
        })
        .await?;
    rest(&mut bench).await?;
    let Count { kills, freezes, unloads, restarts } = done;
    let faults =
        [("kills", kills), ("freezes", freezes), ("unloads", unloads), ("restarts", restarts)];
    for (name, count) in faults {
        bench.row.figure(name, count);
    }
    Ok(vec![bench.into_row()])
}
