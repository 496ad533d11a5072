//! A task that has left the metadata topic is gone for all readers.

use crate::sequences::plain::Plain;
use anyhow::{Context, Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::java::{JavaClient, Watcher};
use integration_tests::script::Scripted;
use integration_tests::view::LIMIT;
use longhaul::TaskId;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Reads until Java has seen a null value for each of these tasks, and for no other.
async fn until_null(watcher: &mut Watcher, tasks: &[TaskId]) -> Result<()> {
    let mut left: BTreeSet<String> = tasks.iter().map(ToString::to_string).collect();
    while !left.is_empty() {
        let entry = watcher.next(LIMIT).await?;
        ensure!(entry.error.is_none(), "{entry:?}");
        if entry.null {
            let key = entry.key.context("no key")?;
            ensure!(left.remove(&key), "{key} is null");
        }
    }
    Ok(())
}

/// Versions of brokers differ in the form of a tombstone that readers take for a null, and in the
/// form that compaction removes.
#[tokio::test]
async fn what_is_evicted_is_null_to_java_and_compacts_away() -> Result<()> {
    let Some(bench) = Bench::new("evicted").await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, topic) = (bench.service_url(), &bench.names().metadata);
    let mut watcher = java.watch(url, topic).await?;
    let worker = bench.worker(Scripted::default()).await?.retention(Duration::from_secs(1));
    let worker = worker.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let running = producer.submit("0|gate").await?;
    let evicted = [producer.submit("1|ok bar").await?, producer.submit("2|fatal no").await?];
    until_null(&mut watcher, &evicted).await?;
    watcher.close().await?;

    bench.sandbox().admin().compact(topic).await?;
    let table = java.table_view(url, topic).await?;
    let keys: Vec<_> = table.iter().filter_map(|entry| entry.key.clone()).collect();
    ensure!(keys == [running.to_string()], "{table:?}");
    let mut compacted = java.watch_compacted(url, topic).await?;
    let first = compacted.next(LIMIT).await?;
    ensure!(first.key == Some(running.to_string()) && !first.null, "{first:?}");
    let last = producer.submit("3|ok bar").await?;
    let next = compacted.next(LIMIT).await?;
    ensure!(next.key == Some(last.to_string()), "{next:?}");
    compacted.close().await?;
    worker.stop();
    worker.join().await?;
    Ok(())
}

/// A broker that enforces schemas refuses producers without one on topics that have one: the
/// metadata topic has that of the Java reference.
#[tokio::test]
async fn enforced_schemas_keep_nothing_from_being_shown_and_evicted() -> Result<()> {
    let Some(bench) = Bench::new("enforced").await? else { return Ok(()) };
    let names = bench.names();
    for topic in [&names.task, &names.ledger, &names.metadata, &names.dead_letters] {
        let policy = "schemaValidationEnforced";
        bench.sandbox().admin().set_policy(topic, policy, &json!(true)).await?;
    }
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let mut watcher = java.watch(bench.service_url(), &names.metadata).await?;
    let worker = bench.worker(Scripted::default()).await?.retention(Duration::from_secs(1));
    let worker = worker.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let tasks = [producer.submit("0|ok bar").await?, producer.submit("1|fatal no").await?];
    until_null(&mut watcher, &tasks).await?;
    bench.all_acknowledged().await?;
    watcher.close().await?;
    worker.stop();
    worker.join().await?;
    Ok(())
}
