//! The soak test of the Java reference, with workers of longhaul: many workers, and tasks that
//! return a result, fail, or exceed their duration. Only the metadata topic is read, which has the
//! name that the reference's code gives it.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use anyhow::{Context, Result, bail, ensure};
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;
use integration_tests::view::LIMIT;
use longhaul::{TaskId, TaskMetadata, TaskState};
use longhaul_transport::{Batching, Follow, Follower, Start, Transport};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

const ATTEMPTS: u32 = 2;

/// The last entry on the metadata topic, by task.
struct Last {
    follower: Box<dyn Follower>,
    shown: BTreeMap<TaskId, TaskMetadata>,
}

impl Last {
    async fn open(bench: &Bench) -> Result<Self> {
        let at = bench.parts(&bench.names().metadata).swap_remove(0);
        let follow = Follow { start: Start::Earliest, compacted: false };
        let follower = bench.transport().follower(&at, follow).await?;
        Ok(Self { follower, shown: BTreeMap::new() })
    }

    /// Whether the task has ended, by the rules of the reference.
    fn is_over(&self, task: TaskId) -> bool {
        self.shown.get(&task).is_some_and(|shown| match shown.state {
            TaskState::Completed => true,
            TaskState::Failed => shown.attempts >= ATTEMPTS,
            TaskState::New | TaskState::Processing | TaskState::Unknown => false,
        })
    }

    /// Reads until all of these tasks have ended.
    async fn until_over(&mut self, tasks: impl Iterator<Item = TaskId> + Clone) -> Result<()> {
        while !tasks.clone().all(|task| self.is_over(task)) {
            let Ok(message) = timeout(LIMIT, self.follower.next()).await else {
                bail!("no entry within {LIMIT:?}, the metadata topic shows {:?}", self.shown);
            };
            let message = message?;
            let task: TaskId = message.key.as_deref().context("no key")?.parse()?;
            self.shown.insert(task, serde_json::from_slice(&message.payload)?);
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

/// A thousand times as fast as the reference's: 15 workers, 100 tasks.
#[tokio::test]
async fn the_soak_of_the_reference_misses_no_result() -> Result<()> {
    const TASKS: usize = 100;
    const WORKERS: usize = 15;
    let Some(bench) = Bench::with_state_topic("soak").await? else { return Ok(()) };
    ensure!(bench.names().metadata.ends_with("-state"), "{}", bench.names().metadata);
    let scripted = Scripted::default();
    let pause = Duration::from_millis(100);
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let worker = bench.worker(scripted.clone()).await?.concurrency(1).max_attempts(ATTEMPTS);
        let worker = worker.keep_alive(Duration::from_millis(500)).backoff(pause, pause);
        let worker = worker.heartbeat(Duration::from_secs(1)).start().await?;
        worker.ready().await;
        workers.push(worker);
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
    let mut last = Last::open(&bench).await?;
    last.until_over(expected.keys().copied()).await?;
    for (task, end) in &expected {
        ensure!(last.end(*task) == *end, "{task}: {} and not {end}", last.end(*task));
    }
    bench.all_acknowledged().await?;
    drain(workers).await
}

/// The page on the protocol promises this to users of the reference: a task that its stopped
/// workers left in the state PROCESSING runs again, and its attempts begin anew.
#[tokio::test]
async fn what_stopped_workers_of_the_reference_left_runs_again() -> Result<()> {
    let Some(bench) = Bench::with_state_topic("left").await? else { return Ok(()) };
    let mut producer = Plain::tasks(&bench).await?;
    let task = producer.submit("0|ok bar").await?;
    let metadata = bench.parts(&bench.names().metadata).swap_remove(0);
    let mut stopped = Plain::open(&bench, &metadata, Batching::Off).await?;
    let id = task.to_string();
    let left = json!({
        "messageId": id, "state": "PROCESSING", "created": 1, "lastUpdated": 1,
        "attempts": ATTEMPTS, "task": null, "result": null, "failureReason": null,
    });
    stopped.show(&id, left.to_string().as_bytes()).await?;
    let worker = bench.worker(Scripted::default()).await?.max_attempts(ATTEMPTS).start().await?;
    let mut last = Last::open(&bench).await?;
    last.until_over([task].into_iter()).await?;
    ensure!(last.end(task) == "Completed bar", "{}", last.end(task));
    let attempts = last.shown.get(&task).map(|shown| shown.attempts);
    ensure!(attempts == Some(1), "{attempts:?}");
    drain([worker]).await
}
