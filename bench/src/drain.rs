//! `drain`: tasks that lie on the topic, and workers that do nothing with them, until all are
//! acknowledged.

use crate::judge::judge;
use crate::meter::{Figures, Meter, memory_mib, thread_cpu_s};
use crate::sitting::Sitting;
use crate::stage::Stage;
use crate::worker::{Plan, Worker};
use anyhow::{Result, ensure};
use clap::Args;
use integration_tests::say;

/// No-op tasks that lie on the topic, until the broker has all their acknowledgements: tasks/s, and
/// what a task costs.
///
/// An acknowledgement follows when the outcome is read back from the ledger and the entry on the
/// metadata topic is stored, so it comes last. The clock starts when all workers are ready; what
/// they have done until then does not count. `busiest thread` is the CPU time of the threads of one
/// name that use most.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks on the topic.
    #[arg(long, default_value_t = 20_000)]
    tasks: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Tasks that a worker runs at once.
    #[arg(long, default_value_t = 100)]
    concurrency: usize,
    /// Worker processes.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Partitions of the task topic. Without it the topic has none.
    #[arg(long)]
    partitions: Option<u32>,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run("drain", async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Figures> {
    let Options { sitting, tasks, bytes, concurrency, workers, partitions } = options;
    let topics = stage.topics("drain", *partitions).await?;
    stage.fill(&topics, *tasks, *bytes).await?;
    let plan = Plan::new(stage, &topics, *concurrency);
    let workers = Worker::start_all(*workers, &plan, sitting.under.as_deref()).await?;
    let processes: Vec<u32> = workers.iter().map(|worker| worker.process).collect();
    let broker = stage.broker_process().into_iter().collect();
    let meter = Meter::start([("worker", processes.clone()), ("broker", broker)])?;
    let left = stage.backlog(&topics).await?;
    ensure!(left > 0, "the tasks are done before all workers are ready: take more of them");
    stage.acknowledged(&topics).await?;
    let mut figures = meter.read("tasks", left)?;
    let (name, busiest_us) = busiest(&processes, *tasks)?;
    say(&format!("the busiest threads of the workers are `{name}`"));
    figures.put("busiest thread µs", busiest_us);
    let peaks = processes.iter().map(|id| memory_mib(*id, "VmHWM"));
    let peak = peaks.collect::<Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max);
    figures.put("peak RSS MiB", peak);
    let mut ended = Vec::new();
    for worker in workers {
        ended.push(worker.end().await?);
    }
    judge(stage, &topics, *tasks, &ended).await?;
    Ok(figures)
}

/// The threads of one name that have used most, and how many microseconds of each task.
fn busiest(processes: &[u32], tasks: usize) -> Result<(String, f64)> {
    let mut most = (String::new(), 0.0);
    for id in processes {
        for (name, cpu_s) in thread_cpu_s(*id)? {
            if cpu_s > most.1 {
                most = (name, cpu_s);
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let each = tasks as f64 / processes.len() as f64;
    Ok((most.0, most.1 / each * 1e6))
}
