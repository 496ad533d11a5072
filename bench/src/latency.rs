//! `latency`: tasks at a steady pace, from before each is submitted until its processor starts.

use crate::judge::judge;
use crate::meter::{Figures, Times, now_ns};
use crate::sitting::Sitting;
use crate::stage::Stage;
use crate::worker::{Plan, Work, Worker, stamped};
use anyhow::Result;
use clap::Args;
use longhaul::Raw;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::interval;

/// Seconds before what is measured.
const WARM_UP_S: usize = 2;

/// Tasks at a steady pace: milliseconds from before a task is submitted until its processor starts.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks in a second.
    #[arg(long, default_value_t = 100)]
    rate: usize,
    /// Seconds of tasks that are measured; two more come before them.
    #[arg(long, default_value_t = 20)]
    seconds: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Tasks that the worker runs at once.
    #[arg(long, default_value_t = 100)]
    concurrency: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run("latency", async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Figures> {
    let Options { sitting, rate, seconds, bytes, concurrency } = options;
    let topics = stage.topics("latency", None).await?;
    let plan = Plan { work: Work::Latency, ..Plan::new(stage, &topics, *concurrency) };
    let worker = Worker::start(&plan, sitting.under.as_deref()).await?;
    let (warm_up, count) = (WARM_UP_S * rate, (WARM_UP_S + seconds) * rate);
    let mut pace = interval(Duration::from_secs(1) / u32::try_from(*rate)?);
    let mut submitted = JoinSet::new();
    for number in 0..count {
        pace.tick().await;
        let (client, topic) = (stage.client.clone(), topics.names.task.clone());
        let bytes = *bytes;
        // Each by itself: a late receipt must not hold up the next task.
        submitted.spawn(async move {
            let at_ns = if number < warm_up { 0 } else { now_ns() };
            client.submit(&topic, &Raw(stamped(at_ns, bytes))).await
        });
    }
    while let Some(done) = submitted.join_next().await {
        done??;
    }
    stage.acknowledged(&topics).await?;
    let ended = worker.end().await?;
    let mut times = Times::new()?;
    for wait_us in &ended.waits_us {
        times.record(Duration::from_micros(*wait_us))?;
    }
    judge(stage, &topics, count, &[ended]).await?;
    let mut figures = Figures::default();
    for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        figures.put(&format!("{name} ms"), times.millis(quantile));
    }
    Ok(figures)
}
