//! Workers that start on a ledger whose compactions raced unloads: see `compactions.rs`.

use crate::compactions::{DELAY_MAX_MS, compactions};
use crate::sequences::drain;
use crate::sequences::plain::Plain;
use crate::support;
use anyhow::{Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::sandbox::Sandbox;
use integration_tests::script::Scripted;
use std::time::Duration;

/// Earlier, a worker that started on a ledger whose view had lost entries ran tasks again that had
/// ended, or that ran elsewhere, when Pulsar delivered them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_starts_after_such_races_runs_nothing_again() -> Result<()> {
    const TASKS: usize = 10;
    const RACES: usize = 4;
    let is_pulsar = Sandbox::pulsar_kind()?.is_some();
    let Some(compactions) = compactions(is_pulsar)? else { return Ok(()) };
    let rounds = compactions.div_ceil(2 * RACES);
    let Some(bench) = Bench::new("raced-ledger").await? else { return Ok(()) };
    let (admin, names, scripted) = (bench.sandbox().admin(), bench.names(), Scripted::default());
    let first = bench.worker(scripted.named("first")).await?;
    let first = first.concurrency(rounds + TASKS).start().await?;
    let mut view = bench.view().await?;
    let mut lost = 0;
    for round in 0..rounds {
        let mut producer = Plain::tasks(&bench).await?;
        let runs = producer.submit(&format!("{round}|gate|ok a")).await?;
        view.until(runs, "PROCESSING 1").await?;
        for race in 0..RACES {
            let delay = Duration::from_micros(fastrand::u64(0..DELAY_MAX_MS * 1_000));
            let unload = async {
                tokio::time::sleep(delay).await;
                drop(admin.unload(&names.ledger).await);
            };
            let submit = async {
                let mut ids = Vec::new();
                for index in 0..TASKS {
                    ids.push(producer.submit(&format!("{round}-{race}-{index}|ok a")).await?);
                }
                anyhow::Ok(ids)
            };
            // A compaction and an unload may be refused because of each other.
            let (_, (), ids) = tokio::join!(admin.compact(&names.ledger), unload, submit);
            for id in ids? {
                view.until(id, "COMPLETED 1: a").await?;
            }
        }
        let second = bench.worker(scripted.named("second")).await?.start().await?;
        support::within("a second worker", second.ready()).await?;
        // All that runs is delivered again, to either worker.
        let moves = async || Ok(admin.unload(&names.task).await.is_ok());
        support::until("an unload", moves).await?;
        let mut producer = Plain::tasks(&bench).await?;
        let id = producer.submit(&format!("{round}-last|ok a")).await?;
        view.until(id, "COMPLETED 1: a").await?;
        lost += second.stats().views_lost;
        drain([second]).await?;
    }
    scripted.open_gate();
    bench.all_acknowledged().await?;
    let (runs, tasks) = (scripted.runs(), rounds * (RACES * TASKS + 2));
    ensure!(runs.len() == tasks, "{} runs of {tasks} tasks: {runs:?}", runs.len());
    support::note(&format!(
        "{rounds} starts after {RACES} races each, {lost} of them on a view that had lost entries"
    ));
    drain([first]).await
}
