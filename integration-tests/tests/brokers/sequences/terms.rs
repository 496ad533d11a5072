//! Tasks whose messages determine when and how they run.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use anyhow::{Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;
use longhaul::{Client, Text};
use longhaul_transport::clock::Clock;
use std::time::{Duration, UNIX_EPOCH};

#[tokio::test]
async fn tasks_start_at_their_times_and_expire() -> Result<()> {
    let Some(bench) = Bench::new("terms").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.clone()).await?.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let now_ms = Clock::System.wall_ms();
    // Any producer can set the property only; the library also lets the broker hold the task back.
    let later = producer.submit_with(b"0|ok later", &[("DELAY", "PT4S")]).await?;
    let client = Client::connect(bench.service_url()).await?;
    let soon = client.submission(&bench.names().task, &Text("1|ok soon".to_owned()));
    let soon = soon.scheduled_at(UNIX_EPOCH + Duration::from_millis(now_ms + 2_000)).send().await?;
    let late =
        producer.submit_with(b"2|ok late", &[("EXPIRES_AT", "2020-01-01T00:00:00Z")]).await?;
    let once = [("MAX_ATTEMPTS", "1"), ("TAGS", "a,b")];
    let once = producer.submit_with(b"3|fail no", &once).await?;
    let mut view = bench.view().await?;
    view.until(late, "FAILED 0 EXPIRED: Task expired before it was started").await?;
    view.until(once, "FAILED 1 FINAL: Processing error: no").await?;
    view.until(soon.id, "COMPLETED 1: soon").await?;
    view.until(later, "COMPLETED 1: later").await?;
    let started_ms = Clock::System.wall_ms();
    ensure!(started_ms >= now_ms + 4_000, "{started_ms} is too early for {now_ms}");
    bench.all_acknowledged().await?;
    bench.audit().await?;
    ensure!(scripted.runs().len() == 3, "{:?}", scripted.runs());
    drain([worker]).await
}
