//! Limits over all workers of a queue, on a broker, checked by what the tasks themselves count.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

use anyhow::{Context, Result, ensure};
use integration_tests::sandbox::Sandbox;
use integration_tests::stopwatch;
use longhaul::topics::TopicSettings;
use longhaul::{Client, Rate, TaskContext, TaskError, TaskRef, Text, WorkerHandle, processor_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// The limit for everything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of running attempts, the highest number so far, and the start of each.
#[derive(Clone)]
struct Counter {
    counts: Arc<Mutex<Counts>>,
    elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Default for Counter {
    fn default() -> Self {
        Self { counts: Arc::default(), elapsed: Arc::new(stopwatch()) }
    }
}

#[derive(Default)]
struct Counts {
    running: usize,
    most: usize,
    began: Vec<Duration>,
}

impl Counter {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Running {
        let mut counts = self.counts();
        counts.running += 1;
        counts.most = counts.most.max(counts.running);
        counts.began.push((self.elapsed)());
        drop(counts);
        Running(self.clone())
    }

    fn begun(&self) -> usize {
        self.counts().began.len()
    }
}

/// A running attempt; it ends when this is dropped.
struct Running(Counter);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.counts().running -= 1;
    }
}

/// A client on the broker, and a topic with this number of partitions; `None` when the environment
/// names no broker.
async fn bench(test: &str, partitions: Option<u32>) -> Result<Option<(Client, String)>> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
    let (client, topic) = (sandbox.client().await?, sandbox.topic(test));
    let settings = TopicSettings { partitions, ..TopicSettings::default() };
    client.queue(&topic).setup_topics(settings).await?;
    Ok(Some((client, topic)))
}

/// A worker whose attempts take this time.
async fn start(
    client: &Client,
    topic: &str,
    counter: &Counter,
    takes: Duration,
) -> Result<WorkerHandle> {
    let counter = counter.clone();
    let processor = processor_fn(move |task: Text, _: TaskContext| {
        let running = counter.begin();
        async move {
            tokio::time::sleep(takes).await;
            drop(running);
            Ok::<_, TaskError>(task)
        }
    });
    let worker = client.worker(topic, processor).concurrency(4).heartbeat(Duration::from_secs(1));
    Ok(worker.start().await?)
}

async fn submit(client: &Client, topic: &str, count: usize) -> Result<Vec<TaskRef>> {
    let mut tasks = Vec::new();
    for number in 0..count {
        tasks.push(client.submit(topic, &Text(number.to_string())).await?);
    }
    Ok(tasks)
}

async fn wait_for(client: &Client, tasks: &[TaskRef]) -> Result<()> {
    for task in tasks {
        timeout(PATIENCE, client.wait::<Text>(task)).await.context("it does not end")??;
    }
    Ok(())
}

#[tokio::test]
async fn three_at_once_over_two_workers_and_three_partitions() -> Result<()> {
    let Some((client, topic)) = bench("limit-slots", Some(3)).await? else { return Ok(()) };
    client.queue(&topic).update(0, |settings| settings.limit.max_in_flight = Some(3)).await?;
    let counter = Counter::default();
    let takes = Duration::from_millis(100);
    let first = start(&client, &topic, &counter, takes).await?;
    let second = start(&client, &topic, &counter, takes).await?;
    let tasks = submit(&client, &topic, 40).await?;
    wait_for(&client, &tasks).await?;
    let (begun, most) = (counter.begun(), counter.counts().most);
    ensure!((begun, most) == (40, 3), "{begun} begun, {most} at once");
    first.drain(PATIENCE).await?;
    second.drain(PATIENCE).await?;
    Ok(())
}

#[tokio::test]
async fn no_more_begin_than_the_bucket_has() -> Result<()> {
    let Some((client, topic)) = bench("limit-pace", Some(2)).await? else { return Ok(()) };
    let rate = Rate::new(5, Duration::from_secs(1));
    client.queue(&topic).update(0, |settings| settings.limit.rate = Some(rate)).await?;
    let counter = Counter::default();
    let takes = Duration::from_millis(1);
    let first = start(&client, &topic, &counter, takes).await?;
    let second = start(&client, &topic, &counter, takes).await?;
    let tasks = submit(&client, &topic, 25).await?;
    wait_for(&client, &tasks).await?;
    let mut began = counter.counts().began.clone();
    began.sort_unstable();
    ensure!(began.len() == 25, "{}", began.len());
    let took = began[24] - began[0];
    // Twenty of them wait for one token each. An attempt may begin late by the time of a claim.
    let late = Duration::from_secs(3);
    ensure!(
        took > Duration::from_millis(3_500) && took < Duration::from_secs(4) + late,
        "{took:?}"
    );
    first.drain(PATIENCE).await?;
    second.drain(PATIENCE).await?;
    Ok(())
}

#[tokio::test]
async fn a_paused_queue_goes_on_within_a_second_of_its_resume() -> Result<()> {
    let Some((client, topic)) = bench("limit-pause", None).await? else { return Ok(()) };
    let counter = Counter::default();
    let worker = start(&client, &topic, &counter, Duration::from_millis(1)).await?;
    let queue = client.queue(&topic);
    wait_for(&client, &submit(&client, &topic, 1).await?).await?;
    queue.pause().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let tasks = submit(&client, &topic, 4).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(counter.begun() == 1, "{} begun while it is paused", counter.begun());
    let resumed = (counter.elapsed)();
    queue.resume().await?;
    wait_for(&client, &tasks).await?;
    let last = counter.counts().began.iter().max().copied().context("none has begun")?;
    let took = last - resumed;
    ensure!(took < Duration::from_secs(1), "{took:?} after the resume");
    worker.drain(PATIENCE).await?;
    Ok(())
}

/// The killed worker holds all tickets, and gives none back.
#[tokio::test]
async fn the_tickets_of_a_killed_worker_are_given_back() -> Result<()> {
    let Some((client, topic)) = bench("limit-kill", None).await? else { return Ok(()) };
    client.queue(&topic).update(0, |settings| settings.limit.max_in_flight = Some(2)).await?;
    let (lost, counter) = (Counter::default(), Counter::default());
    let dies = start(&client, &topic, &lost, PATIENCE).await?;
    let tasks = submit(&client, &topic, 6).await?;
    let both = async {
        while lost.begun() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, both).await.context("two begin")?;
    let next = start(&client, &topic, &counter, Duration::from_millis(100)).await?;
    dies.stop();
    dies.join().await?;
    wait_for(&client, &tasks).await?;
    let (begun, most) = (counter.begun(), counter.counts().most);
    ensure!((begun, most) == (6, 2), "{begun} begun, {most} at once");
    next.drain(PATIENCE).await?;
    Ok(())
}
