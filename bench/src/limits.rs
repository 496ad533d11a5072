//! `limits`: what it costs that the queue has a limit, where that is never reached.

use crate::backlog::Backlog;
use crate::judge::judge;
use crate::meter::{Figures, Times};
use crate::sitting::Row;
use crate::stage::{Stage, body_of};
use crate::worker::Worker;
use anyhow::Result;
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
    backlog: Backlog,
    /// Tasks that are submitted one after the other, each when the one before has its result.
    #[arg(long, default_value_t = 200)]
    single: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        let rows = async |stage: &Stage| measure(stage, self).await;
        self.backlog.sitting.run_rows("limits", 3, rows).await
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
    let Options { backlog, single } = options;
    let topics = stage.topics("limits", None).await?;
    if let Some(settings) = settings {
        let queue = stage.client.queue(&topics.names.task);
        queue.update(0, |stands| *stands = settings).await?;
    }
    stage.fill(&topics, backlog.tasks, backlog.bytes).await?;
    let (workers, mut figures) = backlog.drain(stage, &topics).await?;
    let mut times = Times::new()?;
    let body = Raw(body_of(backlog.bytes));
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
    let ended = Worker::end_all(workers).await?;
    judge(stage, &topics, backlog.tasks + *single, &ended).await?;
    Ok(figures)
}
