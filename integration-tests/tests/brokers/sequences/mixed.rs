//! Workers of the Java reference and of longhaul on one subscription, in the mode `legacy`. The
//! Java ones behave as the reference was observed to: they do not read the ledger, and run every
//! task that they get.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use anyhow::{Context, Result, bail, ensure};
use integration_tests::bench::Bench;
use integration_tests::java::{JavaClient, JavaWorkerOptions};
use integration_tests::script::Scripted;
use integration_tests::view::LIMIT;
use longhaul::{TaskId, TaskMetadata, TaskState, WorkerHandle};
use longhaul_transport::{Follow, Follower, Start, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::timeout;

const KEEP_ALIVE: Duration = Duration::from_millis(500);

/// The last entry on the metadata topic, by task.
struct Last {
    follower: Box<dyn Follower>,
    max_attempts: u32,
    shown: BTreeMap<TaskId, TaskMetadata>,
    /// Tasks with an entry by a Java worker, and by a Rust worker.
    java: BTreeSet<TaskId>,
    rust: BTreeSet<TaskId>,
}

impl Last {
    async fn open(bench: &Bench, max_attempts: u32) -> Result<Self> {
        let at = bench.parts(&bench.names().metadata).swap_remove(0);
        let follow = Follow { start: Start::Earliest, compacted: false };
        let follower = bench.transport().follower(&at, follow).await?;
        let (shown, java, rust) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Ok(Self { follower, max_attempts, shown, java, rust })
    }

    /// Whether the task has ended, by the rules of the reference.
    fn is_over(&self, task: TaskId) -> bool {
        self.shown.get(&task).is_some_and(|shown| match shown.state {
            TaskState::Completed => true,
            TaskState::Failed => shown.attempts >= self.max_attempts,
            TaskState::New | TaskState::Processing | TaskState::Unknown => false,
        })
    }

    /// Reads until this holds.
    async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<()> {
        while !holds(self) {
            let Ok(message) = timeout(LIMIT, self.follower.next()).await else {
                bail!("{what}: no entry within {LIMIT:?}, M shows {:?}", self.shown);
            };
            let message = message?;
            let task: TaskId = message.key.as_deref().context("no key")?.parse()?;
            let shown: TaskMetadata = serde_json::from_slice(&message.payload)?;
            let is_rust = message.properties.get("owner").is_some();
            let (by, others) =
                if is_rust { (&mut self.rust, &self.java) } else { (&mut self.java, &self.rust) };
            // A worker that continues a task of the other kind begins another attempt.
            let is_new = by.insert(task) && others.contains(&task);
            let before = self.shown.insert(task, shown.clone());
            if let Some(before) = before.filter(|_| is_new && shown.state == TaskState::Processing)
            {
                ensure!(before.attempts < shown.attempts, "{task}: {before:?}, then {shown:?}");
            }
        }
        Ok(())
    }

    fn end(&self, task: TaskId) -> String {
        let Some(shown) = self.shown.get(&task) else { return "nothing".to_owned() };
        let result = shown.result.as_ref().map(|result| String::from_utf8_lossy(result));
        let reason = shown.failure_reason.as_deref().unwrap_or_default();
        format!("{:?} {}", shown.state, result.as_deref().unwrap_or(reason))
    }
}

async fn rust_worker(
    bench: &Bench,
    scripted: &Scripted,
    max_attempts: u32,
) -> Result<WorkerHandle> {
    let worker = bench.worker(scripted.clone()).await?.legacy(true).concurrency(1);
    let worker = worker.max_attempts(max_attempts).keep_alive(KEEP_ALIVE);
    let pause = Duration::from_millis(100);
    let worker = worker.heartbeat(Duration::from_secs(1)).backoff(pause, pause);
    let handle = worker.start().await?;
    handle.ready().await;
    Ok(handle)
}

/// The soak test of the reference, a thousand times as fast: 15 workers, 100 tasks that return a
/// result, fail or exceed their duration.
#[tokio::test]
async fn the_soak_of_the_reference_misses_no_result() -> Result<()> {
    const TASKS: usize = 100;
    const JAVA: usize = 8;
    const RUST: usize = 7;
    const ATTEMPTS: u32 = 2;
    let Some(bench) = Bench::new("soak").await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, names) = (bench.service_url(), bench.names());
    let options =
        JavaWorkerOptions { workers: JAVA, max_attempts: ATTEMPTS, keep_alive: KEEP_ALIVE };
    let others = java.work(url, &names.task, &names.metadata, options).await?;
    let scripted = Scripted::default();
    let mut workers = Vec::new();
    for _ in 0..RUST {
        workers.push(rust_worker(&bench, &scripted, ATTEMPTS).await?);
    }
    let mut producer = Plain::tasks(&bench).await?;
    let mut expected = BTreeMap::new();
    for index in 0..TASKS {
        let sleep = 100 + (index * 37) % 400;
        let (script, end) = match index % 3 {
            0 => (format!("sleep {sleep},ok {index}"), format!("Completed {index}")),
            1 => (
                format!("sleep {sleep},fail no {index}"),
                format!("Failed Processing error: no {index}"),
            ),
            _ => ("sleep 60000".to_owned(), "Failed Process was cancelled: null".to_owned()),
        };
        let payload = format!("{index}|{script}");
        let properties = [("MAX_TASK_DURATION", "PT1S")];
        expected.insert(producer.submit_with(payload.as_bytes(), &properties).await?, end);
    }
    let mut last = Last::open(&bench, ATTEMPTS).await?;
    last.until("the end of all tasks", |last| expected.keys().all(|task| last.is_over(*task)))
        .await
        .with_context(|| others.complaints())?;
    for (task, end) in &expected {
        ensure!(last.end(*task) == *end, "{task}: {} and not {end}", last.end(*task));
    }
    bench.all_acknowledged().await?;
    ensure!(
        last.java.len() > 10 && last.rust.len() > 10,
        "{} {}",
        last.java.len(),
        last.rust.len()
    );
    ensure!(last.java.is_disjoint(&last.rust), "without kills each task is of one worker");
    drain(workers).await
}

