//! Topics that accept no more messages: terminated by an operator, or migrated to scalable topics of
//! Pulsar 5, which terminates them.

use super::Bench;
use crate::support::within;
use anyhow::{Context, Result, bail, ensure};
use integration_tests::sandbox::pulsar_version;
use integration_tests::skip;
use integration_tests::wait::until;
use longhaul::topics::FindingKind;
use longhaul::{SubmitError, TaskContext, TaskError, TaskProcessor, Text, WorkerError};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{SubscriptionType, TopicPartition, Transport, TransportErrorKind};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;

const LIMIT: Duration = Duration::from_secs(60);
const TASKS: usize = 30;

/// Tasks that wait until a gate is open.
struct Gated(watch::Receiver<bool>);

impl TaskProcessor for Gated {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, _context: TaskContext) -> Result<Text, TaskError> {
        self.0.clone().wait_for(|is_open| *is_open).await.map_err(TaskError::retry)?;
        Ok(task)
    }
}

impl Bench {
    /// Reads these partitions to their ends, until the broker says that they were terminated.
    async fn drained(&self, partitions: std::ops::Range<i32>) -> Result<()> {
        let transport =
            PulsarTransport::connect(ConnectOptions::new(self.sandbox.service_url())).await?;
        for partition in partitions {
            let topic = TopicPartition { topic: self.names.task.clone(), partition };
            let opening = transport.subscribe(&topic, "observer", SubscriptionType::Shared);
            let mut consumer = opening.await?;
            let cause = loop {
                match within("a message or a notice", consumer.next()).await? {
                    Ok(message) => consumer.ack(message.position.entry_id()).await?,
                    Err(cause) => break cause,
                };
            };
            ensure!(cause.kind == TransportErrorKind::Terminated, "{cause}");
        }
        Ok(())
    }

    /// Calls the admin API of scalable topics.
    async fn scalable(&self, method: Method, path: &str) -> Result<serde_json::Value> {
        self.sandbox.admin().call(method, &format!("scalable/public/default{path}"), None).await
    }

    async fn migrate(&self, topic: &str, force: bool) -> Result<serde_json::Value> {
        let (_, name) = topic.rsplit_once('/').context("a topic has a name")?;
        self.scalable(Method::POST, &format!("/{name}/migrate?force={force}")).await
    }
}

/// Earlier, the check did not see it, and a worker on a terminated ledger started and did nothing.
#[tokio::test]
async fn a_topic_that_accepts_no_more_messages_is_told_of() -> Result<()> {
    let Some(bench) = Bench::new("ended").await? else { return Ok(()) };
    let client = bench.sandbox.client().await?;
    let open = Gated(watch::channel(true).1);
    let start = async || client.worker(&bench.names.task, Gated(open.0.clone())).start().await;
    bench.setup().await?;
    let terminate = async |topic: &str| {
        let path = format!("{}/terminate", topic.replacen("://", "/", 1));
        bench.sandbox.admin().call(Method::POST, &path, None).await
    };
    // Workers can finish what was submitted before.
    terminate(&bench.names.task).await?;
    bench.found(&bench.names.task, FindingKind::TopicTerminated).await?;
    bench.drained(-1..0).await?;
    let worker = start().await?;
    worker.ready().await;
    worker.drain(Duration::from_secs(30)).await?;
    terminate(&bench.names.ledger).await?;
    let refused = start().await.err();
    let Some(WorkerError::TopicTerminated(finding)) = &refused else { bail!("{refused:?}") };
    assert_eq!(finding.topic, bench.names.ledger);
    Ok(())
}

/// What `docs/platform.md` says of a migration by force while workers run.
#[tokio::test]
async fn a_migration_to_scalable_topics_is_told_of_and_loses_nothing() -> Result<()> {
    let Some(bench) = Bench::new("migrated").await? else { return Ok(()) };
    if let Err(error) = bench.scalable(Method::GET, "").await {
        ensure!(!pulsar_version()?.starts_with('5'), "{error:#}");
        skip("this broker has no scalable topics, as Pulsar 5 has");
        return Ok(());
    }
    let bench = bench.partitioned(3);
    bench.setup().await?;
    let client = bench.sandbox.client().await?;
    let (gate, gated) = watch::channel(false);
    let start = async || client.worker(&bench.names.task, Gated(gated.clone())).start().await;
    for number in 0..TASKS {
        client.submit(&bench.names.task, &Text(number.to_string())).await?;
    }
    let worker = start().await?;
    worker.ready().await;
    // Pulsar itself protects a topic whose clients do not know scalable ones.
    let refused = bench.migrate(&bench.names.task, false).await.map_err(|it| format!("{it:#}"));
    ensure!(refused.as_ref().is_err_and(|it| it.contains(": 409 ")), "{refused:?}");
    bench.migrate(&bench.names.task, true).await?;
    ensure!(worker.stats().completed == 0, "all tasks are left at the migration");
    gate.send_replace(true);
    let completed = async || Ok((worker.stats().completed == TASKS as u64).then_some(()));
    until("what was submitted before is done", LIMIT, completed).await?;
    worker.drain(Duration::from_secs(30)).await?;
    bench.drained(0..3).await?;
    let late = client.submit(&bench.names.task, &Text("late".to_owned())).await;
    let Err(SubmitError::Transport(late)) = late else { bail!("{late:?}") };
    ensure!(late.kind == TransportErrorKind::Terminated, "{late}");
    bench.found(&bench.names.task, FindingKind::TopicTerminated).await?;
    let (_, name) = bench.names.task.rsplit_once('/').context("a topic has a name")?;
    let migrated = bench.scalable(Method::GET, "").await?;
    let scalable = json!(format!("topic://public/default/{name}"));
    ensure!(migrated.as_array().is_some_and(|them| them.contains(&scalable)), "{migrated}");
    let layout = bench.scalable(Method::GET, &format!("/{name}")).await?;
    let segments = layout["segments"].as_object().context("no segments")?;
    let sealed = segments.values().filter(|it| it["sealed"] == true).count();
    assert_eq!((segments.len(), sealed), (6, 3), "{layout}");

    // Workers still start, for what may be left there, but not without their ledger.
    start().await?.drain(Duration::from_secs(30)).await?;
    bench.migrate(&bench.names.ledger, true).await?;
    let refused = start().await.err();
    let Some(WorkerError::TopicTerminated(finding)) = &refused else { bail!("{refused:?}") };
    assert_eq!(finding.topic, bench.names.ledger);
    // What was done can still be read.
    let verified = client.queue(&bench.names.task).verify().await?;
    ensure!(verified.tasks == TASKS as u64 && verified.broken == 0, "{verified:?}");
    Ok(())
}
