//! `payload`: large tasks, and what they take of worker and broker.

use crate::judge::judge;
use crate::meter::{Figures, Meter, memory_mib};
use crate::sitting::Sitting;
use crate::stage::{MIB, Stage};
use crate::worker::{Plan, Worker};
use anyhow::Result;
use clap::Args;

/// Large no-op tasks: tasks/s, the worker's memory, and what the broker keeps of each on its disk.
///
/// `payloads beyond concurrency` is by how many payloads the worker's memory grew at most from
/// where it was ready, less those of the tasks that it runs at once. The disk is that of the
/// broker's data when all tasks are acknowledged, less what there was before the first.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks on the topic.
    #[arg(long, default_value_t = 400)]
    tasks: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 1024 * 1024)]
    bytes: usize,
    /// Bytes of each result.
    #[arg(long, default_value_t = 0)]
    result: usize,
    /// Tasks that the worker runs at once.
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run("payload", async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Figures> {
    let Options { sitting, tasks, bytes, result, concurrency } = options;
    let idle_mib = idle_mib(stage, *concurrency).await?;
    let topics = stage.topics("payload", None).await?;
    let disk_before = stage.disk_mib()?;
    stage.fill(&topics, *tasks, *bytes).await?;
    let plan = Plan { result: *result, ..Plan::new(stage, &topics, *concurrency) };
    let worker = Worker::start(&plan, sitting.under.as_deref()).await?;
    let broker = stage.broker_process().into_iter().collect();
    let meter = Meter::start([("worker", vec![worker.process]), ("broker", broker)])?;
    stage.acknowledged(&topics).await?;
    let mut figures = meter.read("tasks", *tasks)?;
    let peak_mib = memory_mib(worker.process, "VmHWM")?;
    figures.put("peak RSS MiB", peak_mib);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let (tasks_f, bytes_f, concurrency_f) = (*tasks as f64, *bytes as f64, *concurrency as f64);
    let grown = (peak_mib - idle_mib) / (bytes_f / MIB);
    figures.put("payloads beyond concurrency", grown - concurrency_f);
    if let (Some(before), Some(after)) = (disk_before, stage.disk_mib()?) {
        figures.put("disk MiB/task", (after - before) / tasks_f);
    }
    let ended = worker.end().await?;
    judge(stage, &topics, *tasks, &[ended]).await?;
    Ok(figures)
}

/// The memory of a worker that is ready and has no task.
async fn idle_mib(stage: &Stage, concurrency: usize) -> Result<f64> {
    let topics = stage.topics("payload-none", None).await?;
    let worker = Worker::start(&Plan::new(stage, &topics, concurrency), None).await?;
    let idle_mib = memory_mib(worker.process, "VmRSS")?;
    worker.end().await?;
    Ok(idle_mib)
}
