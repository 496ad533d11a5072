//! `long`: what grows with the tasks that have been, though none of them is needed any more.

use crate::course::{Course, Finish};
use crate::meter::Figures;
use crate::sitting::{Row, Sitting};
use crate::stage::{Stage, Topics};
use crate::worker::{Plan, Worker};
use anyhow::{Result, bail, ensure};
use clap::Args;
use integration_tests::{say, stopwatch};
use std::time::Duration;
use tokio::time::sleep;

/// Steps of a run.
const STEPS: usize = 10;
/// How often the ledger's view is compacted and measured after the last task.
const SETTLE_EVERY: Duration = Duration::from_secs(15);

/// Tasks at full speed with retentions of a minute, compaction by threshold and restarts of
/// workers: for each tenth of the run speed, memory, the time that workers take to start, and the
/// size of the ledger's compacted view.
///
/// What a worker needs must not grow with the tasks that have been: the last tenth should be as the
/// first. After the last task the ledger's view must become as small as `--small`, or the run has
/// failed.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks in all.
    #[arg(long, default_value_t = 1_000_000)]
    tasks: usize,
    /// Bytes of each task.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Worker processes.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Tasks that each worker runs at once.
    #[arg(long, default_value_t = 100)]
    concurrency: usize,
    /// Retention of ledger and metadata topic, in seconds; at least 20, because heartbeats are a
    /// thirtieth of it.
    #[arg(long, default_value_t = 60)]
    retention: u64,
    /// Uncompacted bytes of a topic at which the broker compacts it.
    #[arg(long, default_value_t = 1024 * 1024)]
    threshold: u64,
    /// Seconds between two restarts of workers, of one worker after the other.
    #[arg(long, default_value_t = 120)]
    restart_every: u64,
    /// Seconds that the ledger may take to shrink after the last task.
    #[arg(long, default_value_t = 300)]
    settle: u64,
    /// Bytes that the ledger's compacted view may have at the end.
    #[arg(long, default_value_t = 16 * 1024)]
    small: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        ensure!(self.tasks >= STEPS && self.workers > 0, "at least {STEPS} tasks and a worker");
        ensure!(self.retention >= 20, "a retention of at least 20 seconds");
        ensure!(self.restart_every > 0, "a pause between two restarts");
        self.sitting.run_rows("long", 1, async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Vec<Row>> {
    let retention = Duration::from_secs(options.retention);
    let topics = stage.topics_for("long", None, Some(retention)).await?;
    stage.compact_at(&topics, options.threshold).await?;
    let plan = Plan::new(stage, &topics, options.concurrency);
    let course = Course {
        stage,
        topics: &topics,
        plan: Plan { retention: Some(retention), ..plan },
        workers: options.workers,
        tasks: options.tasks,
        bytes: options.bytes,
        step: options.tasks / STEPS,
        restart_every: Some(Duration::from_secs(options.restart_every)),
        under: options.sitting.under.as_deref(),
    };
    let Finish { mut rows, workers, mut ended } = course.run().await?;
    rows.push(("at the end".to_owned(), settle(stage, &topics, options).await?));
    ended.extend(Worker::end_all(workers).await?);
    // Of the metadata topic only the last minutes are left: that all tasks are acknowledged says
    // that none was lost.
    let (tasks, started) = (options.tasks, ended.iter().map(|ended| ended.started).sum::<usize>());
    ensure!(started == tasks, "of {tasks} tasks {started} attempts were started");
    Ok(rows)
}

/// After the last task: how small the ledger's view becomes.
async fn settle(stage: &Stage, topics: &Topics, options: &Options) -> Result<Figures> {
    let since = stopwatch();
    loop {
        // The broker may be at it by itself. What is left decides.
        stage.compact(topics).await.ok();
        let (entries, bytes) = stage.ledger_view(topics).await?;
        say(&format!("the ledger's view has {entries} entries with {bytes} bytes"));
        if bytes <= options.small {
            let mut figures = Figures::default();
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            let (entries, kib) = (entries as f64, bytes as f64 / 1024.0);
            figures.put("ledger view entries", entries);
            figures.put("ledger view KiB", kib);
            figures.put("seconds after the last task", since().as_secs_f64());
            return Ok(figures);
        }
        if since().as_secs() >= options.settle {
            bail!(
                "{} s after the last task the ledger's view has {entries} entries with {bytes} bytes",
                options.settle
            );
        }
        sleep(SETTLE_EVERY).await;
    }
}
