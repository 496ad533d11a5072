//! `longhaul bench`: submits tasks, follows them to their ends, and measures the times.

use crate::clock;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use bytes::Bytes;
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use hdrhistogram::Histogram;
use longhaul::{Client, Raw, TaskContext, TaskError, TaskId, WatchEvent, WatchFrom, processor_fn};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench bench-tasks --tasks 1000 --workers 1
  longhaul bench tasks --tasks 100000 --in-flight 256 --payload-bytes 1024 -o json

Without --workers, the queue needs workers of its own, and they really run the tasks.")]
pub(crate) struct BenchArgs {
    /// Name of the queue (its task topic).
    queue: String,
    /// Submit this many tasks.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    tasks: u32,
    /// Keep this many submits in flight at once.
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    in_flight: usize,
    /// Size of each payload in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    payload_bytes: usize,
    /// Start this many workers in this process, which do nothing and succeed.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    workers: usize,
    /// Run at most this many tasks at once in each of these workers.
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    concurrency: usize,
}

/// The maximum size of a payload.
const PAYLOAD_MAX: usize = 5 * 1024 * 1024;

#[derive(Debug, Serialize)]
struct BenchResults {
    tasks: u32,
    payload_bytes: usize,
    submitted_per_second: f64,
    submit: Spread,
    ended_per_second: f64,
    /// From the submit to the entry with the end.
    end_to_end: Spread,
    not_completed: u64,
}

/// Percentiles in ms.
#[derive(Debug, Serialize)]
struct Spread {
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| ms(histogram.value_at_quantile(quantile));
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: ms(histogram.max()) }
    }

    fn shown(&self) -> String {
        let Self { p50, p90, p99, max } = self;
        format!("p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")
    }
}

fn ms(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64() * 1_000.0
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Times of up to an hour, in µs.
fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 3_600_000_000, 3)?)
}

/// The state of the tasks: the receipt of a submit may come after the task's end.
#[derive(Default)]
struct Board {
    submitted: HashMap<TaskId, Instant>,
    ended: HashMap<TaskId, (Instant, bool)>,
}

/// # Errors
/// When the queue cannot be used.
pub(crate) async fn run(it: &BenchArgs, context: &CommandContext) -> anyhow::Result<()> {
    check(it)?;
    context.needs_broker("a bench")?;
    let client = context.client().await?;
    let mut workers = Vec::new();
    for _ in 0..it.workers {
        let echo =
            processor_fn(async |_: Raw, _: TaskContext| Ok::<_, TaskError>(Raw(Bytes::new())));
        let worker = client.worker(&it.queue, echo).name("bench").concurrency(it.concurrency);
        let worker = worker.start().await?;
        worker.ready().await;
        workers.push(worker);
    }
    let figures = measure(&client, it, context).await;
    for worker in workers {
        worker.drain(Duration::from_secs(10)).await?;
    }
    let figures = figures?;
    let fields = [
        ("tasks", format!("{} of {} bytes", figures.tasks, figures.payload_bytes)),
        ("submitted", format!("{:.0} per second", figures.submitted_per_second)),
        ("submit", figures.submit.shown()),
        ("ended", format!("{:.0} per second", figures.ended_per_second)),
        ("end to end", figures.end_to_end.shown()),
        ("not completed", figures.not_completed.to_string()),
    ];
    context.output.one(&figures, &fields)?;
    if figures.not_completed == 0 {
        return Ok(());
    }
    let what = format!("{} of {} tasks did not complete", figures.not_completed, figures.tasks);
    Err(CommandFailure::new(Code::Failed, what).into())
}

fn check(it: &BenchArgs) -> Result<(), CommandFailure> {
    let bad = |what: String| Err(CommandFailure::usage(what));
    if it.payload_bytes > PAYLOAD_MAX {
        return bad(format!("--payload-bytes is at most {PAYLOAD_MAX}"));
    }
    if it.tasks == 0 || it.in_flight == 0 || it.concurrency == 0 {
        return bad("--tasks, --in-flight and --concurrency are at least 1".to_owned());
    }
    if it.in_flight > 10_000 || it.workers > 64 {
        return bad("--in-flight is at most 10000, --workers at most 64".to_owned());
    }
    Ok(())
}

