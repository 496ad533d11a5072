//! Tasks whose end a client asks for, by a plain message on the ledger.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use anyhow::{Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;

const CANCELLED: &str = "FAILED 1 CANCELLED: Process was cancelled: cancelled by client";

#[tokio::test]
async fn a_running_task_is_cancelled() -> Result<()> {
    let Some(bench) = Bench::new("cancel-running").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.clone()).await?.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let kind = producer.submit("0|cancelled,ok too late").await?;
    let other = producer.submit("1|gate,ok bar").await?;
    let mut view = bench.view().await?;
    view.until_all(&[kind, other], "PROCESSING 1").await?;
    Plain::cancel(&bench, kind).await?;
    view.until(kind, CANCELLED).await?;
    scripted.open_gate();
    view.until(other, "COMPLETED 1: bar").await?;
    ensure!(view.lines(kind) == ["PROCESSING 1", CANCELLED], "{:?}", view.lines(kind));
    bench.all_acknowledged().await?;
    bench.audit().await?;
    ensure!(scripted.runs().len() == 2, "{:?}", scripted.runs());
    drain([worker]).await
}

#[tokio::test]
async fn a_task_that_has_ended_cannot_be_cancelled() -> Result<()> {
    let Some(bench) = Bench::new("cancel-ended").await? else { return Ok(()) };
    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let id = producer.submit("0|ok bar").await?;
    let mut view = bench.view().await?;
    view.until(id, "COMPLETED 1: bar").await?;
    Plain::cancel(&bench, id).await?;
    let next = producer.submit("1|ok next").await?;
    view.until(next, "COMPLETED 1: next").await?;
    ensure!(view.lines(id) == ["PROCESSING 1", "COMPLETED 1: bar"], "{:?}", view.lines(id));
    bench.audit().await?;
    drain([worker]).await
}
