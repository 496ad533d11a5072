//! `order`: what it costs that the tasks of a key run in order.

use crate::backlog::Backlog;
use crate::judge::judge;
use crate::meter::Figures;
use crate::sitting::Row;
use crate::stage::{Stage, body_of};
use crate::worker::Worker;
use anyhow::Result;
use clap::Args;
use longhaul::Submission;
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
    backlog: Backlog,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        let rows = async |stage: &Stage| measure(stage, self).await;
        self.backlog.sitting.run_rows("order", 4, rows).await
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
        let mut figures = measure_case(stage, &options.backlog, (order, keys, part)).await?;
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
    backlog: &Backlog,
    (order, keys, part): (Option<QueueOrder>, usize, usize),
) -> Result<Figures> {
    let tasks = backlog.tasks / part;
    let topics = stage.topics("order", None).await?;
    if order.is_some() {
        let queue = stage.client.queue(&topics.names.task);
        queue.update(0, |settings| settings.order = order).await?;
    }
    let lined = move |it: Submission, number| it.order_key(format!("key-{}", number % keys));
    stage.fill_with(&topics, tasks, body_of(backlog.bytes), lined).await?;
    let (workers, figures) = backlog.drain(stage, &topics).await?;
    let ended = Worker::end_all(workers).await?;
    judge(stage, &topics, tasks, &ended).await?;
    Ok(figures)
}
