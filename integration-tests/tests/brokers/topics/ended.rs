//! Topics that accept no more messages: terminated by an operator, or migrated to scalable topics of
//! Pulsar 5, which terminates them.

use super::{Bench, Nothing};
use anyhow::{Result, bail, ensure};
use integration_tests::skip;
use integration_tests::wait::until;
use longhaul::ops::ConnectionState;
use longhaul::topics::FindingKind;
use longhaul::{Client, Text, WorkerError, WorkerHandle};
use longhaul_transport::TransportErrorKind;
use reqwest::Method;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Waits until the worker is refused because a topic was terminated.
async fn told(worker: &WorkerHandle) -> Result<()> {
    until("a worker that says so", LIMIT, async || {
        let ConnectionState::Refused { cause, .. } = worker.connection() else { return Ok(None) };
        ensure!(cause.kind == TransportErrorKind::Terminated, "{cause}");
        Ok(Some(()))
    })
    .await
}

/// Earlier, the check did not see it, and a worker on a terminated ledger started and did nothing. A
/// worker on a terminated task topic did what was left there and waited for ever, in silence, while
/// tasks went to the topic that had taken its place.
#[tokio::test]
async fn a_topic_that_accepts_no_more_messages_is_told_of() -> Result<()> {
    let Some(bench) = Bench::new("ended").await? else { return Ok(()) };
    let client = Client::builder(&bench.broker).admin_url(&bench.admin_url).connect().await?;
    let start = async || client.worker(&bench.names.task, Nothing).start().await;
    bench.setup().await?;
    let terminate = async |topic: &str| {
        let path = format!("{}/terminate", topic.replacen("://", "/", 1));
        bench.sandbox.admin().call(Method::POST, &path, None).await
    };
    // Workers can finish what was submitted before.
    terminate(&bench.names.task).await?;
    bench.found(&bench.names.task, FindingKind::TopicTerminated).await?;
    let worker = start().await?;
    worker.ready().await;
    told(&worker).await?;
    worker.drain(Duration::from_secs(30)).await?;
    terminate(&bench.names.ledger).await?;
    let refused = start().await.err();
    let Some(WorkerError::TopicTerminated(finding)) = &refused else { bail!("{refused:?}") };
    assert_eq!(finding.topic, bench.names.ledger);
    bench.cleanup().await;
    Ok(())
}

impl Bench {
    /// Migrates a topic to a scalable one. `None` if this broker has none.
    async fn migrate(&self, topic: &str, force: bool) -> Result<Option<()>> {
        let (_, path) = topic.split_once("://").unwrap_or_default();
        let path = format!("scalable/{path}/migrate?force={force}");
        match self.sandbox.admin().call(Method::POST, &path, None).await {
            Err(error) if format!("{error:#}").contains("404") => Ok(None),
            answer => answer.map(|_| Some(())),
        }
    }
}

/// What `docs/platform.md` says of a migration by force while workers run.
#[tokio::test]
async fn a_migration_to_scalable_topics_is_told_of_and_loses_nothing() -> Result<()> {
    const TASKS: usize = 30;
    let Some(bench) = Bench::new("migrated").await? else { return Ok(()) };
    let bench = bench.partitioned(3);
    bench.setup().await?;
    let client = Client::builder(&bench.broker).admin_url(&bench.admin_url).connect().await?;
    let start = async || client.worker(&bench.names.task, Nothing).start().await;
    for number in 0..TASKS {
        client.submit(&bench.names.task, &Text(number.to_string())).await?;
    }
    let worker = start().await?;
    worker.ready().await;
    // Pulsar itself protects a topic whose clients do not know scalable ones.
    let refused = bench.migrate(&bench.names.task, false).await;
    if matches!(refused, Ok(None)) {
        skip("this broker has no scalable topics, as Pulsar 5 has");
        bench.cleanup().await;
        return Ok(());
    }
    let refused = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refused.contains("409"), "{refused}");
    bench.migrate(&bench.names.task, true).await?;
    told(&worker).await?;
    assert_eq!(worker.stats().completed, TASKS as u64, "what was submitted before is done");
    let late = client.submit(&bench.names.task, &Text("late".to_owned())).await;
    ensure!(late.is_err(), "{late:?}");
    bench.found(&bench.names.task, FindingKind::TopicTerminated).await?;

    worker.drain(Duration::from_secs(30)).await?;
    let worker = start().await?;
    worker.ready().await;
    told(&worker).await?;
    bench.migrate(&bench.names.ledger, true).await?;
    worker.drain(Duration::from_secs(30)).await.ok();
    let refused = start().await.err();
    let Some(WorkerError::TopicTerminated(finding)) = &refused else { bail!("{refused:?}") };
    assert_eq!(finding.topic, bench.names.ledger);
    // What was done can still be read.
    let verified = client.queue(&bench.names.task).verify().await?;
    ensure!(verified.tasks == TASKS as u64 && verified.broken == 0, "{verified:?}");
    Ok(())
}
