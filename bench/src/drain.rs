//! `drain`: tasks that lie on the topic, and workers that do nothing with them, until all are
//! acknowledged.

use crate::backlog::Backlog;
use crate::judge::judge;
use crate::meter::{Figures, memory_mib, thread_cpu_s};
use crate::stage::Stage;
use crate::worker::Worker;
use anyhow::Result;
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
    backlog: Backlog,
    /// Partitions of the task topic. Without it the topic has none.
    #[arg(long)]
    partitions: Option<u32>,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.backlog.sitting.run("drain", async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Figures> {
    let Options { backlog, partitions } = options;
    let topics = stage.topics("drain", *partitions).await?;
    stage.fill(&topics, backlog.tasks, backlog.bytes).await?;
    let (workers, mut figures) = backlog.drain(stage, &topics).await?;
    let processes: Vec<u32> = workers.iter().map(|worker| worker.process).collect();
    let (name, busiest_us) = busiest(&processes, backlog.tasks)?;
    say(&format!("the busiest threads of the workers are `{name}`"));
    figures.put("busiest thread µs", busiest_us);
    let peaks = processes.iter().map(|id| memory_mib(*id, "VmHWM"));
    let peak = peaks.collect::<Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max);
    figures.put("peak RSS MiB", peak);
    let ended = Worker::end_all(workers).await?;
    judge(stage, &topics, backlog.tasks, &ended).await?;
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
