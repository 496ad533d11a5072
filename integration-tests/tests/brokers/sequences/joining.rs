//! How a worker begins.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use anyhow::{Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;
use integration_tests::view::LIMIT;
use longhaul::Client;
use std::time::Duration;
use tokio::time::timeout;

#[tokio::test]
async fn a_task_from_before_the_first_worker_is_run() -> Result<()> {
    let Some(bench) = Bench::new("before").await? else { return Ok(()) };
    let mut producer = Plain::tasks(&bench).await?;
    let early = [producer.submit("0|ok a").await?, producer.submit("1|ok b").await?];
    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let late = producer.submit("2|ok c").await?;
    let mut view = bench.view().await?;
    view.until_all(&early, "COMPLETED 1").await?;
    view.until(late, "COMPLETED 1: c").await?;
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drain([worker]).await
}

/// The topics of that subscription are not set up: it still begins at the first message.
#[tokio::test]
async fn a_worker_of_another_subscription_gets_every_task() -> Result<()> {
    let Some(bench) = Bench::new("second-group").await? else { return Ok(()) };
    let mut producer = Plain::tasks(&bench).await?;
    let id = producer.submit("0|ok a").await?;
    let (scripted, audit) = (Scripted::default(), Scripted::default());
    let worker = bench.worker(scripted.clone()).await?.start().await?;
    let mut view = bench.view().await?;
    view.until(id, "COMPLETED 1: a").await?;
    bench.all_acknowledged().await?;
    let client = Client::builder(bench.service_url()).subscription("audit").connect().await?;
    let other = client.worker(&bench.names().task, audit.clone()).start().await?;
    let next = producer.submit("1|ok b").await?;
    view.until(next, "COMPLETED 1: b").await?;
    other.ready().await;
    drain([worker]).await?;
    let ids = |scripted: &Scripted| scripted.runs().iter().map(|run| run.task).collect::<Vec<_>>();
    ensure!(ids(&scripted) == [id, next], "{:?}", scripted.runs());
    bench.audit().await?;
    drain([other]).await
}

/// Such a worker once seemed to be starting for ever to code that waited until it was ready.
#[tokio::test]
async fn a_worker_that_does_not_fit_to_the_others_says_so_and_ends() -> Result<()> {
    let Some(bench) = Bench::new("misfit").await? else { return Ok(()) };
    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let id = Plain::tasks(&bench).await?.submit("0|ok bar").await?;
    let mut view = bench.view().await?;
    view.until(id, "COMPLETED 1: bar").await?;
    let misfit = bench.worker(Scripted::default()).await?.heartbeat(Duration::from_secs(5));
    let misfit = misfit.start().await?;
    timeout(LIMIT, misfit.ready()).await?;
    let error = anyhow::Error::from(misfit.join().await.expect_err("it does not fit"));
    let text = format!("{error:#}");
    ensure!(text.contains("heartbeat is 10s on this ledger but 5s here"), "{text}");
    drain([worker]).await
}
