//! `leases`: how fast tasks are leased and reported, by so many holders at once, through one
//! process that grants leases.

use crate::meter::{Figures, Meter, Times};
use crate::sitting::{Row, Sitting};
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use integration_tests::stopwatch;
use longhaul::Raw;
use longhaul::lease::{LeaseOutcome, LeaseRequest, Leases};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::interval;

/// How long a holder waits for a task.
const WAIT: Duration = Duration::from_secs(2);

/// Tasks that lie on the topic, each leased and reported as done: leases/s, and milliseconds of a
/// lease and of a report. Then tasks that are submitted at a steady pace while somebody waits:
/// milliseconds from the submit to the lease.
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
    /// Holders at once; a row each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100])]
    holders: Vec<usize>,
    /// Tasks a second of the steady pace.
    #[arg(long, default_value_t = 100)]
    pace: u32,
    /// Tasks of the steady pace.
    #[arg(long, default_value_t = 500)]
    paced: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        let rows = self.holders.len();
        self.sitting.run_rows("leases", rows, async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for holders in &options.holders {
        rows.push((format!("{holders} holders"), measure_case(stage, options, *holders).await?));
    }
    Ok(rows)
}

async fn measure_case(stage: &Stage, options: &Options, holders: usize) -> Result<Figures> {
    let topics = stage.topics("leases", None).await?;
    // One holder waits for each of its steps.
    let tasks = if holders == 1 { options.tasks.div_ceil(10) } else { options.tasks };
    stage.fill(&topics, tasks, options.bytes).await?;
    let leases = stage.client.leases(&topics.names.task).start().await?;
    leases.ready().await;
    let broker = stage.broker_process().into_iter().collect();
    let meter = Meter::start([("here", vec![std::process::id()]), ("broker", broker)])?;
    let (sender, mut told) = mpsc::channel(tasks);
    let mut holding = JoinSet::new();
    for holder in 0..holders {
        holding.spawn(hold(leases.clone(), holder, sender.clone()));
    }
    drop(sender);
    let (mut leased, mut reported) = (Times::new()?, Times::new()?);
    for count in 0..tasks {
        let (lease, report) = told.recv().await.with_context(|| format!("{count} were leased"))?;
        leased.record(lease)?;
        reported.record(report)?;
    }
    let mut figures = meter.read("leases", tasks)?;
    while let Some(held) = holding.join_next().await {
        held??;
    }
    ensure!(told.recv().await.is_none(), "more than {tasks} tasks were leased");
    figures.put_times("lease", &leased);
    figures.put_times("report", &reported);
    stage.acknowledged(&topics).await?;
    let paced = measure_pace(stage, &topics.names.task, &leases, options).await?;
    figures.put_times("from submit", &paced);
    leases.drain(Duration::from_secs(5)).await?;
    Ok(figures)
}

/// Leases and reports until nothing is left, and tells how long each of both took.
async fn hold(
    leases: Leases,
    holder: usize,
    told: mpsc::Sender<(Duration, Duration)>,
) -> Result<()> {
    let name = format!("holder-{holder}");
    loop {
        let elapsed = stopwatch();
        let found = leases.lease(LeaseRequest::of(&*name).wait(WAIT)).await?;
        let Some(lease) = found.into_iter().next() else { return Ok(()) };
        let leased = elapsed();
        let elapsed = stopwatch();
        let outcome = LeaseOutcome::Succeeded(Bytes::from_static(b"done"));
        leases.report(&lease.token, outcome).await?;
        told.send((leased, elapsed())).await?;
    }
}

async fn measure_pace(
    stage: &Stage,
    topic: &str,
    leases: &Leases,
    options: &Options,
) -> Result<Times> {
    let mut times = Times::new()?;
    let mut ticks = interval(Duration::from_secs(1) / options.pace);
    let body = Raw(Bytes::from_static(b"x"));
    for _ in 0..options.paced {
        ticks.tick().await;
        let waits = leases.lease(LeaseRequest::of("pace").wait(WAIT));
        let submit = async {
            let elapsed = stopwatch();
            stage.client.submit(topic, &body).await?;
            anyhow::Ok(elapsed)
        };
        // The request is polled first: it waits when the task comes.
        let (found, elapsed) = tokio::join!(biased; waits, submit);
        let lease = found?.into_iter().next().context("no lease came")?;
        times.record(elapsed?())?;
        leases.report(&lease.token, LeaseOutcome::Succeeded(Bytes::new())).await?;
    }
    Ok(times)
}