async fn measure(
    client: &Client,
    it: &BenchArgs,
    context: &CommandContext,
) -> anyhow::Result<BenchResults> {
    let board = Mutex::new(Board::default());
    let progress = context.output.progress(u64::from(it.tasks));
    let watch = client.queue(&it.queue).watch_from(WatchFrom::Latest).await?;
    let begun = clock::monotonic();
    let follow = follow(watch, it.tasks, &board, || progress.step());
    let submit = submit(client, it, &board);
    let (submitted, ended) = futures::try_join!(submit, follow)?;
    let (submit, submitted_at) = submitted;
    let per_second = |until: Instant| f64::from(it.tasks) / (until - begun).as_secs_f64();
    let (end_to_end, not_completed) = spread(&board)?;
    Ok(BenchResults {
        tasks: it.tasks,
        payload_bytes: it.payload_bytes,
        submitted_per_second: per_second(submitted_at),
        submit: Spread::of(&submit),
        ended_per_second: per_second(ended),
        end_to_end: Spread::of(&end_to_end),
        not_completed,
    })
}

async fn submit(
    client: &Client,
    it: &BenchArgs,
    board: &Mutex<Board>,
) -> anyhow::Result<(Histogram<u64>, Instant)> {
    let payload = Raw(Bytes::from(vec![b'x'; it.payload_bytes]));
    let one = |_| {
        let sending = client.submit(&it.queue, &payload);
        async move {
            let begun = clock::monotonic();
            let task = sending.await?;
            let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
            board.submitted.insert(task.id, begun);
            Ok::<_, anyhow::Error>(micros(begun.elapsed()))
        }
    };
    let mut times = stream::iter(0..it.tasks).map(one).buffer_unordered(it.in_flight);
    let mut taken = histogram()?;
    while let Some(time) = times.try_next().await? {
        taken.saturating_record(time);
    }
    Ok((taken, clock::monotonic()))
}

/// Follows the tasks until all are over.
async fn follow(
    mut watch: longhaul::Watch,
    tasks: u32,
    board: &Mutex<Board>,
    step: impl Fn(),
) -> anyhow::Result<Instant> {
    let wanted = usize::try_from(tasks).unwrap_or(usize::MAX);
    while let Some(event) = watch.next().await {
        let WatchEvent::Updated { id, metadata, .. } = event? else { continue };
        if !metadata.is_terminal() {
            continue;
        }
        let now = clock::monotonic();
        let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
        let Board { submitted, ended } = &mut *board;
        if ended.insert(id, (now, metadata.result.is_some())).is_none() {
            step();
        }
        // The queue may have other tasks.
        if ended.len() >= wanted
            && submitted.len() >= wanted
            && submitted.keys().all(|it| ended.contains_key(it))
        {
            return Ok(now);
        }
    }
    Err(anyhow::anyhow!("the watch of the queue ended"))
}

fn spread(board: &Mutex<Board>) -> anyhow::Result<(Histogram<u64>, u64)> {
    let board = board.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut times, mut failed) = (histogram()?, 0);
    for (id, begun) in &board.submitted {
        let Some((ended, completed)) = board.ended.get(id) else { continue };
        times.saturating_record(micros(*ended - *begun));
        failed += u64::from(!completed);
    }
    Ok((times, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_told_in_ms() {
        let mut histogram = histogram().unwrap();
        for ms in 1..=100_u64 {
            histogram.saturating_record(ms * 1_000);
        }
        let told = Spread::of(&histogram).shown();
        assert!(told.starts_with("p50 50.0 ms, p90 90.") && told.contains("max 100."), "{told}");
    }
}
