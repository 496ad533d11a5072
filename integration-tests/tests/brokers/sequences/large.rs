//! Tasks and results that are too large for a message: they are refused with a reason, and neither
//! held nor lost silently.

use super::drain;
use super::plain::Plain;
use anyhow::{Result, ensure};
use integration_tests::audit::read_whole;
use integration_tests::bench::Bench;
use integration_tests::java::{JavaClient, Sending, SubmitOptions};
use integration_tests::script::Scripted;
use longhaul::TaskId;

const TEN_MIB: usize = 10 * 1024 * 1024;

/// A task is one message. Each chunk that a stock producer sends fails at the first attempt, and
/// the task after it runs.
#[tokio::test]
async fn each_chunk_of_a_task_of_10_mib_fails_for_good_and_says_what_to_do() -> Result<()> {
    let Some(bench) = Bench::new("chunks").await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.clone()).await?.start().await?;
    let large = "0123456789".repeat(TEN_MIB / 10);
    let options = SubmitOptions { sending: Sending::Chunked, ..SubmitOptions::default() };
    java.submit(bench.service_url(), &bench.names().task, &[&large], &options).await?;
    let behind = Plain::tasks(&bench).await?.submit("0|ok behind").await?;
    let mut view = bench.view().await?;
    view.until(behind, "COMPLETED 1: behind").await?;

    let tasks = bench.parts(&bench.names().task).swap_remove(0);
    let messages = read_whole(bench.transport(), &tasks).await?;
    let (chunks, bytes) = (messages.len() - 1, large.len());
    ensure!(chunks >= 10, "{chunks} chunks");
    for message in &messages[..chunks] {
        let id = TaskId::new(message.position, tasks.partition);
        let cause = format!(
            "it is one of {chunks} chunks of a message of {bytes} bytes: put large data into a \
             store, and publish a reference to it"
        );
        view.until(id, &format!("FAILED 1 FINAL: Task payload could not be decoded: {cause}"))
            .await?;
    }
    bench.all_acknowledged().await?;
    let letters = bench.parts(&bench.names().dead_letters);
    let letters = read_whole(bench.transport(), &letters[0]).await?;
    ensure!(letters.len() == chunks, "{} dead letters", letters.len());
    ensure!(letters.iter().all(|letter| letter.payload.is_empty()), "a chunk in a dead letter");
    ensure!(scripted.runs().iter().all(|run| run.task == behind), "a chunk was run");
    bench.audit().await?;
    drain([worker]).await
}
