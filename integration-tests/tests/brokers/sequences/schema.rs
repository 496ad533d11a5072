//! The metadata topic has the reference's schema, whichever client comes first.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use anyhow::{Context, Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::java::JavaClient;
use integration_tests::script::Scripted;
use integration_tests::view::LIMIT;
use longhaul::{TaskContext, TaskError, TaskId, TaskProcessor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The suite `reference` tests the case that Java is first. Here the worker registers the schema,
/// and Java programs attach to its topic.
#[tokio::test]
async fn a_java_program_attaches_to_what_a_worker_has_written() -> Result<()> {
    let Some(bench) = Bench::new("rust-first").await? else { return Ok(()) };
    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let mut ends: BTreeMap<TaskId, (&str, &str)> = BTreeMap::new();
    for (script, state, line) in [
        ("0|ok bar", "COMPLETED", "COMPLETED 1"),
        ("1|fatal no", "FAILED", "FAILED 1 FINAL"),
        ("2|after 3600000 busy", "FAILED", "FAILED 1:"),
        ("3|progress 1 2 x,gate", "PROCESSING", "PROCESSING 1"),
    ] {
        ends.insert(producer.submit(script).await?, (state, line));
    }
    let mut view = bench.view().await?;
    for (id, (_, line)) in &ends {
        view.until(*id, line).await?;
    }
    let schema = bench.sandbox().admin().schema(&bench.names().metadata).await?;
    ensure!(schema["type"] == "JSON", "{schema}");

    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, topic) = (bench.service_url(), &bench.names().metadata);
    let table = java.table_view(url, topic).await?;
    ensure!(table.len() == ends.len(), "{table:?}");
    for entry in &table {
        let id: TaskId = entry.key.as_deref().context("no key")?.parse()?;
        let (state, _) = ends.get(&id).context("not submitted")?;
        ensure!(entry.state.as_deref() == Some(state) && entry.attempts == Some(1), "{entry:?}");
    }
    let mut watcher = java.watch(url, topic).await?;
    for _ in 0..view_len(&view, &ends) {
        let entry = watcher.next(LIMIT).await?;
        ensure!(entry.error.is_none() && entry.state.is_some(), "{entry:?}");
    }
    watcher.close().await?;
    worker.stop();
    worker.join().await?;
    Ok(())
}

fn view_len(view: &integration_tests::view::View, ends: &BTreeMap<TaskId, (&str, &str)>) -> usize {
    ends.keys().map(|id| view.entries(*id).len()).sum()
}

/// The other way round, with a table view on the fresh topic: it is empty, and the worker's schema
/// is compatible with Java's.
#[tokio::test]
async fn a_worker_writes_where_a_java_program_was_first() -> Result<()> {
    let Some(bench) = Bench::new("java-first").await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, topic) = (bench.service_url(), &bench.names().metadata);
    ensure!(java.table_view(url, topic).await?.is_empty());
    let before = bench.sandbox().admin().schema(topic).await?;
    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let id = Plain::tasks(&bench).await?.submit("0|ok bar").await?;
    let mut view = bench.view().await?;
    view.until(id, "COMPLETED 1: bar").await?;
    let table = java.table_view(url, topic).await?;
    ensure!(table.len() == 1 && table[0].result.as_deref() == Some(b"bar"), "{table:?}");
    let after = bench.sandbox().admin().schema(topic).await?;
    ensure!(before["type"] == after["type"], "{before} became {after}");
    bench.audit().await?;
    drain([worker]).await
}

/// A task of the reference's example, as its Java producer writes it.
#[derive(Deserialize)]
struct Named {
    name: String,
}

/// A result that its Java client decodes.
#[derive(Serialize)]
struct Greeting {
    greeting: String,
}

struct Greeter;

impl TaskProcessor for Greeter {
    type Task = Named;
    type Output = Greeting;

    async fn process(&self, task: Named, _: TaskContext) -> Result<Greeting, TaskError> {
        Ok(Greeting { greeting: format!("Hello {}", task.name) })
    }
}

/// The client of the reference's own example: `Schema.JSON` on both topics, and `decode` of the
/// result.
#[tokio::test]
async fn the_java_example_of_the_reference_has_its_greeting() -> Result<()> {
    let Some(bench) = Bench::new("example").await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let worker = bench.worker(Greeter).await?.start().await?;
    let names = bench.names();
    let greeting = java.example(bench.service_url(), &names.task, &names.metadata).await?;
    ensure!(greeting == "Hello Dave", "{greeting:?}");
    let schema = bench.sandbox().admin().schema(&names.task).await?;
    ensure!(schema["type"] == "JSON", "the producer's schema: {schema}");
    bench.audit().await?;
    drain([worker]).await
}
