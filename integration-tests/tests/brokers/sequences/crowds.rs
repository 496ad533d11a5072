//! Many tasks at once: on one worker, on several, in partitions, in batches.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use crate::sequences::reference::{
    FIRST_ATTEMPT_EXCEEDS_MAX_DURATION, RETRY_WITH_RECOVERY, SUCCESS, TERMINAL_FAILURE, play,
};
use anyhow::{Context, Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::java::{JavaClient, Sending, SubmitOptions};
use integration_tests::script::Scripted;
use longhaul::TaskId;
use std::collections::BTreeSet;

const TASKS: usize = 40;

#[tokio::test]
async fn forty_successes_at_once() -> Result<()> {
    play(SUCCESS, None, TASKS, TASKS).await
}

#[tokio::test]
async fn forty_recoveries_in_sixteen_slots() -> Result<()> {
    play(RETRY_WITH_RECOVERY, None, TASKS, 16).await
}

#[tokio::test]
async fn forty_terminal_failures_in_sixteen_slots() -> Result<()> {
    play(TERMINAL_FAILURE, None, TASKS, 16).await
}

#[tokio::test]
async fn forty_exceed_their_duration_in_sixteen_slots() -> Result<()> {
    play(FIRST_ATTEMPT_EXCEEDS_MAX_DURATION, None, TASKS, 16).await
}

#[tokio::test]
async fn forty_successes_in_three_partitions() -> Result<()> {
    play(SUCCESS, Some(3), TASKS, 16).await
}

#[tokio::test]
async fn forty_recoveries_in_three_partitions() -> Result<()> {
    play(RETRY_WITH_RECOVERY, Some(3), TASKS, TASKS).await
}

#[tokio::test]
async fn forty_terminal_failures_in_three_partitions() -> Result<()> {
    play(TERMINAL_FAILURE, Some(3), TASKS, 16).await
}

#[tokio::test]
async fn forty_exceed_their_duration_in_three_partitions() -> Result<()> {
    play(FIRST_ATTEMPT_EXCEEDS_MAX_DURATION, Some(3), TASKS, TASKS).await
}

/// A Java producer with default settings batches. The reference fails on that; here each message is
/// a task with an id of its own.
#[tokio::test]
async fn batches_of_a_java_producer_are_shared_by_two_workers() -> Result<()> {
    const COUNT: usize = 120;
    let Some(bench) = Bench::new("batches").await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let scripted = Scripted::default();
    let one = bench.worker(scripted.named("one")).await?.start().await?;
    let two = bench.worker(scripted.named("two")).await?.start().await?;
    let payloads: Vec<String> = (0..COUNT).map(|i| format!("{i}|sleep 20,ok {i}")).collect();
    let texts: Vec<&str> = payloads.iter().map(String::as_str).collect();
    let options = SubmitOptions { sending: Sending::Batched, ..SubmitOptions::default() };
    let ids = java.submit(bench.service_url(), &bench.names().task, &texts, &options).await?;
    let ids: Vec<TaskId> = ids.iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
    ensure!(ids.iter().any(|id| id.batch_index > Some(0)), "no batches: {ids:?}");

    let mut view = bench.view().await?;
    for (index, id) in ids.iter().enumerate() {
        view.until(*id, "COMPLETED").await?;
        let expected = ["PROCESSING 1".to_owned(), format!("COMPLETED 1: {index}")];
        ensure!(view.lines(*id) == expected, "{id}: {:?}", view.lines(*id));
    }
    bench.all_acknowledged().await?;
    let audited = bench.audit().await?;
    let (submitted, found): (BTreeSet<_>, BTreeSet<_>) =
        (ids.iter().collect(), audited.keys().collect());
    ensure!(submitted == found, "other tasks than were submitted");
    ensure!(scripted.runs().len() == COUNT, "{} runs", scripted.runs().len());
    drain([one, two]).await
}

#[tokio::test]
async fn two_workers_share_what_is_there() -> Result<()> {
    const COUNT: usize = 32;
    let Some(bench) = Bench::new("shared").await? else { return Ok(()) };
    let mut producer = Plain::tasks(&bench).await?;
    let scripted = Scripted::default();
    let one = bench.worker(scripted.named("one")).await?.concurrency(8).start().await?;
    let two = bench.worker(scripted.named("two")).await?.concurrency(8).start().await?;
    one.ready().await;
    two.ready().await;
    let mut ids = Vec::new();
    for index in 0..COUNT {
        ids.push(producer.submit(&format!("{index}|gate,ok {index}")).await?);
    }
    // A worker cannot run more tasks than it has slots: with the gate shut, both must have taken
    // some.
    let mut view = bench.view().await?;
    let mut running = 0;
    while running < 16 {
        view.next().await?;
        running += 1;
    }
    let workers: BTreeSet<_> = scripted.runs().iter().map(|run| run.worker).collect();
    ensure!(workers.len() == 2, "only {workers:?} work");
    scripted.open_gate();
    view.until_all(&ids, "COMPLETED 1").await?;
    bench.all_acknowledged().await?;
    bench.audit().await.context("after the run")?;
    ensure!(scripted.runs().len() == COUNT, "{:?}", scripted.runs());
    drain([one, two]).await
}
