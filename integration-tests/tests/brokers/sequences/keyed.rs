//! Submits with a key from several clients, while a worker dies.

use crate::sequences::drain;
use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;
use longhaul::topics::{Priority, TopicSettings};
use longhaul::{Client, Levels, TaskId, TaskRef, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const KEYS: usize = 4;
const SUBMITS: usize = 12;

/// Submits each key many times at once, by two clients that know nothing of each other.
async fn submit_all(clients: &[Client; 2], topic: &str) -> Result<BTreeMap<usize, TaskRef>> {
    let submits = (0..KEYS * SUBMITS).map(|number| {
        let (key, client) = (number % KEYS, &clients[number / KEYS % 2]);
        let task = Text(format!("{number}|sleep 300,ok {key}"));
        let submission = client.submission(topic, &task).idempotency_key(format!("key {key}"));
        async move { anyhow::Ok((key, submission.send().await?)) }
    });
    let mut answers = BTreeMap::new();
    for answer in join_all(submits).await {
        let (key, task) = answer?;
        let first = answers.entry(key).or_insert_with(|| task.clone());
        ensure!(*first == task, "key {key}: {first} and {task}");
    }
    Ok(answers)
}

/// The judge knows nothing of registers: it counts which tasks were run.
#[tokio::test]
async fn of_many_submits_of_one_key_one_is_run_while_a_worker_dies() -> Result<()> {
    let Some(bench) = Bench::new("keyed").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let start = async |name| {
        let worker = bench.worker(scripted.named(name)).await?.heartbeat(Duration::from_secs(2));
        anyhow::Ok(worker.start().await?)
    };
    let (first, second) = (start("first").await?, start("second").await?);
    let url = bench.service_url();
    let clients = [Client::connect(url).await?, Client::connect(url).await?];
    let topic = &bench.names().task;
    let killed = async {
        let begun = async || Ok(!scripted.runs().is_empty());
        crate::support::until("a task to begin", begun).await?;
        first.stop();
        anyhow::Ok(first.join().await?)
    };
    let (answers, killed) = tokio::join!(submit_all(&clients, topic), killed);
    killed?;
    let answers = answers?;
    // A client that has just started answers the same.
    let late = [Client::connect(url).await?, clients[0].clone()];
    ensure!(submit_all(&late, topic).await? == answers, "{answers:?}");
    bench.all_acknowledged().await?;
    let ran: BTreeSet<TaskId> = scripted.runs().iter().map(|run| run.task).collect();
    let answered: BTreeSet<TaskId> = answers.values().map(|task| task.id).collect();
    ensure!(ran == answered && ran.len() == KEYS, "run: {ran:?}, answered: {answers:?}");
    for (id, task) in &bench.audit().await? {
        let last = task.shown.last().and_then(|it| it.metadata.as_ref()).context("none")?;
        let holder = last.duplicate_of.as_ref().map(|holder| holder.parse()).transpose()?;
        ensure!(ran.contains(id) == holder.is_none(), "{id}: {last:?}");
        ensure!(holder.is_none_or(|holder| ran.contains(&holder)), "{id}: {last:?}");
    }
    drain([second]).await
}

/// One key with several priorities is one task.
#[tokio::test]
async fn of_the_priorities_of_one_key_one_is_run() -> Result<()> {
    let Some(bench) = Bench::new("keyed-levels").await? else { return Ok(()) };
    let client = Client::builder(bench.service_url()).admin_url(bench.sandbox().admin().url());
    let (client, topic) = (client.connect().await?, &bench.names().task);
    client.setup_levels(topic, TopicSettings::default()).await?;
    let submits = (0..SUBMITS).map(|number| {
        let task = Text(format!("{number}|ok done"));
        let submission = client.submission(topic, &task).idempotency_key("k");
        submission.priority(Priority::ALL[number % 3]).send()
    });
    let answers: Vec<TaskRef> = join_all(submits).await.into_iter().collect::<Result<_, _>>()?;
    ensure!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.clone()).await?.levels(Levels::strict()).start().await?;
    let done: Text = client.wait(&answers[0]).await?;
    bench.all_acknowledged().await?;
    drain([worker]).await?;
    let ran: Vec<TaskId> = scripted.runs().iter().map(|run| run.task).collect();
    ensure!((done.0.as_str(), ran.as_slice()) == ("done", &[answers[0].id]), "{ran:?}");
    Ok(())
}
