//! `order`: what it costs that the tasks of a key run in order.

use crate::judge::judge;
use crate::meter::{Figures, Meter};
use crate::sitting::{Row, Sitting};
use crate::stage::Stage;
use crate::worker::{Plan, Worker};
use anyhow::{Result, ensure};
use clap::Args;
use longhaul::ops::QueueOrder;

/// No-op tasks that lie on the topic, until the broker has all their acknowledgements, of a queue
/// without an order and of one with it, by the number of keys: tasks/s, and those as a part of what
/// there is without an order.
///
/// Four rows in each round: no order with 10,000 keys, then an order with 10,000, 100, and one key.
/// Of one key there are a tenth as many tasks.
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
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run_rows("order", 4, async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Vec<Row>> {
    let cases = [
        ("no order", None, 10_000, 1),
        ("10,000 keys", Some(QueueOrder::Key), 10_000, 1),
        ("100 keys", Some(QueueOrder::Key), 100, 1),
        ("1 key", Some(QueueOrder::Key), 1, 10),
    ];
    let (mut rows, mut without) = (Vec::new(), None);
    for (name, order, keys, part) in cases {
        let mut figures = measure_case(stage, options, (order, keys, options.tasks / part)).await?;
        if let Some(rate) = figures.get("tasks/s") {
            let without = *without.get_or_insert(rate);
            figures.put("of no order", rate / without);
        }
        rows.push((name.to_owned(), figures));
    }
    Ok(rows)
}

async fn measure_case(
    stage: &Stage,
    options: &Options,
    (order, keys, tasks): (Option<QueueOrder>, usize, usize),
) -> Result<Figures> {
    let Options { sitting, bytes, concurrency, workers, .. } = options;
    let topics = stage.topics("order", None).await?;
    if order.is_some() {
        let queue = stage.client.queue(&topics.names.task);
        queue.update(0, |settings| settings.order = order).await?;
    }
    stage.fill_lines(&topics, tasks, *bytes, keys).await?;
    let plan = Plan::new(stage, &topics, *concurrency);
    let workers = Worker::start_all(*workers, &plan, sitting.under.as_deref()).await?;
    let processes: Vec<u32> = workers.iter().map(|worker| worker.process).collect();
    let broker = stage.broker_process().into_iter().collect();
    let meter = Meter::start([("worker", processes), ("broker", broker)])?;
    let left = stage.backlog(&topics).await?;
    ensure!(left > 0, "the tasks are done before all workers are ready: take more of them");
    stage.acknowledged(&topics).await?;
    let figures = meter.read("tasks", left)?;
    let mut ended = Vec::new();
    for worker in workers {
        ended.push(worker.end().await?);
    }
    judge(stage, &topics, tasks, &ended).await?;
    Ok(figures)
}
