//! What a client can read of a queue while its workers run.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use anyhow::{Context, Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::script::Scripted;
use integration_tests::view::LIMIT;
use integration_tests::wait::until;
use longhaul::ops::{HistoryEvent, TaskFilter, TaskStatus, WhyCause};
use longhaul::{Client, TaskRef};
use longhaul_transport::Transport;
use tokio::time::timeout;

/// Before, a client could not see all tasks of a queue at once, nor why one was in its state.
#[tokio::test]
async fn a_client_sees_all_tasks_their_workers_and_their_history() -> Result<()> {
    let Some(bench) = Bench::new("reading").await? else { return Ok(()) };
    let client = Client::connect(bench.service_url()).await?;
    let mut producer = Plain::tasks(&bench).await?;
    let waits = producer.submit("0|gate,ok a").await?;
    let fails = producer.submit("1|fail x|ok b").await?;
    let view = timeout(LIMIT, client.queue(&bench.names().task).tasks()).await??;
    ensure!(view.counts()?.of(TaskStatus::Ready) == 2, "{:?}", view.counts()?);
    let waiting = TaskRef::new(&bench.names().task, waits)?;
    let queue = client.queue(&waiting.topic).with_view(&view);
    let why = queue.why_all(&view.list(&TaskFilter::new(), None, 9)?.tasks).await?;
    let sentence = "no worker of the queue is alive; start a worker";
    let all_wait = why.values().all(|why| why.to_string() == sentence);
    ensure!(all_wait && why.keys().copied().eq([waits, fails]), "{why:?}");
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.named("first")).await?.label("blue");
    let worker = worker.name("mailer").start().await?;
    let status = |id| Ok::<_, anyhow::Error>(view.get(id)?.map(|task| task.status));
    let both = async || {
        let ended = status(fails)? == Some(TaskStatus::Completed);
        Ok((status(waits)? == Some(TaskStatus::Running) && ended).then_some(()))
    };
    until("one task to run and one to have ended", LIMIT, both).await?;
    let running = view.list(&TaskFilter::new().status(TaskStatus::Running), None, 9)?.tasks;
    let who = running.first().and_then(|task| task.worker.clone()).context("no worker is named")?;
    ensure!((who.name.as_str(), who.label.as_str()) == ("mailer", "blue"), "{who:?}");
    let workers = view.workers()?;
    ensure!(workers.iter().any(|worker| worker.running == [waits]), "{workers:?}");
    let why =
        client.queue(&waiting.topic).why(waiting.id).await?.context("the task is not known")?;
    let runs =
        matches!(&why.cause, WhyCause::Running { worker, missed: 0, .. } if worker == "mailer");
    ensure!(runs, "{why}");
    scripted.open_gate();
    let idle = async || Ok((view.counts()?.demand() == 0).then_some(()));
    until("both to have ended", LIMIT, idle).await?;
    let task = TaskRef::new(&bench.names().task, fails)?;
    let history = client.queue(&task.topic).history(task.id).await?;
    ensure!(
        history.is_whole && history.entries.iter().all(|it| it.ignored.is_none()),
        "{history:?}"
    );
    let claims =
        |it: &&longhaul::ops::HistoryEntry| matches!(it.event, HistoryEvent::Claimed { .. });
    ensure!(history.entries.iter().filter(claims).count() == 2, "{history:?}");
    ensure!(client.queue(&bench.names().task).zombies().await?.is_empty());
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drain([worker]).await
}

/// A dashboard that hangs, or whose host is gone, must not delay the workers: its subscription on
/// the metadata topic keeps a place in the log and nothing else.
#[tokio::test]
async fn a_subscription_on_the_metadata_topic_that_stands_still_slows_no_worker() -> Result<()> {
    const COUNT: usize = 200;
    let Some(bench) = Bench::new("stalled").await? else { return Ok(()) };
    let metadata = &bench.names().metadata;
    let part = bench.parts(metadata).swap_remove(0);
    // The subscription is connected and never asks for a message.
    let stalled = bench.transport().consumer(&part, "stalled").await?;
    let mut producer = Plain::tasks(&bench).await?;
    let mut ids = Vec::new();
    for index in 0..COUNT {
        ids.push(producer.submit(&format!("{index}|ok {index}")).await?);
    }
    let mut view = bench.view().await?;
    let worker = bench.worker(Scripted::default()).await?.concurrency(100).start().await?;
    view.until_all(&ids, "COMPLETED 1").await?;
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drop(stalled);
    drain([worker]).await
}
