//! `view` and `waits`: what it costs a client to look at all tasks of a queue, and to wait for many
//! at once.

use crate::meter::{Figures, Times, now_ns, own_memory_mib, seconds_between};
use crate::sitting::Sitting;
use crate::stage::{MIB, Stage, Topics};
use crate::worker::{Plan, Worker};
use anyhow::{Context, Result, ensure};
use clap::Args;
use longhaul::TaskRef;
use longhaul::ops::{TaskFilter, TaskStatus};
use longhaul_transport::clock::Clock;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long all waits of a run may take.
const WAITS_LIMIT: Duration = Duration::from_secs(600);

/// A view of all tasks of a queue: seconds until it has read them all, memory for each task, and
/// how long it takes to ask it. Memory is that of this whole process behind and before, so that one
/// round of one program is to be believed.
#[derive(Args, Clone, Debug)]
pub(crate) struct ViewOptions {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks.
    #[arg(long, default_value_t = 1_000_000)]
    tasks: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Has a worker run them first, so that ledger and metadata topic have them all. Otherwise all
    /// wait.
    #[arg(long)]
    run: bool,
}

/// Many waits at once from one client: memory for each, and milliseconds from the stamp in the
/// entry that shows the end to the end of the wait.
#[derive(Args, Clone, Debug)]
pub(crate) struct WaitsOptions {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks, each with a wait of its own.
    #[arg(long, default_value_t = 10_000)]
    waits: usize,
}

impl ViewOptions {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting
            .run_rows("view", 1, async |stage| {
                let topics = stage.topics("view", None).await?;
                stage.fill(&topics, self.tasks, self.bytes).await?;
                if self.run {
                    let worker = Worker::start(&Plan::new(stage, &topics, 1_000), None).await?;
                    stage.acknowledged(&topics).await?;
                    worker.end().await?;
                }
                let name =
                    format!("{} {}", self.tasks, if self.run { "finished" } else { "waiting" });
                Ok(vec![(name, look(stage, &topics, self).await?)])
            })
            .await
    }
}

async fn look(stage: &Stage, topics: &Topics, options: &ViewOptions) -> Result<Figures> {
    let (before, start) = (own_memory_mib("VmRSS")?, now_ns());
    let view = stage.client.queue(&topics.names.task).tasks().await?;
    let mut figures = Figures::default();
    figures.put("ready s", seconds_between(start, now_ns()));
    let added = own_memory_mib("VmRSS")? - before;
    figures.put("added RSS MiB", added);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let tasks = options.tasks as f64;
    figures.put("bytes/task", added * MIB / tasks);
    let mut time = |name: &str, ask: &dyn Fn() -> Result<()>| {
        let start = now_ns();
        ask()?;
        figures.put(name, 1_000.0 * seconds_between(start, now_ns()));
        anyhow::Ok(())
    };
    time("counts ms", &|| {
        let total = view.counts()?.total();
        ensure!(total == u64::try_from(options.tasks)?, "the view has {total} tasks");
        Ok(())
    })?;
    time("page of 100 ms", &|| {
        view.list(&TaskFilter::new(), None, 100)?;
        Ok(())
    })?;
    // None has it: all are looked at.
    let none = TaskFilter::new().status(TaskStatus::Expired);
    time("page that finds none ms", &|| {
        view.list(&none, None, 100)?;
        Ok(())
    })?;
    time("workers ms", &|| {
        view.workers()?;
        Ok(())
    })?;
    Ok(figures)
}

impl WaitsOptions {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run("waits", async |stage| wait(stage, self.waits).await).await
    }
}

async fn wait(stage: &Stage, waits: usize) -> Result<Figures> {
    let topics = stage.topics("waits", None).await?;
    let mut tasks = Vec::with_capacity(waits);
    for _ in 0..waits {
        tasks.push(stage.client.submit(&topics.names.task, "x").await?);
    }
    let before = own_memory_mib("VmRSS")?;
    let mut running = JoinSet::new();
    for task in tasks {
        let client = stage.client.clone();
        running.spawn(async move { wait_for(&client, &task).await });
    }
    // The first answer of all: every wait is enlisted before it comes.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let added = own_memory_mib("VmRSS")? - before;
    let start = now_ns();
    let worker = Worker::start(&Plan::new(stage, &topics, 1_000), None).await?;
    let mut times = Times::new()?;
    let all = async {
        while let Some(took) = running.join_next().await {
            times.record(took??)?;
        }
        anyhow::Ok(())
    };
    timeout(WAITS_LIMIT, all).await.context("not all waits ended")??;
    let mut figures = Figures::default();
    figures.put("all ended s", seconds_between(start, now_ns()));
    worker.end().await?;
    figures.put("added RSS MiB", added);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    figures.put("bytes/wait", added * MIB / waits as f64);
    figures.put_times("told", &times);
    Ok(figures)
}

/// Waits for a task. Returns how much later than the entry says of itself.
async fn wait_for(client: &longhaul::Client, task: &TaskRef) -> Result<Duration> {
    let end = client.wait_metadata(task).await?;
    Ok(Duration::from_millis(Clock::System.wall_ms().saturating_sub(end.last_updated)))
}
