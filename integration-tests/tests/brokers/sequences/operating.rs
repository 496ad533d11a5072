//! The actions of operators on tasks and dead letters, on a broker.

use crate::sequences::drain;
use anyhow::{Context, Result, bail, ensure};
use futures::TryStreamExt;
use integration_tests::bench::Bench;
use integration_tests::view::LIMIT;
use integration_tests::wait::until;
use longhaul::ops::{DeadLetterFilter, Replayed};
use longhaul::topics::DEAD_LETTER_SUBSCRIPTION;
use longhaul::{Client, TaskContext, TaskError, TaskRef, Text, processor_fn};
use longhaul_transport::{TopicPartition, Transport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

async fn submit(client: &Client, bench: &Bench, task: &str) -> Result<TaskRef> {
    Ok(client.submit(&bench.names().task, &Text(task.to_owned())).await?)
}

#[tokio::test]
async fn dead_letters_are_replayed_and_purged_and_the_broker_may_delete_them() -> Result<()> {
    let Some(bench) = Bench::new("letters").await? else { return Ok(()) };
    let healed = Arc::new(AtomicBool::new(false));
    let processor = processor_fn({
        let healed = Arc::clone(&healed);
        move |task: Text, _: TaskContext| {
            let healed = healed.load(Ordering::Relaxed);
            async move { if healed { Ok(task) } else { Err(TaskError::fatal(task.0)) } }
        }
    });
    let worker = bench.worker(processor).await?.start().await?;
    let client = Client::builder(bench.service_url()).operator("ann").connect().await?;
    let mut tasks = Vec::new();
    for number in 0..5 {
        let task = submit(&client, &bench, &format!("page {number}")).await?;
        client.wait_metadata(&task).await?;
        tasks.push(task);
    }
    let letters = client.queue(&bench.names().task).dead_letters().await?;
    let all = DeadLetterFilter::new();
    let page = letters.list(&all, None, 2).await?;
    let rest = letters.list(&all, page.next, 100).await?;
    let listed: Vec<TaskRef> =
        page.letters.into_iter().chain(rest.letters).map(|letter| letter.task).collect();
    ensure!(listed == tasks, "{listed:?}");
    let shown = letters.show(&tasks[3]).await?.context("it is there")?;
    ensure!(shown.payload.as_deref() == Some(b"page 3"), "{shown:?}");

    healed.store(true, Ordering::Relaxed);
    let filter = DeadLetterFilter::new().reason("page 1");
    let outcomes: Vec<_> = letters.replay_all(filter, "").try_collect().await?;
    let [(old, Replayed::Restarted(new))] = outcomes.as_slice() else { bail!("{outcomes:?}") };
    ensure!(*old == tasks[1] && client.wait::<Text>(new).await?.0 == "page 1");
    // Another client, after a restart: the same letter once more.
    let again = Client::connect(bench.service_url()).await?;
    let again =
        again.queue(&bench.names().task).dead_letters().await?.replay(&tasks[1], "").await?;
    ensure!(again == Replayed::Restarted(new.clone()), "{again:?}");
    let purged: Vec<_> = letters.purge(all.clone(), "old").try_collect().await?;
    ensure!(purged.len() == 4, "{purged:?}");
    ensure!(letters.list(&all, None, 100).await?.letters.is_empty());
    // The broker keeps no letters and marks any more.
    let topic = TopicPartition { topic: bench.names().dead_letters.clone(), partition: -1 };
    until("all dead letters are acknowledged", LIMIT, async || {
        let mut consumer = bench.transport().consumer(&topic, DEAD_LETTER_SUBSCRIPTION).await?;
        Ok((consumer.backlog().await?.entries == 0).then_some(()))
    })
    .await?;
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drain([worker]).await
}
