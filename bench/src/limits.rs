//! `limits`: what it costs that the queue has a limit, where that is never reached.

use crate::judge::judge;
use crate::meter::{Figures, Meter, Times};
use crate::sitting::{Row, Sitting};
use crate::stage::{Stage, body_of};
use crate::worker::{Plan, Worker};
use anyhow::{Result, ensure};
use clap::Args;
use integration_tests::stopwatch;
use longhaul::ops::QueueSettings;
use longhaul::{Rate, Raw};
use std::time::Duration;

/// No-op tasks that lie on the topic, until the broker has all their acknowledgements, of a queue
/// without limits and of one whose limits are never reached: tasks/s, those as a part of what there
/// is without a limit, and milliseconds from a submit to its result while nothing else is done.
///
/// Three rows in each round: no limit, a maximum in flight, a rate as well. Under the maximum each
/// task has one ticket more on the register, and under both two.
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
    /// Tasks that a worker runs at once.
    #[arg(long, default_value_t = 100)]
    concurrency: usize,
    /// Worker processes.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Tasks that are submitted one after the other, each when the one before has its result.
    #[arg(long, default_value_t = 200)]
    single: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run_rows("limits", 3, async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Vec<Row>> {
    let mut slots = QueueSettings::default();
    slots.limit.max_in_flight = Some(1_000_000);
    let mut both = slots.clone();
    both.limit.rate = Some(Rate::new(100_000, Duration::from_secs(1)));
    let cases = [("no limit", None), ("max in flight", Some(slots)), ("and a rate", Some(both))];
    let (mut rows, mut without) = (Vec::new(), None);
    for (name, settings) in cases {
        let mut figures = measure_case(stage, options, settings).await?;
        if let Some(rate) = figures.get("tasks/s") {
            let without = *without.get_or_insert(rate);
            figures.put("of no limit", rate / without);
        }
        rows.push((name.to_owned(), figures));
    }
    Ok(rows)
}

async fn measure_case(
    stage: &Stage,
    options: &Options,
    settings: Option<QueueSettings>,
) -> Result<Figures> {
    let Options { sitting, tasks, bytes, concurrency, workers, single } = options;
    let topics = stage.topics("limits", None).await?;
    if let Some(settings) = settings {
        let queue = stage.client.queue(&topics.names.task);
        queue.update(0, |stands| *stands = settings).await?;
    }
    stage.fill(&topics, *tasks, *bytes).await?;
    let plan = Plan::new(stage, &topics, *concurrency);
    let workers = Worker::start_all(*workers, &plan, sitting.under.as_deref()).await?;
    let processes: Vec<u32> = workers.iter().map(|worker| worker.process).collect();
    let broker = stage.broker_process().into_iter().collect();
    let meter = Meter::start([("worker", processes), ("broker", broker)])?;
    let left = stage.backlog(&topics).await?;
    ensure!(left > 0, "the tasks are done before all workers are ready: take more of them");
    stage.acknowledged(&topics).await?;
    let mut figures = meter.read("tasks", left)?;
    let mut times = Times::new()?;
    let body = Raw(body_of(*bytes));
    for _ in 0..*single {
        let elapsed = stopwatch();
        let task = stage.client.submit(&topics.names.task, &body).await?;
        stage.client.wait::<Raw>(&task).await?;
        times.record(elapsed())?;
    }
    for (name, quantile) in [("p50 ms", 0.5), ("p99 ms", 0.99)] {
        figures.put(name, times.millis(quantile));
    }
    stage.acknowledged(&topics).await?;
    let mut ended = Vec::new();
    for worker in workers {
        ended.push(worker.end().await?);
    }
    judge(stage, &topics, *tasks + *single, &ended).await?;
    Ok(figures)
}
