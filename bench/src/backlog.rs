//! A backlog of tasks that workers do nothing with: what `drain`, `limits` and `order` have in
//! common.

use crate::meter::{Figures, Meter};
use crate::sitting::Sitting;
use crate::stage::{Stage, Topics};
use crate::worker::{Plan, Worker};
use anyhow::{Result, ensure};
use clap::Args;

/// How many tasks lie on the topic, and which workers run them.
#[derive(Args, Clone, Debug)]
pub(crate) struct Backlog {
    #[command(flatten)]
    pub(crate) sitting: Sitting,
    /// Tasks on the topic.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) tasks: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    pub(crate) bytes: usize,
    /// Tasks that a worker runs at once.
    #[arg(long, default_value_t = 100)]
    concurrency: usize,
    /// Worker processes.
    #[arg(long, default_value_t = 1)]
    workers: usize,
}

impl Backlog {
    /// Starts the workers and waits until the tasks on the topic are acknowledged. Returns the
    /// workers, and what was measured from when all of them were ready.
    pub(crate) async fn drain(
        &self,
        stage: &Stage,
        topics: &Topics,
    ) -> Result<(Vec<Worker>, Figures)> {
        let plan = Plan::new(stage, topics, self.concurrency);
        let under = self.sitting.under.as_deref();
        let workers = Worker::start_all(self.workers, &plan, under).await?;
        let processes = workers.iter().map(|worker| worker.process).collect();
        let broker = stage.broker_process().into_iter().collect();
        let meter = Meter::start([("worker", processes), ("broker", broker)])?;
        let left = stage.backlog(topics).await?;
        ensure!(left > 0, "the tasks are done before all workers are ready: take more of them");
        stage.acknowledged(topics).await?;
        Ok((workers, meter.read("tasks", left)?))
    }
}
