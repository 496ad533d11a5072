//! The client against a real broker: it submits, waits, looks, watches and cancels. No worker runs
//! here: the tests write the metadata topic themselves, as any worker would.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

use crate::support::{note, now, until, within};
use crate::transport::tombstone;
use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use integration_tests::sandbox::Sandbox;
use longhaul::topics::{Admin, AdminOptions, CompactionStatus, TopicNames};
use longhaul::{
    Client, ReadError, SubmitError, TaskId, TaskMetadata, TaskRef, TaskState, Text,
    TransportErrorKind, WatchEvent, WatchFrom,
};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{
    Batching, Follow, Outgoing, Publisher, Start, TopicPartition, TopicSchema, Transport,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long we wait to see that nothing comes.
const SILENCE: Duration = Duration::from_millis(500);

/// A broker, a client on it, and topics of one test.
struct Bench {
    sandbox: Sandbox,
    admin: Admin,
    transport: PulsarTransport,
    client: Client,
    names: TopicNames,
}

impl Bench {
    /// `None` when the environment names no broker.
    async fn new(test: &str, partitions: Option<u32>) -> Result<Option<Self>> {
        let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
        let url = sandbox.service_url();
        let bench = Self {
            admin: Admin::new(sandbox.admin().url(), &AdminOptions::default())?,
            transport: PulsarTransport::connect(ConnectOptions::new(url)).await?,
            client: Client::connect(url).await?,
            names: sandbox.topic(&format!("client-{test}")).parse()?,
            sandbox,
        };
        for topic in [&bench.names.ledger, &bench.names.metadata, &bench.names.task] {
            bench.admin.create_topic(topic, partitions).await?;
        }
        // Pulsar once trimmed the entries of a test that ran while it looked.
        for topic in [&bench.names.ledger, &bench.names.metadata] {
            bench.sandbox.admin().keep_all(topic).await?;
        }
        bench.admin.create_subscription(&bench.names.task, "longhaul").await?;
        Ok(Some(bench))
    }

    fn metadata(&self, partition: i32) -> TopicPartition {
        TopicPartition { topic: self.names.metadata.clone(), partition }
    }

    /// A writer to a partition of the metadata topic, as a worker has.
    async fn writer(&self, partition: i32) -> Result<Writer> {
        let topic = self.metadata(partition);
        let publisher = self.transport.publisher(&topic, Batching::Off, TopicSchema::TaskMetadata);
        Ok(Writer(publisher.await?))
    }

    async fn submit(&self, count: u32) -> Result<Vec<TaskRef>> {
        let tasks = (0..count).map(|number| Text(format!("task {number}")));
        let submitted = self.client.submit_all(&self.names.task, tasks).try_collect();
        Ok(within("receipts", submitted).await??)
    }

    /// The first messages of a partition.
    async fn messages(
        &self,
        topic: &str,
        partition: i32,
        count: usize,
    ) -> Result<Vec<longhaul_transport::Message>> {
        let messages = self.at_least(topic, partition, count).await?;
        ensure!(messages.len() == count, "more than {count} messages: {:?}", messages.get(count));
        Ok(messages)
    }

    /// The messages on a partition, at least this number of them.
    async fn at_least(
        &self,
        topic: &str,
        partition: i32,
        count: usize,
    ) -> Result<Vec<longhaul_transport::Message>> {
        let topic = TopicPartition { topic: topic.to_owned(), partition };
        let follow = Follow { start: Start::Earliest, compacted: false };
        let mut follower = self.transport.follower(&topic, follow).await?;
        let mut messages = Vec::new();
        while messages.len() < count {
            messages.push(within("a message", follower.next()).await??);
        }
        while let Ok(message) = timeout(SILENCE, follower.next()).await {
            messages.push(message?);
        }
        Ok(messages)
    }

    async fn compact(&self, topic: &str) -> Result<()> {
        self.admin.compact(topic).await?;
        until("the compaction", async || {
            Ok(self.admin.compaction(topic).await?.status == CompactionStatus::Success)
        })
        .await
    }
}

/// Writes to the metadata topic as a worker does.
struct Writer(Box<dyn Publisher>);

impl Writer {
    async fn show(&mut self, entries: &[(TaskMetadata, u32)]) -> Result<()> {
        let mut receipts = Vec::new();
        for (metadata, epoch) in entries {
            let properties = BTreeMap::from([
                ("epoch".to_owned(), epoch.to_string()),
                ("owner".to_owned(), "hand".to_owned()),
            ]);
            let payload = serde_json::to_vec(metadata)?.into();
            let key = Some(metadata.message_id.clone());
            receipts.push(
                self.0
                    .send(Outgoing {
                        key,
                        properties: properties.into(),
                        payload,
                        ..Outgoing::default()
                    })
                    .await?,
            );
        }
        for receipt in receipts {
            receipt.await?;
        }
        Ok(())
    }
}

fn shown(id: TaskId, state: TaskState, attempts: u32) -> TaskMetadata {
    let result = (state == TaskState::Completed).then(|| id.to_string().into_bytes().into());
    // Made from its JSON: the fields that these tests do not need are left out.
    let bare = serde_json::json!({
        "messageId": id.to_string(), "state": state, "created": 1, "lastUpdated": 2, "attempts": attempts,
    });
    let bare: TaskMetadata = serde_json::from_value(bare).unwrap_or_else(|error| panic!("{error}"));
    TaskMetadata { result, ..bare }
}

#[tokio::test]
async fn a_task_is_submitted_awaited_looked_at_and_evicted() -> Result<()> {
    let Some(bench) = Bench::new("life", None).await? else { return Ok(()) };
    let Bench { client, names, .. } = &bench;
    let submission = client.submission(&names.task, &Text("foo".to_owned()));
    let submission = submission.property("a", "b").max_duration(Duration::from_secs(90));
    let task = within("a receipt", submission.send()).await??;
    ensure!(task.topic == names.task && task.id.partition == -1, "{task}");
    let stored = bench.messages(&names.task, -1, 1).await?.swap_remove(0);
    ensure!(TaskId::new(stored.position, -1) == task.id && stored.batch_size.is_none());
    ensure!(
        stored.payload == "foo" && stored.properties.get("MAX_TASK_DURATION") == Some("PT1M30S")
    );

    ensure!(client.get(&task).await?.is_none());
    let mut writer = bench.writer(-1).await?;
    let wait = client.wait::<Text>(&task);
    let work = async {
        writer.show(&[(shown(task.id, TaskState::Processing, 1), 1)]).await?;
        writer.show(&[(shown(task.id, TaskState::Failed, 1), 1)]).await?;
        sleep(SILENCE).await;
        writer.show(&[(shown(task.id, TaskState::Completed, 2), 2)]).await
    };
    let (result, worked) = within("the result", async { tokio::join!(wait, work) }).await?;
    worked?;
    ensure!(result?.0 == task.id.to_string());
    // Late entries of a worker that was replaced.
    writer.show(&[(shown(task.id, TaskState::Processing, 1), 1)]).await?;
    let found = client.get(&task).await?.context("nothing shown")?;
    ensure!(found.state == TaskState::Completed, "{found:?}");

    let topic = bench.metadata(-1);
    tombstone(&bench.transport, &topic, Batching::Off, [task.id.to_string()]).await?;
    ensure!(client.get(&task).await?.is_none());
    // A client that starts after compaction has removed the last entries of the topic must not wait
    // for them.
    bench.compact(&names.metadata).await?;
    let late = Client::connect(bench.sandbox.service_url()).await?;
    let looked = within("an answer", late.get(&task)).await?;
    ensure!(looked?.is_none() && client.get(&task).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_thousand_waits_share_a_follower_and_outlive_unloads() -> Result<()> {
    const COUNT: u32 = 1_000;
    let Some(bench) = Bench::new("waits", None).await? else { return Ok(()) };
    let started = now();
    let tasks = bench.submit(COUNT).await?;
    note(&format!("{COUNT} tasks submitted in {:?}", started.elapsed()));
    let mut waits = JoinSet::new();
    for task in tasks.clone() {
        let client = bench.client.clone();
        waits.spawn(async move { (task.id, client.wait::<Text>(&task).await) });
    }
    let mut writer = bench.writer(-1).await?;
    let running: Vec<_> =
        tasks.iter().map(|task| (shown(task.id, TaskState::Processing, 1), 1)).collect();
    writer.show(&running).await?;
    ensure!(bench.client.get(&tasks[0]).await?.is_some());
    bench.sandbox.admin().unload(&bench.names.metadata).await?;
    // The topic moves while half of the tasks end.
    let mut writer = bench.writer(-1).await?;
    let ended: Vec<_> =
        tasks.iter().map(|task| (shown(task.id, TaskState::Completed, 1), 1)).collect();
    let (first, second) = ended.split_at(ended.len() / 2);
    writer.show(first).await?;
    bench.sandbox.admin().unload(&bench.names.metadata).await?;
    let mut writer = bench.writer(-1).await?;
    writer.show(second).await?;
    let started = now();
    while let Some(waited) = within("an end", waits.join_next()).await? {
        let (id, result) = waited?;
        ensure!(result?.0 == id.to_string());
    }
    note(&format!("the last of {COUNT} waits ended {:?} after the last entry", started.elapsed()));

    // The client remembers all of them, and reading them is cheap.
    let started = now();
    for task in tasks.iter().take(100) {
        let found = bench.client.get(task).await?;
        ensure!(found.as_ref().is_some_and(TaskMetadata::is_terminal), "{task}: {found:?}");
    }
    note(&format!("100 looks one after the other in {:?}", started.elapsed()));
    Ok(())
}

/// With partitions and without: looking at a misspelt queue once created its ledger and its
/// metadata topic.
#[tokio::test]
async fn a_queue_that_does_not_exist_is_told_and_not_made() -> Result<()> {
    for partitions in [None, Some(3)] {
        let Some(bench) = Bench::new("exists", partitions).await? else { return Ok(()) };
        let client = &bench.client;
        ensure!(client.queue(&bench.names.task).exists().await?, "it exists");
        within("a view", client.queue(&bench.names.task).tasks()).await??;
        let absent: TopicNames = bench.sandbox.topic("client-absent").parse()?;
        ensure!(!client.queue(&absent.task).exists().await?, "it does not exist");
        let view = within("a refusal", client.queue(&absent.task).tasks()).await?;
        let kind = match &view {
            Err(ReadError::Transport(error)) => Some(error.kind),
            _ => None,
        };
        ensure!(kind == Some(TransportErrorKind::NotFound), "{view:?}");
        for topic in [&absent.task, &absent.ledger, &absent.metadata] {
            ensure!(!bench.transport.exists(topic).await?, "{topic} was made");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_watch_from_the_latest_goes_on_over_an_unload_and_shows_nothing_twice() -> Result<()> {
    let Some(bench) = Bench::new("watch", None).await? else { return Ok(()) };
    let id = |entry| TaskId { ledger: 1, entry, partition: -1, batch_index: None };
    let mut writer = bench.writer(-1).await?;
    let before: Vec<_> =
        (0..10).map(|entry| (shown(id(entry), TaskState::Processing, 1), 1)).collect();
    writer.show(&before).await?;
    let mut watch = bench.client.queue(&bench.names.task).watch_from(WatchFrom::Latest).await?;
    let event = within("the present", watch.next()).await?.context("no more events")??;
    ensure!(event == WatchEvent::CaughtUp, "{event:?}");
    let mut seen = Vec::new();
    for round in 0..3 {
        let mut writer = bench.writer(-1).await?;
        let entries: Vec<_> = (0..10)
            .map(|entry| (shown(id(100 * round + entry), TaskState::Completed, 1), 1))
            .collect();
        writer.show(&entries).await?;
        for _ in 0..10 {
            let event = within("an event", watch.next()).await?.context("no more events")??;
            let WatchEvent::Updated { id, metadata, .. } = event else { bail!("{event:?}") };
            ensure!(metadata.state == TaskState::Completed);
            seen.push(id.entry);
        }
        bench.sandbox.admin().unload(&bench.names.metadata).await?;
    }
    let expected: Vec<u64> =
        (0..3).flat_map(|round| (0..10).map(move |n| 100 * round + n)).collect();
    ensure!(seen == expected, "{seen:?}");
    let topic = bench.metadata(-1);
    tombstone(&bench.transport, &topic, Batching::Off, [id(0).to_string()]).await?;
    let event = within("an event", watch.next()).await?.context("no more events")??;
    ensure!(event == WatchEvent::Evicted { id: id(0) }, "{event:?}");
    Ok(())
}

/// A message without a receipt when the topic moves has an unknown fate and is not sent again:
/// although this broker drops no duplicates, no task is stored twice.
#[tokio::test]
async fn every_receipt_names_a_task_whatever_moves() -> Result<()> {
    let Some(bench) = Bench::new("moves", None).await? else { return Ok(()) };
    let count = 3_000;
    let Bench { sandbox, client, names, .. } = &bench;
    let started = now();
    let mut submits = client.submit_all(&names.task, (0..count).map(|n| Text(n.to_string())));
    let (mut stored, mut unknown) = (BTreeSet::new(), 0);
    for done in 1..=count {
        match within("a receipt", submits.next()).await?.context("no more results")? {
            Ok(task) => ensure!(stored.insert(task.id), "an id twice"),
            Err(SubmitError::Unknown(_)) => unknown += 1,
            Err(error) => bail!("not submitted: {error:?}"),
        }
        if done % 1_000 == 500 {
            sandbox.admin().unload(&names.task).await?;
        }
    }
    let elapsed = started.elapsed();
    let topic = TopicPartition { topic: names.task.clone(), partition: -1 };
    let follow = Follow { start: Start::Earliest, compacted: false };
    let mut follower = bench.transport.follower(&topic, follow).await?;
    let last = follower.last_position().await?.context("no task")?;
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut found_ids = BTreeSet::new();
    loop {
        let message = within("a message", follower.next()).await??;
        let text = String::from_utf8(message.payload.to_vec())?;
        *found.entry(text).or_default() +=
            usize::from(found_ids.insert(TaskId::new(message.position, -1)));
        if message.position >= last {
            break;
        }
    }
    note(&format!(
        "{count} submits over 3 unloads in {elapsed:?}: {} with receipt, {unknown} unknown; {} on the topic, of {} tasks",
        stored.len(),
        found_ids.len(),
        found.len()
    ));
    ensure!(stored.is_subset(&found_ids), "a receipt without a task");
    ensure!(found.len() + unknown >= count, "tasks are missing");
    ensure!(found.values().all(|times| *times == 1), "a task twice");
    Ok(())
}
