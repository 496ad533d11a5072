//! `ahead`: tasks of next month in front of ready ones.

use crate::meter::{Figures, cpu_s, memory_mib, now_ns, seconds_between};
use crate::sitting::{Row, Sitting};
use crate::stage::{MIB, Stage, Topics, body_of};
use crate::worker::{Plan, Worker};
use anyhow::{Context, Result, ensure};
use clap::Args;
use integration_tests::say;
use longhaul::Submission;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How far ahead.
const MONTH: &str = "P30D";
/// How long ready tasks may take.
const LIMIT: Duration = Duration::from_secs(900);
/// For so long nothing happens, and CPU time is taken.
const REST: Duration = Duration::from_secs(20);
/// How long after the unload tasks are submitted again.
const REOPENED: Duration = Duration::from_secs(1);
/// How often the broker is asked how many are left.
const GLANCE: Duration = Duration::from_millis(20);

/// Tasks of next month in front of ready ones, which only a property of their messages says, so
/// that the broker delivers them at once.
///
/// A worker that starts has all of them delivered, keeps their ids, and runs the ready ones behind
/// them: seconds from its start until it takes tasks, until it starts the first ready one, and
/// until all ready ones are acknowledged; its memory for each task ahead; and the share of a core
/// that worker and broker use while nothing happens. The same once more with another worker, with
/// ready tasks that come to a worker at rest, and after the task topic was unloaded, which ends the
/// session as a restart of the broker does. The CPU time is that of worker and broker until all
/// ready ones are acknowledged: on a busy machine it tells more than the seconds, which are then
/// mostly spent waiting for a core.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks that lie ahead.
    #[arg(long, default_value_t = 1_000_000)]
    tasks: usize,
    /// Ready tasks.
    #[arg(long, default_value_t = 1_000)]
    ready: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Tasks that a worker runs at once.
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run_rows("ahead", 1, async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let empty = stage.topics("ahead-none", None).await?;
    let (worker, figures) = start(stage, options, &empty, 0, None).await?;
    let none_mib = memory_mib(worker.process, "VmRSS")?;
    worker.end().await?;
    rows.push(("nothing ahead".to_owned(), figures));
    let topics = stage.topics("ahead", None).await?;
    let ahead = options.tasks;
    let later = |it: Submission, _| it.property("DELAY", MONTH);
    stage.fill_with(&topics, ahead, body_of(options.bytes), later).await?;
    say("the tasks ahead are submitted");
    let (worker, figures) = start(stage, options, &topics, ahead, Some(none_mib)).await?;
    rows.push((format!("{ahead} ahead, a worker starts"), figures));
    let first = worker.end().await?;
    let (worker, figures) = start(stage, options, &topics, ahead, Some(none_mib)).await?;
    rows.push((format!("{ahead} ahead, another one starts"), figures));
    rows.push((
        "ready tasks that come to it".to_owned(),
        come(stage, options, &topics, &worker, used(stage, &worker)?).await?,
    ));
    let before = used(stage, &worker)?;
    stage.unload(&topics).await?;
    // By then the submitter, too, knows that its session is over.
    sleep(REOPENED).await;
    let figures = come(stage, options, &topics, &worker, before).await?;
    rows.push(("after an unload".to_owned(), figures));
    let second = worker.end_but_for(&["sessions_lost"]).await?;
    let (started, expected) = (first.started + second.started, 4 * options.ready);
    ensure!(started == expected, "{started} of {expected} attempts");
    Ok(rows)
}

/// Starts a worker behind so many tasks ahead, with ready ones behind those.
async fn start(
    stage: &Stage,
    options: &Options,
    topics: &Topics,
    ahead: usize,
    none_mib: Option<f64>,
) -> Result<(Worker, Figures)> {
    stage.fill(topics, options.ready, options.bytes).await?;
    let plan = Plan { expected: 1, ..Plan::new(stage, topics, options.concurrency) };
    let broker = stage.broker_process();
    let broker_cpu_s = broker.map(cpu_s).transpose()?.unwrap_or_default();
    let begun_ns = now_ns();
    let mut worker = Worker::start(&plan, options.sitting.under.as_deref()).await?;
    let started_ns = worker.started().await?;
    left(stage, topics, ahead).await?;
    let all_s = seconds_between(begun_ns, now_ns());
    let mut figures = Figures::default();
    figures.put("ready s", seconds_between(worker.spawned_ns, worker.ready_ns));
    figures.put("first task s", seconds_between(worker.spawned_ns, started_ns));
    figures.put("all ready s", all_s);
    figures.put("worker CPU s", cpu_s(worker.process)?);
    let broker_s = broker.map(cpu_s).transpose()?.unwrap_or_default();
    figures.put("broker CPU s", broker_s - broker_cpu_s);
    rest(stage, &worker, &mut figures).await?;
    let mib = memory_mib(worker.process, "VmRSS")?;
    figures.put("RSS MiB", mib);
    figures.put("peak MiB", memory_mib(worker.process, "VmHWM")?);
    if let Some(none_mib) = none_mib {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        figures.put("bytes/ahead", (mib - none_mib) * MIB / ahead as f64);
    }
    Ok((worker, figures))
}

/// Ready tasks come to a worker: how long until all of them are acknowledged, and the CPU time of
/// worker and broker since it was this.
async fn come(
    stage: &Stage,
    options: &Options,
    topics: &Topics,
    worker: &Worker,
    before: (f64, f64),
) -> Result<Figures> {
    let begun_ns = now_ns();
    stage.fill(topics, options.ready, options.bytes).await?;
    left(stage, topics, options.tasks).await?;
    let mut figures = Figures::default();
    figures.put("all ready s", seconds_between(begun_ns, now_ns()));
    let after = used(stage, worker)?;
    figures.put("worker CPU s", after.0 - before.0);
    figures.put("broker CPU s", after.1 - before.1);
    Ok(figures)
}

/// CPU time of worker and broker so far.
fn used(stage: &Stage, worker: &Worker) -> Result<(f64, f64)> {
    let broker = stage.broker_process().map(cpu_s).transpose()?;
    Ok((cpu_s(worker.process)?, broker.unwrap_or_default()))
}

/// Waits until no more than these are left.
async fn left(stage: &Stage, topics: &Topics, ahead: usize) -> Result<()> {
    let waiting = async {
        while stage.backlog(topics).await? > ahead {
            sleep(GLANCE).await;
        }
        anyhow::Ok(())
    };
    timeout(LIMIT, waiting).await.context("ready tasks that are not acknowledged")?
}

/// Takes the CPU time of worker and broker while nothing happens.
async fn rest(stage: &Stage, worker: &Worker, figures: &mut Figures) -> Result<()> {
    sleep(Duration::from_secs(2)).await;
    let (before, begun_ns) = (used(stage, worker)?, now_ns());
    sleep(REST).await;
    let (after, took) = (used(stage, worker)?, seconds_between(begun_ns, now_ns()));
    figures.put("worker at rest %", 100.0 * (after.0 - before.0) / took);
    figures.put("broker at rest %", 100.0 * (after.1 - before.1) / took);
    Ok(())
}