/// Replaces Java workers with Rust workers one by one, each killed while it works: no task is lost.
/// A fleet of the reference alone leaves the tasks of a killed worker where another one holds them.
#[tokio::test]
async fn a_fleet_goes_from_java_to_rust_under_kills() -> Result<()> {
    const TASKS: usize = 40;
    const ATTEMPTS: u32 = 6;
    let Some(bench) = Bench::with_state_topic("upgrade").await? else { return Ok(()) };
    ensure!(bench.names().metadata.ends_with("-state"), "{}", bench.names().metadata);
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, names) = (bench.service_url(), bench.names());
    let options = JavaWorkerOptions { workers: 3, max_attempts: ATTEMPTS, keep_alive: KEEP_ALIVE };
    let first = java.work(url, &names.task, &names.metadata, options).await?;
    let second = java.work(url, &names.task, &names.metadata, options).await?;
    let mut producer = Plain::tasks(&bench).await?;
    let mut ids = Vec::new();
    for index in 0..TASKS {
        ids.push(producer.submit(&format!("{index}|sleep 1200,ok {index}")).await?);
    }
    let mut last = Last::open(&bench, ATTEMPTS).await?;
    let over = |last: &Last| ids.iter().filter(|task| last.is_over(**task)).count();
    last.until("a first end", |last| over(last) >= 3).await?;
    let scripted = Scripted::default();
    let dying = rust_worker(&bench, &scripted, ATTEMPTS).await?;
    let staying = rust_worker(&bench, &scripted, ATTEMPTS).await?;
    last.until("a task of Rust", |last| last.rust.len() >= 2).await?;
    first.kill().await?;
    last.until("some more", |last| over(last) >= 12).await?;
    drop(dying);
    let replacing = rust_worker(&bench, &scripted, ATTEMPTS).await?;
    last.until("some more", |last| over(last) >= 18).await?;
    second.kill().await?;
    last.until("the end of all tasks", |last| over(last) == TASKS).await?;
    bench.all_acknowledged().await?;
    for (index, task) in ids.iter().enumerate() {
        let end = format!("Completed {index}");
        ensure!(last.end(*task) == end, "{task}: {} and not {end}", last.end(*task));
    }
    let both = last.java.intersection(&last.rust).count();
    ensure!(both > 0, "no task went from Java to Rust");
    for worker in [&staying, &replacing] {
        ensure!(worker.stats().violations == 0, "{:?}", worker.stats());
    }
    drain([staying, replacing]).await
}
