//! `known`: a worker that starts where many tasks have finished, before they are sealed.

use crate::judge::judge;
use crate::meter::{Figures, cpu_s, memory_mib, now_ns, seconds_between};
use crate::sitting::{Row, Sitting};
use crate::stage::{MIB, Stage, Topics, body_of};
use crate::worker::{Plan, Worker};
use anyhow::Result;
use clap::Args;
use integration_tests::say;
use longhaul::Submission;
use std::time::Duration;
use tokio::time::sleep;

/// For how long the memory of a worker must stay as it is.
const STEADY: Duration = Duration::from_secs(3);
/// How often it is looked at, at most.
const LOOKS_MAX: usize = 40;

/// A new worker where many tasks are known that have finished and are not sealed: seconds from its
/// start until it takes tasks and until it has started the first one, and its memory for each known
/// task.
///
/// The tasks are run first, by another worker, which takes a minute or two for a million. Then
/// workers start in turn, each with one new task on the topic: where the metadata topic is empty
/// for comparison it was deleted and made again. A worker's memory is read when it has not changed
/// for 3 s; that of a worker on empty topics is taken off.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks that have finished.
    #[arg(long, default_value_t = 1_000_000)]
    tasks: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Gives each task an idempotency key of its own: what is known of it then is known, too.
    #[arg(long)]
    keys: bool,
    /// How often a worker is started on each of the three: empty topics, all, all with an empty
    /// metadata topic.
    #[arg(long, default_value_t = 3)]
    starts: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run_rows("known", 1, async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Vec<Row>> {
    let Options { tasks, bytes, starts, keys, .. } = options;
    let empty = stage.topics("known-none", None).await?;
    let mut rows = Vec::new();
    let none = measure_starts(stage, options, &empty, "no task known", None, &mut rows).await?;
    let topics = stage.topics("known", None).await?;
    let begun_ns = now_ns();
    if *keys {
        let keyed = |it: Submission, number| it.idempotency_key(format!("order-{number:012}"));
        stage.fill_with(&topics, *tasks, body_of(*bytes), keyed).await?;
        say(&format!("submitted with keys in {:.1} s", seconds_between(begun_ns, now_ns())));
    } else {
        stage.fill(&topics, *tasks, *bytes).await?;
    }
    say("the tasks are submitted and are run now");
    let filler = Worker::start(&Plan::new(stage, &topics, 1_000), None).await?;
    stage.acknowledged(&topics).await?;
    let ended = filler.end().await?;
    judge(stage, &topics, *tasks, &[ended]).await?;
    let name = format!("{tasks} known");
    measure_starts(stage, options, &topics, &name, Some(none), &mut rows).await?;
    stage.forget_metadata(&topics).await?;
    let name = format!("{name}, M empty before {starts} starts");
    measure_starts(stage, options, &topics, &name, Some(none), &mut rows).await?;
    Ok(rows)
}

/// Starts workers one after the other. Returns the median of their memory in MiB.
async fn measure_starts(
    stage: &Stage,
    options: &Options,
    topics: &Topics,
    name: &str,
    none_mib: Option<f64>,
    rows: &mut Vec<Row>,
) -> Result<f64> {
    let plan = Plan { expected: 1, ..Plan::new(stage, topics, 100) };
    let mut memory = Vec::new();
    for _ in 0..options.starts {
        stage.fill(topics, 1, options.bytes).await?;
        let mut worker = Worker::start(&plan, options.sitting.under.as_deref()).await?;
        let started_ns = worker.started().await?;
        let ready_s = seconds_between(worker.spawned_ns, worker.ready_ns);
        let first_s = seconds_between(worker.spawned_ns, started_ns);
        let mib = steady_mib(&worker).await?;
        let mut figures = Figures::default();
        figures.put("ready s", ready_s);
        figures.put("first task s", first_s);
        figures.put("RSS MiB", mib);
        if let Some(none_mib) = none_mib {
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            let tasks = options.tasks as f64;
            figures.put("bytes/known", (mib - none_mib) * MIB / tasks);
            figures.put(
                "peak bytes/known",
                (memory_mib(worker.process, "VmHWM")? - none_mib) * MIB / tasks,
            );
        }
        figures.put("CPU s", cpu_s(worker.process)?);
        stage.acknowledged(topics).await?;
        worker.end().await?;
        memory.push(mib);
        rows.push((name.to_owned(), figures));
    }
    memory.sort_by(f64::total_cmp);
    Ok(memory.get(memory.len() / 2).copied().unwrap_or_default())
}

/// A worker's memory when it does not change any more.
async fn steady_mib(worker: &Worker) -> Result<f64> {
    let mut before = memory_mib(worker.process, "VmRSS")?;
    for _ in 0..LOOKS_MAX {
        sleep(STEADY).await;
        let now = memory_mib(worker.process, "VmRSS")?;
        if (now - before).abs() < 1.0 {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}
