//! Schedules on a real broker: several workers, one of which dies, and one that starts after a
//! downtime.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

use anyhow::{Context, Result, ensure};
use integration_tests::sandbox::Sandbox;
use jiff::Timestamp;
use longhaul::{
    Overlap, Raw, Schedule, TaskContext, TaskError, TaskId, TaskProcessor, Text, WorkerHandle,
};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// The limit for everything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A slot, and its task.
type Tick = (SystemTime, TaskId);

/// Reports the slot for which it runs.
struct Ticker(Sender<Tick>);

impl TaskProcessor for Ticker {
    type Task = Text;
    type Output = Raw;

    async fn process(&self, _: Text, context: TaskContext) -> Result<Raw, TaskError> {
        let slot = context.properties().get("SCHEDULE_SLOT").cloned().unwrap_or_default();
        let slot: Timestamp = slot.parse()?;
        self.0.send((slot.into(), context.task_id())).await?;
        Ok(Raw::default())
    }
}

struct Bench {
    sandbox: Sandbox,
    topic: String,
    ticks: Sender<Tick>,
}

impl Bench {
    async fn worker(&self) -> Result<WorkerHandle> {
        let worker = self.sandbox.client().await?.worker(&self.topic, Ticker(self.ticks.clone()));
        let worker = worker.heartbeat(Duration::from_secs(1)).start().await?;
        worker.ready().await;
        Ok(worker)
    }
}

/// The next `count` ticks.
async fn next(ticks: &mut Receiver<Tick>, count: usize) -> Result<Vec<Tick>> {
    let mut found = Vec::new();
    while found.len() < count {
        let tick = timeout(PATIENCE, ticks.recv()).await.context("nothing was fired")?;
        found.push(tick.context("no worker is there")?);
    }
    Ok(found)
}

/// Each second is one task. A task whose worker has died runs again and stays the same task.
fn ensure_unbroken(found: &BTreeSet<Tick>) -> Result<()> {
    for ((before, _), (after, _)) in found.iter().zip(found.iter().skip(1)) {
        ensure!(after.duration_since(*before)? == Duration::from_secs(1), "{found:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn each_second_is_one_task_whoever_dies_and_whenever_a_worker_comes_back() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let topic = sandbox.topic("schedules");
    let (said, mut ticks) = channel(1_000);
    let bench = Bench { sandbox, topic, ticks: said };
    let (first, second) = (bench.worker().await?, bench.worker().await?);
    let client = bench.sandbox.client().await?;
    let schedules = client.queue(&bench.topic).schedules();
    let each_second = Schedule::cron("* * * * * *").overlap(Overlap::AllowAll);
    let task = client.submission(&bench.topic, &Text("tick".to_owned()));
    schedules.create("ticks", each_second, task).await?;
    let mut found: BTreeSet<Tick> = next(&mut ticks, 4).await?.into_iter().collect();
    // Stops as in a crash.
    drop(first);
    found.extend(next(&mut ticks, 6).await?);
    drop(second);
    // The next worker completes the unfinished work of the others, and repeats nothing.
    let third = bench.worker().await?;
    found.extend(next(&mut ticks, 6).await?);
    schedules.pause("ticks").await?;
    // Another client sees the current state. Tasks that were due before may still come.
    let other = bench.sandbox.client().await?;
    let schedules = other.queue(&bench.topic).schedules();
    loop {
        let info = schedules.get("ticks").await?.context("it is there")?;
        ensure!(info.version == 2 && info.schedule.is_paused(), "{info:?}");
        if info.last.map(|last| (last.slot, last.task.id)).as_ref() == found.last() {
            break;
        }
        found.extend(next(&mut ticks, 1).await?);
    }
    ensure_unbroken(&found)?;
    third.drain(PATIENCE).await?;

    // A trigger starts it by hand, even while it is paused.
    schedules.trigger("ticks").await?;
    let fourth = bench.worker().await?;
    let by_hand = next(&mut ticks, 1).await?;
    ensure!(by_hand.first() > found.last(), "{by_hand:?}");
    schedules.delete("ticks").await?;
    ensure!(schedules.list().await?.is_empty(), "it was deleted");
    fourth.drain(PATIENCE).await?;
    Ok(())
}
