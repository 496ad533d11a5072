//! Submits with a key from several clients, while a worker dies.

use crate::sequences::drain;
use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;
use longhaul::{Client, TaskId, TaskRef, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const KEYS: usize = 4;
const SUBMITS: usize = 12;

/// Submits each key many times at once, from two independent clients.
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

/// The check does not use registers: it counts the tasks that ran.
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
    // A client that has just started gives the same answers.
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

/// A document is indexed once, in its last version, whatever the state of its task when the next
/// change comes. The topic has partitions.
#[tokio::test]
async fn a_task_is_overwritten_until_it_runs() -> Result<()> {
    let Some(bench) = Bench::with_partitions("overwritten", Some(3)).await? else { return Ok(()) };
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.clone()).await?.heartbeat(Duration::from_secs(2));
    let worker = worker.start().await?;
    let (client, topic) = (Client::connect(bench.service_url()).await?, &bench.names().task);
    let submit = async |task: &str, delay: u64| {
        let submission = client.submission(topic, &Text(task.to_owned())).dedupe_key("document");
        let submission = submission.overwrite().delay(Duration::from_secs(delay));
        anyhow::Ok(submission.send().await?)
    };
    let mut tasks = vec![submit("0|ok 0", 3_600).await?];
    for number in 1..3 {
        tasks.push(submit(&format!("{number}|ok {number}"), 3_600).await?);
        // The broker holds its message and delivers it in an hour.
        let end = client.wait::<Text>(&tasks[number - 1]).await;
        ensure!(end.is_err(), "{number}: {end:?}");
    }
    let runs = submit("3|sleep 3000,ok 3", 0).await?;
    let begun = async || Ok(scripted.runs().iter().any(|run| run.task == runs.id));
    crate::support::until("the task to begin", begun).await?;
    let (late, last) = (submit("4|ok 4", 0).await?, submit("5|ok 5", 0).await?);
    let done: Text = client.wait(&runs).await?;
    ensure!(done.0 == "3", "what runs is not touched: {done:?}");
    let done: Text = client.wait(&last).await?;
    ensure!(done.0 == "5", "{done:?}");
    bench.all_acknowledged().await?;
    drain([worker]).await?;
    let ran: Vec<TaskId> = scripted.runs().iter().map(|run| run.task).collect();
    ensure!(ran == [runs.id, last.id], "{ran:?} of {tasks:?}, {runs}, {late}, {last}");
    let audit = bench.audit().await?;
    tasks.push(runs);
    for pair in tasks.windows(2) {
        let shown = audit.get(&pair[0].id).and_then(|task| task.shown.last());
        let shown = shown.and_then(|it| it.metadata.as_ref()).context("none")?;
        ensure!(shown.superseded_by == Some(pair[1].id.to_string()), "{shown:?}");
    }
    let found = client.queue(topic).verify().await?;
    ensure!(found.is_sound(), "{found:?}");
    Ok(())
}
