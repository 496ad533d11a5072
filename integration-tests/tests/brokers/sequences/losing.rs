//! Workers that vanish, and topics that move while tasks run.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use crate::support;
use anyhow::{Context, Result, ensure};
use integration_tests::audit::read_whole;
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;
use integration_tests::view::Shown;
use longhaul::{WorkerBuilder, WorkerHandle};
use std::time::Duration;

/// With this interval a silent worker is replaced after about four seconds.
const HEARTBEAT: Duration = Duration::from_secs(2);

async fn start(worker: WorkerBuilder<Scripted>) -> Result<WorkerHandle> {
    let short = Duration::from_millis(100);
    Ok(worker.heartbeat(HEARTBEAT).backoff(short, short).start().await?)
}

/// Stops as in a crash: nothing is given back.
async fn crash(worker: WorkerHandle) -> Result<()> {
    worker.stop();
    Ok(worker.join().await?)
}

#[tokio::test]
async fn a_task_that_has_crashed_its_last_worker_is_closed() -> Result<()> {
    let Some(bench) = Bench::new("last-crash").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let first = start(bench.worker(scripted.named("first")).await?.max_attempts(1)).await?;
    let id = Plain::tasks(&bench).await?.submit("0|gate|ok a").await?;
    let mut view = bench.view().await?;
    view.until(id, "PROCESSING 1").await?;
    crash(first).await?;
    let second = start(bench.worker(scripted.named("second")).await?.max_attempts(1)).await?;
    view.until(id, "FAILED 1 FINAL: All attempts to process task failed.").await?;
    bench.all_acknowledged().await?;
    let letters = bench.parts(&bench.names().dead_letters);
    let letters = read_whole(bench.transport(), &letters[0]).await?;
    ensure!(letters.len() == 1 && letters[0].payload == "0|gate|ok a", "{letters:?}");
    ensure!(scripted.runs().len() == 1, "{:?}", scripted.runs());
    bench.audit().await?;
    drain([second]).await
}

#[tokio::test]
async fn a_batch_outlives_the_worker_that_held_it() -> Result<()> {
    let Some(bench) = Bench::new("batch-crash").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let first = start(bench.worker(scripted.named("first")).await?.concurrency(3)).await?;
    let payloads = ["0|ok a", "1|gate|ok b", "2|fatal c", "3|gate|ok d", "4|ok e", "5|fail f|ok f"];
    let ids = Plain::submit_batch(&bench, &payloads).await?;
    let mut view = bench.view().await?;
    for (id, line) in ids.iter().zip(["COMPLETED 1", "PROCESSING 1", "FAILED 1 FINAL"]) {
        view.until(*id, line).await?;
    }
    view.until(ids[3], "PROCESSING 1").await?;
    crash(first).await?;
    let second = start(bench.worker(scripted.named("second")).await?).await?;
    let ends = [
        "COMPLETED 1: a",
        "COMPLETED 2: b",
        "FAILED 1 FINAL: Processing error: c",
        "COMPLETED 2: d",
        "COMPLETED",
        "COMPLETED",
    ];
    for (id, end) in ids.iter().zip(ends) {
        view.until(*id, end).await?;
    }
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drain([second]).await
}

/// A broker unloads a topic that another broker is to serve: all clients are disconnected from it.
#[tokio::test]
async fn topics_that_move_cost_no_attempt() -> Result<()> {
    const COUNT: usize = 10;
    let Some(bench) = Bench::new("moving").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.clone()).await?.concurrency(COUNT).start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let mut ids = Vec::new();
    for index in 0..COUNT {
        ids.push(producer.submit(&format!("{index}|gate,ok {index}")).await?);
    }
    let mut before = bench.view().await?;
    before.until_all(&ids, "PROCESSING 1").await?;
    before.close().await;
    let admin = bench.sandbox().admin();
    let names = bench.names();
    scripted.open_gate();
    for topic in [&names.task, &names.ledger, &names.metadata] {
        admin.unload(topic).await?;
    }
    bench.all_passed().await?;
    let audited = bench.audit().await?;
    ensure!(audited.len() == COUNT && scripted.runs().len() == COUNT, "{:?}", scripted.runs());
    for (id, task) in &audited {
        let first = task.shown.first().and_then(|shown| shown.metadata.as_ref()).context("none")?;
        let last = task.shown.last().and_then(|shown| shown.metadata.as_ref()).context("none")?;
        ensure!(task.fold.attempt == 1 && last.task == first.task, "{id}: {last:?}");
        ensure!(last.created == first.created, "{id}: {first:?} {last:?}");
    }
    drain([worker]).await
}

/// The broker creates a ledger topic that was deleted under its workers again for the first client
/// that asks, and its positions continue: once the workers did not notice.
#[tokio::test]
async fn a_ledger_that_is_replaced_is_noticed() -> Result<()> {
    let Some(bench) = Bench::new("replaced").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let worker = start(bench.worker(scripted.named("first")).await?).await?;
    let id = Plain::tasks(&bench).await?.submit("0|gate|ok a").await?;
    let mut view = bench.view().await?;
    view.until(id, "PROCESSING 1").await?;
    bench.sandbox().admin().delete_topic(&bench.names().ledger).await?;
    let noticed = async || Ok(worker.stats().ledgers_lost > 0);
    support::until("the worker to miss its ledger", noticed).await?;
    let other = start(bench.worker(scripted.named("second")).await?).await?;
    other.ready().await;
    scripted.open_gate();
    // The task begins again, and the time of its first claim is lost: a view would complain.
    bench.all_acknowledged().await?;
    let shown = read_whole(bench.transport(), &bench.parts(&bench.names().metadata)[0]).await?;
    let last = Shown::read(shown.last().context("nothing is shown")?)?;
    ensure!((last.task, last.to_string().as_str()) == (id, "COMPLETED 1: a"), "{last}");
    worker.ready().await;
    ensure!(worker.stats().ledgers_lost == 1, "{:?}", worker.stats());
    drain([worker, other]).await
}
