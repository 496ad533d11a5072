//! Order per key on a broker: workers come, go and fail, and the tasks of a key begin one after the
//! other. The test checks the ledger against the keys on the task topic.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

use anyhow::{Context, Result, ensure};
use integration_tests::audit::read_whole;
use integration_tests::sandbox::Sandbox;
use longhaul::ops::QueueOrder;
use longhaul::topics::{TopicNames, TopicSettings};
use longhaul::{
    Client, TaskContext, TaskError, TaskId, TaskRef, Text, WaitError, WorkerHandle, processor_fn,
};
use longhaul_core::ledger;
use longhaul_core::protocol::invariants::OrderJudge;
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::TopicPartition;
use std::time::Duration;
use tokio::time::timeout;

/// The limit for everything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(60);

const KEYS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

struct Bench {
    url: String,
    client: Client,
    topic: String,
    partitions: Option<u32>,
}

impl Bench {
    /// A queue with an order, on a topic with this number of partitions; `None` when the
    /// environment names no broker.
    async fn new(test: &str, partitions: Option<u32>) -> Result<Option<Self>> {
        let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
        let url = sandbox.service_url().to_owned();
        let (client, topic) = (sandbox.client().await?, sandbox.topic(test));
        let settings = TopicSettings { partitions, ..TopicSettings::default() };
        client.queue(&topic).setup_topics(settings).await?;
        Ok(Some(Self { url, client, topic, partitions }))
    }

    async fn ordered(test: &str, partitions: Option<u32>) -> Result<Option<Self>> {
        let Some(bench) = Self::new(test, partitions).await? else { return Ok(None) };
        bench.order(0).await?;
        Ok(Some(bench))
    }

    async fn order(&self, version: u64) -> Result<()> {
        let queue = self.client.queue(&self.topic);
        queue.update(version, |settings| settings.order = Some(QueueOrder::Key)).await?;
        Ok(())
    }

    /// A worker whose first attempts may fail, and whose tasks may fail for good.
    async fn start(&self) -> Result<WorkerHandle> {
        let processor = processor_fn(|task: Text, context: TaskContext| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            match task.0.as_str() {
                "again" if context.attempt() == 1 => {
                    Err(TaskError::retry_after(Duration::from_millis(300), "again"))
                }
                "dead" => Err(TaskError::fatal("dead")),
                _ => Ok::<_, TaskError>(task),
            }
        });
        let client = Client::connect(&self.url).await?;
        let worker = client.worker(&self.topic, processor).concurrency(8);
        Ok(worker.heartbeat(Duration::from_secs(1)).start().await?)
    }

    /// Submits `count` tasks of each key.
    async fn submit(&self, count: usize) -> Result<Vec<TaskRef>> {
        let mut tasks = Vec::new();
        for number in 0..count {
            for key in KEYS {
                let text = match number % 10 {
                    3 => "again",
                    7 => "dead",
                    _ => "fine",
                };
                let task = self.client.submission(&self.topic, &Text(text.to_owned()));
                tasks.push(task.order_key(key).send().await?);
            }
        }
        Ok(tasks)
    }

    async fn wait_for(&self, tasks: &[TaskRef]) -> Result<()> {
        for task in tasks {
            let end = timeout(PATIENCE, self.client.wait::<Text>(task)).await;
            match end.with_context(|| format!("{task} does not end"))? {
                Ok(_) | Err(WaitError::Failed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The number of tasks that have begun; an error if any began out of order.
    async fn begun_in_order(&self) -> Result<usize> {
        let transport = PulsarTransport::connect(ConnectOptions::new(&self.url)).await?;
        let names: TopicNames = self.topic.parse()?;
        let mut begun = 0;
        let partitions =
            self.partitions.map_or(-1..0, |count| 0..i32::try_from(count).unwrap_or(0));
        for partition in partitions {
            let mut judge = OrderJudge::default();
            let part = |topic: &str| TopicPartition { topic: topic.to_owned(), partition };
            for message in read_whole(&transport, &part(&names.task)).await? {
                if let Some(key) = message.order_key() {
                    judge.add(TaskId::new(message.position, partition), key);
                }
            }
            for message in read_whole(&transport, &part(&names.ledger)).await? {
                let found = judge.read(&ledger::read(&message)?);
                ensure!(found.is_none(), "{found:?}");
            }
            begun += judge.begun();
        }
        Ok(begun)
    }
}

#[tokio::test]
async fn the_tasks_of_a_key_begin_in_order_while_workers_come_and_go() -> Result<()> {
    let Some(bench) = Bench::ordered("order-key", None).await? else { return Ok(()) };
    let first = bench.start().await?;
    let mut tasks = bench.submit(15).await?;
    let second = bench.start().await?;
    tasks.extend(bench.submit(15).await?);
    first.drain(PATIENCE).await?;
    let third = bench.start().await?;
    tasks.extend(bench.submit(10).await?);
    second.stop();
    bench.wait_for(&tasks).await?;
    third.drain(PATIENCE).await?;
    let begun = bench.begun_in_order().await?;
    ensure!(begun == 40 * 7, "{begun}");
    Ok(())
}

#[tokio::test]
async fn a_key_is_on_one_partition() -> Result<()> {
    let Some(bench) = Bench::ordered("order-parts", Some(3)).await? else { return Ok(()) };
    let (first, second) = (bench.start().await?, bench.start().await?);
    let tasks = bench.submit(10).await?;
    bench.wait_for(&tasks).await?;
    first.drain(PATIENCE).await?;
    second.drain(PATIENCE).await?;
    let begun = bench.begun_in_order().await?;
    ensure!(begun == 10 * 7, "{begun}");
    Ok(())
}

/// The broker does not accept consumers of two types on a subscription: workers subscribe again
/// until all have changed.
#[tokio::test]
async fn a_queue_gets_an_order_while_workers_work() -> Result<()> {
    let Some(bench) = Bench::new("order-late", None).await? else { return Ok(()) };
    let (first, second) = (bench.start().await?, bench.start().await?);
    let before = bench.client.submit(&bench.topic, &Text("fine".to_owned())).await?;
    bench.wait_for(&[before]).await?;
    bench.order(0).await?;
    let tasks = bench.submit(10).await?;
    bench.wait_for(&tasks).await?;
    first.drain(PATIENCE).await?;
    second.drain(PATIENCE).await?;
    Ok(())
}
