//! `growth`: what grows with finished tasks that are not sealed yet.

use crate::course::{Course, Finish};
use crate::judge::judge;
use crate::sitting::{Row, Sitting};
use crate::stage::Stage;
use crate::worker::{Plan, Worker};
use anyhow::Result;
use clap::Args;

/// Many tasks through one worker, none of them old enough to be sealed: speed, memory and disk,
/// step by step.
///
/// What is known of a finished task is kept for an hour, so memory grows; speed must not fall. The
/// ledger's view is what its compaction left, as the broker counts it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks in all.
    #[arg(long, default_value_t = 500_000)]
    tasks: usize,
    /// Tasks of a step.
    #[arg(long, default_value_t = 50_000)]
    step: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Tasks that the worker runs at once.
    #[arg(long, default_value_t = 100)]
    concurrency: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run_rows("growth", 1, async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Vec<Row>> {
    let topics = stage.topics("growth", None).await?;
    let course = Course {
        stage,
        topics: &topics,
        plan: Plan::new(stage, &topics, options.concurrency),
        workers: 1,
        tasks: options.tasks,
        bytes: options.bytes,
        step: options.step,
        restart_every: None,
        under: options.sitting.under.as_deref(),
    };
    let Finish { rows, workers, mut ended } = course.run().await?;
    ended.extend(Worker::end_all(workers).await?);
    judge(stage, &topics, options.tasks, &ended).await?;
    Ok(rows)
}
