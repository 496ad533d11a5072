//! `topics`: what many task topics in one worker cost, idle and with tasks on each.

use crate::meter::{Figures, Meter, cpu_s, memory_mib, now_ns, seconds_between};
use crate::sitting::Sitting;
use crate::stage::Stage;
use crate::worker::{Plan, Work, Worker, stamped};
use anyhow::Result;
use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use longhaul::Raw;
use std::time::Duration;
use tokio::time::sleep;

/// Many task topics in one worker: seconds until it takes tasks, memory, connections, CPU while
/// nothing happens, and then seconds until the last of the tasks of all topics has started, and CPU
/// per task until then.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Task topics.
    #[arg(long, default_value_t = 1_000)]
    topics: usize,
    /// Tasks that the worker runs at once.
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Tasks on each topic.
    #[arg(long, default_value_t = 1)]
    tasks: usize,
    /// Milliseconds that each task takes.
    #[arg(long, default_value_t = 0)]
    takes: u64,
    /// Seconds in which nothing happens.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run("topics", async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Figures> {
    let Options { sitting, topics, concurrency, tasks, takes, seconds } = options;
    let first = stage.topics("topics", None).await?;
    let name = |number: usize| format!("{}-{number}", first.names.task);
    let plan = Plan {
        work: Work::Takes(*takes),
        also: (1..*topics).map(|number| (name(number), 0, 1)).collect(),
        expected: topics * tasks,
        ..Plan::new(stage, &first, *concurrency)
    };
    let mut worker = Worker::start(&plan, sitting.under.as_deref()).await?;
    let mut figures = Figures::default();
    figures.put("ready s", seconds_between(worker.spawned_ns, worker.ready_ns));
    figures.put("RSS MiB", memory_mib(worker.process, "VmRSS")?);
    if let Some(broker) = stage.broker_process() {
        figures.put("broker MiB", memory_mib(broker, "VmRSS")?);
    }
    figures.put("connections", connections(worker.process)?);
    // What comes right after the start is not what it costs to be idle.
    sleep(Duration::from_secs(10)).await;
    let parts = [Some(("worker", worker.process)), stage.broker_process().map(|it| ("broker", it))];
    let before: Vec<_> =
        parts.into_iter().flatten().map(|(name, id)| (name, id, cpu_s(id))).collect();
    sleep(Duration::from_secs(*seconds)).await;
    for (name, id, before) in before {
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let part = (cpu_s(id)? - before?) / *seconds as f64;
        figures.put(&format!("{name} idle %"), part * 100.0);
    }
    let submit = |number: usize| {
        let topic = if number == 0 { first.names.task.clone() } else { name(number) };
        async move { stage.client.submit(&topic, &Raw(stamped(now_ns(), 20))).await }
    };
    let numbers = (0..topics * tasks).map(|number| number % topics);
    let parts = [("worker", Some(worker.process)), ("broker", stage.broker_process())];
    let meter = Meter::start(parts.map(|(name, id)| (name, id.into_iter().collect())))?;
    let begin_ns = now_ns();
    stream::iter(numbers).map(submit).buffer_unordered(256).try_collect::<Vec<_>>().await?;
    figures.put("submitted s", seconds_between(begin_ns, now_ns()));
    let started_ns = worker.started().await?;
    figures.put("all started s", seconds_between(begin_ns, started_ns));
    figures.0.extend(meter.read("tasks", topics * tasks)?.0);
    figures.put("then RSS MiB", memory_mib(worker.process, "VmRSS")?);
    worker.end().await?;
    Ok(figures)
}

/// Sockets that a process has open.
fn connections(process: u32) -> Result<f64> {
    let mut count = 0.0;
    for file in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let target = std::fs::read_link(file?.path()).unwrap_or_default();
        if target.to_string_lossy().starts_with("socket:") {
            count += 1.0;
        }
    }
    Ok(count)
}
