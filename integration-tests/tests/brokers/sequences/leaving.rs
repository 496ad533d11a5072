//! How a worker ends.

use crate::sequences::DRAIN;
use crate::sequences::plain::Plain;
use anyhow::{Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;

/// The entry of a failed attempt once stayed in the queue of a draining worker: the task seemed to
/// run until the next worker took it.
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
    // The topic moves: entries published now wait for a new producer.
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
