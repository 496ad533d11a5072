//! How a worker ends.

use crate::sequences::plain::Plain;
use crate::sequences::{DRAIN, drain};
use anyhow::{Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;
use std::time::Duration;

#[tokio::test]
async fn a_drain_lets_running_tasks_end_and_loses_none() -> Result<()> {
    const COUNT: usize = 12;
    let Some(bench) = Bench::new("drain").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let first = bench.worker(scripted.named("first")).await?.concurrency(4).start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let mut ids = Vec::new();
    for index in 0..COUNT {
        ids.push(producer.submit(&format!("{index}|gate,ok {index}")).await?);
    }
    let mut view = bench.view().await?;
    for _ in 0..4 {
        view.next().await?;
    }
    first.request_drain(DRAIN);
    let second = bench.worker(scripted.named("second")).await?.start().await?;
    scripted.open_gate();
    first.join().await?;
    view.until_all(&ids, "COMPLETED 1").await?;
    bench.all_acknowledged().await?;
    let runs = scripted.runs();
    ensure!(runs.len() == COUNT, "{runs:?}");
    let of_first = runs.iter().filter(|run| run.worker == "first").count();
    ensure!(of_first == 4, "{of_first} on the one that drained: {runs:?}");
    bench.audit().await?;
    drain([second]).await
}

#[tokio::test]
async fn what_still_runs_at_the_deadline_runs_elsewhere_as_the_same_attempt() -> Result<()> {
    let Some(bench) = Bench::new("released").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let first = bench.worker(scripted.named("first")).await?.max_attempts(1).start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let ids = [
        producer.submit("0|gate|ok a").await?,
        producer.submit("1|stubborn 3600000|ok b").await?,
        producer.submit("2|cancelled,gate|ok c").await?,
    ];
    let mut view = bench.view().await?;
    view.until_all(&ids, "PROCESSING 1").await?;
    let second = bench.worker(scripted.named("second")).await?.max_attempts(1).start().await?;
    second.ready().await;
    first.drain(Duration::from_millis(500)).await?;
    for (id, result) in ids.iter().zip(["a", "b", "c"]) {
        let end = format!("COMPLETED 1: {result}");
        view.until(*id, &end).await?;
        let given_back = "FAILED 0: Given back: the worker was stopped".to_owned();
        let expected = ["PROCESSING 1".to_owned(), given_back, "PROCESSING 1".to_owned(), end];
        ensure!(view.lines(*id) == expected, "{:?}", view.lines(*id));
    }
    ensure!(scripted.runs().iter().all(|run| run.ended && !run.overlaps && run.attempt == 1));
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drain([second]).await
}

/// The entry of a failed attempt was once left behind in the queue of a worker that drained: the
/// task looked as if it still ran until the next worker took it.
#[tokio::test]
async fn a_drain_shows_the_failure_it_waited_for() -> Result<()> {
    let Some(bench) = Bench::new("drain-failure").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.clone()).await?.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let mut ids = Vec::new();
    for index in 0..8 {
        ids.push(producer.submit(&format!("{index}|gate,after 3600000 busy")).await?);
    }
    let mut view = bench.view().await?;
    view.until_all(&ids, "PROCESSING 1").await?;
    // The topic moves: what is published now waits for a new producer.
    bench.sandbox().admin().unload(&bench.names().metadata).await?;
    worker.request_drain(DRAIN);
    scripted.open_gate();
    worker.join().await?;
    for (id, task) in bench.audit().await? {
        let last = task.shown.last().map(ToString::to_string).unwrap_or_default();
        ensure!(last == "FAILED 1: Processing error: busy", "{id}: {last}");
    }
    Ok(())
}
