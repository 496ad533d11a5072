//! `enqueue`: callers that submit one task after the other.

use crate::meter::{Figures, Meter, own_memory_mib};
use crate::sitting::Sitting;
use crate::stage::Stage;
use anyhow::{Result, ensure};
use clap::Args;

/// Callers that each submit one task after the other: tasks/s until the broker has confirmed all of
/// them.
///
/// The callers share one client. `submitter` is the CPU time of this program.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks.
    #[arg(long, default_value_t = 200_000)]
    tasks: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Callers.
    #[arg(long, default_value_t = 100)]
    callers: usize,
    /// Partitions of the task topic. Without it the topic has none.
    #[arg(long)]
    partitions: Option<u32>,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run("enqueue", async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Figures> {
    let Options { tasks, bytes, callers, partitions, .. } = options;
    let topics = stage.topics("enqueue", *partitions).await?;
    // The publishers are opened by the first tasks.
    let first = tasks / 10;
    stage.submit(&topics, first, *bytes, *callers).await?;
    let broker = stage.broker_process().into_iter().collect();
    let meter = Meter::start([("submitter", vec![std::process::id()]), ("broker", broker)])?;
    stage.submit(&topics, *tasks, *bytes, *callers).await?;
    let mut figures = meter.read("tasks", *tasks)?;
    figures.put("peak RSS MiB", own_memory_mib("VmHWM")?);
    let (expected, found) = (first + tasks, stage.backlog(&topics).await?);
    ensure!(found == expected, "of {expected} tasks {found} are on the topic");
    Ok(figures)
}
