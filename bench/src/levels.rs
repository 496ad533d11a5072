//! `levels`: how long tasks of a high level wait behind a backlog of others, and what the others
//! get meanwhile.

use crate::judge::judge;
use crate::meter::{Figures, Times, now_ns, seconds_between};
use crate::sitting::{Row, Sitting};
use crate::stage::Stage;
use crate::worker::{Plan, Work, Worker, stamped};
use anyhow::Result;
use clap::Args;
use longhaul::Raw;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::interval;

/// Tasks of a high level that come while a backlog of others waits: milliseconds until they start,
/// and starts of both in a second.
///
/// Four rows: all tasks on one topic; two topics in strict order; the same with a high level that
/// has more tasks than there are slots for; and that with weights 3 to 1. `pause` is the longest
/// time without a start of the others, as long as both have tasks.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks that the worker runs at once.
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Milliseconds that each task takes.
    #[arg(long, default_value_t = 100)]
    takes: u64,
    /// Seconds for which the slots would be busy with the backlog.
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    /// Tasks of the high level in a second.
    #[arg(long, default_value_t = 20)]
    rate: u32,
}

/// A row of the table.
struct Case {
    name: &'static str,
    /// Precedence and weight of the high level; none: all on one topic.
    high: Option<(i32, u32)>,
    /// The high level has a backlog, too.
    is_full: bool,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run_rows("levels", 3, async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Vec<Row>> {
    let cases = [
        Case { name: "one topic", high: None, is_full: false },
        Case { name: "strict", high: Some((1, 1)), is_full: false },
        Case { name: "strict, high is full", high: Some((1, 1)), is_full: true },
        Case { name: "3 to 1, high is full", high: Some((0, 3)), is_full: true },
    ];
    let mut rows = Vec::new();
    for case in cases {
        rows.push((case.name.to_owned(), measure_case(stage, options, &case).await?));
    }
    Ok(rows)
}

async fn measure_case(stage: &Stage, options: &Options, case: &Case) -> Result<Figures> {
    const BYTES: usize = 20;
    let Options { sitting, concurrency, takes, seconds, rate } = options;
    let low = stage.topics("low", None).await?;
    let high = stage.topics("high", None).await?;
    let per_second = *concurrency * 1000 / usize::try_from(*takes)?;
    let backlog = per_second * usize::try_from(*seconds)?;
    stage.fill_with(&low, backlog, stamped(0, BYTES), |it, _| it).await?;
    if case.is_full {
        stage.fill_with(&high, backlog, stamped(0, BYTES), |it, _| it).await?;
    }
    let also = case.high.map(|(precedence, weight)| (high.names.task.clone(), precedence, weight));
    let plan = Plan {
        work: Work::Takes(*takes),
        also: also.into_iter().collect(),
        ..Plan::new(stage, &low, *concurrency)
    };
    let worker = Worker::start(&plan, sitting.under.as_deref()).await?;
    let to = if case.high.is_some() { &high } else { &low };
    let mut submitted = JoinSet::new();
    // As long as the backlog lasts.
    let times = if case.is_full { 0 } else { u64::from(*rate) * seconds / 2 };
    let mut pace = interval(Duration::from_secs(1) / *rate);
    for _ in 0..times {
        pace.tick().await;
        let (client, topic) = (stage.client.clone(), to.names.task.clone());
        submitted.spawn(async move { client.submit(&topic, &Raw(stamped(now_ns(), BYTES))).await });
    }
    while let Some(done) = submitted.join_next().await {
        done??;
    }
    stage.acknowledged(&low).await?;
    stage.acknowledged(&high).await?;
    let ended = worker.end().await?;
    let mut waits = Times::new()?;
    for wait_us in &ended.waits_us {
        waits.record(Duration::from_micros(*wait_us))?;
    }
    let none = Vec::new();
    let of = |topic: &str| ended.starts_ns.get(topic).unwrap_or(&none).clone();
    let (lows, highs) = (of(&low.names.task), of(&high.names.task));
    let mut figures = Figures::default();
    if !case.is_full {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            figures.put(&format!("high {name} ms"), waits.millis(quantile));
        }
    }
    // Both have tasks until one of them has none.
    let ends = [lows.last(), highs.last()].into_iter().flatten().min().copied();
    let begins = lows.iter().chain(&highs).min().copied();
    if let (Some(begins), Some(ends)) = (begins, ends) {
        let span = seconds_between(begins, ends);
        for (name, starts) in [("high/s", &highs), ("others/s", &lows)] {
            let count = starts.iter().filter(|at| **at <= ends).count();
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            figures.put(name, count as f64 / span);
        }
        let within: Vec<u64> = std::iter::once(begins)
            .chain(lows.iter().copied().filter(|at| *at <= ends))
            .chain([ends])
            .collect();
        let pauses = within.iter().zip(within.iter().skip(1));
        let pause = pauses.map(|(from, to)| seconds_between(*from, *to));
        figures.put("pause ms", pause.fold(0.0, f64::max) * 1e3);
    }
    if case.high.is_none() {
        judge(stage, &low, backlog + usize::try_from(times)?, &[ended]).await?;
    }
    Ok(figures)
}
