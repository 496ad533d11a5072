//! `many`: tasks that all sleep at the same time in one worker, and then all end at the same time.

use crate::judge::judge;
use crate::meter::{Figures, memory_mib, now_ns, seconds_between};
use crate::sitting::Sitting;
use crate::stage::{Stage, Topics};
use crate::worker::{Plan, Work, Worker};
use anyhow::{Context, Result};
use clap::Args;
use longhaul::WorkerConfig;
use longhaul_transport::Message;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;

/// Many sleeping tasks in one worker: seconds until all have started, memory, seconds from their
/// release until all are acknowledged.
///
/// The first span begins when the worker is ready. `heartbeat late` is by how much the largest gap
/// between two heartbeats of the worker on the ledger, by their publish times, was above the
/// interval of heartbeats H (10 s); the tasks of a worker that is late by H are taken over.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks, and how many the worker runs at once.
    #[arg(long, default_value_t = 100_000)]
    tasks: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Seconds for which all of them sleep.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Partitions of the task topic. Without it the topic has none.
    #[arg(long)]
    partitions: Option<u32>,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run("many", async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Figures> {
    let Options { sitting, tasks, bytes, seconds, partitions } = options;
    let topics = stage.topics("many", *partitions).await?;
    stage.fill(&topics, *tasks, *bytes).await?;
    let plan = Plan::new(stage, &topics, *tasks);
    let plan = Plan { work: Work::Sleep, expected: *tasks, ..plan };
    let mut worker = Worker::start(&plan, sitting.under.as_deref()).await?;
    let started_ns = worker.started().await?;
    let mut figures = Figures::default();
    figures.put("all started s", seconds_between(worker.ready_ns, started_ns));
    sleep(Duration::from_secs(*seconds)).await;
    figures.put("RSS MiB", memory_mib(worker.process, "VmRSS")?);
    let released_ns = now_ns();
    worker.release()?;
    stage.acknowledged(&topics).await?;
    figures.put("all acknowledged s", seconds_between(released_ns, now_ns()));
    figures.put("peak RSS MiB", memory_mib(worker.process, "VmHWM")?);
    let ended = worker.end().await?;
    figures.put("heartbeat late ms", late_ms(stage, &topics).await?);
    judge(stage, &topics, *tasks, &[ended]).await?;
    Ok(figures)
}

/// By how much the largest gap between two heartbeats was above their interval.
async fn late_ms(stage: &Stage, topics: &Topics) -> Result<f64> {
    let mut beats: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let parts = topics.parts(&topics.names.ledger);
    for part in parts {
        let take = |message: &Message| {
            let key = message.key.as_deref().unwrap_or_default();
            if key.starts_with("hb/") && !message.null {
                let beats = beats.entry(format!("{part} {key}")).or_default();
                beats.push(message.publish_time_ms);
            }
            Ok(())
        };
        stage.read(std::slice::from_ref(&part), take).await?;
    }
    let largest = beats.values().filter_map(|beats| largest_gap(beats)).max();
    let largest =
        largest.context("there are no two heartbeats of one worker: let the tasks sleep longer")?;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let largest = largest as f64;
    Ok(largest - WorkerConfig::default().heartbeat.as_secs_f64() * 1e3)
}

fn largest_gap(times_ms: &[u64]) -> Option<u64> {
    let gap = |(before, after): (&u64, &u64)| after.saturating_sub(*before);
    times_ms.iter().zip(times_ms.iter().skip(1)).map(gap).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gap_is_found() {
        assert_eq!(largest_gap(&[10, 20, 45, 50]), Some(25));
        assert_eq!(largest_gap(&[10]), None);
    }
}
