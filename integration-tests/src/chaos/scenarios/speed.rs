//! The speed of one worker, compared with a bare publish-and-receive loop on the same broker.

use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::{Flow, Script};
use crate::chaos::{Host, Options, Row};
use anyhow::Result;
use hdrhistogram::Histogram;
use longhaul::TaskId;
use longhaul_core::protocol::entry::Entry;
use longhaul_transport::{Batching, Follow, Follower, Start, TopicSchema, Transport};
use proofs::checkers::Run;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::sleep;

const LIMIT: Duration = Duration::from_secs(300);
/// The pace of the second part, which measures latency: far below the worker's capacity.
const PACE: Duration = Duration::from_millis(20);

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let (tasks, paced) = if options.short { (100, 20) } else { (10_000, 500) };
    let tasks = options.tasks.unwrap_or(tasks);
    let mut rows = vec![bare(host, options, tasks, paced).await?];
    for concurrency in [16, 100, 1000] {
        rows.push(worker(host, options, concurrency, tasks, paced).await?);
    }
    Ok(rows)
}

async fn worker(
    host: &Host,
    options: &Options,
    concurrency: usize,
    tasks: usize,
    paced: usize,
) -> Result<Row> {
    let heartbeat = Duration::from_secs(10);
    let settings = Settings { concurrency, heartbeat, ..Settings::default() };
    let mut bench = Bench::new(host, "speed", options, settings).await?;
    bench.row.scenario = format!("speed: worker of concurrency {concurrency}");
    bench.submit(vec![Script::new("ok done"); tasks]).await?;
    let worker = bench.fleet.start()?;
    bench.fleet.ready(worker).await?;
    bench.wait_ended(tasks, LIMIT).await;
    let processor_ms = bench.fleet.processor_ms(worker)?;
    let runs = bench.fleet.runs_of(worker)?;
    let first = runs.iter().map(|run| run.started_us).min().unwrap_or_default();
    let last = runs.iter().filter_map(|run| run.ended_us).max().unwrap_or_default();
    bench.row.figure("backlog_tasks", tasks);
    bench.row.figure("tasks_per_s", per_second(runs.len(), last - first));
    bench.row.figure("processor_us_per_task", 1000 * processor_ms / runs.len().max(1) as u64);
    let submitted = submit_paced(&bench, paced).await?;
    bench.wait_ended(tasks + paced, LIMIT).await;
    let started: BTreeMap<TaskId, u64> =
        bench.fleet.runs()?.iter().map(|run: &Run| (run.task, run.started_us)).collect();
    let waits = submitted.iter().filter_map(|(task, at)| started.get(task)?.checked_sub(*at));
    percentiles(&mut bench.row, "submit_to_start", waits)?;
    let (history, _) = bench.finish(LIMIT).await?;
    let paced: BTreeSet<TaskId> = submitted.into_iter().map(|(task, _)| task).collect();
    let claims = history.ledger.iter().filter_map(|entry| match &entry.entry {
        Ok(Entry::Claim(claim)) => Some((claim.key.task, 1000 * entry.publish_time_ms)),
        Ok(_) | Err(_) => None,
    });
    // Including a worker busy with a backlog: a slot is taken from the claim on.
    let busy = claims.filter(|(task, _)| !paced.contains(task));
    let waits = busy.filter_map(|(task, at)| started.get(&task)?.checked_sub(at));
    percentiles(&mut bench.row, "busy_claim_to_start", waits)?;
    Ok(bench.into_row())
}

/// Submits one task every [`PACE`], and returns when each was published.
async fn submit_paced(bench: &Bench, count: usize) -> Result<Vec<(TaskId, u64)>> {
    let topic = bench.task_topic();
    let mut publisher = bench.transport.publisher(&topic, Batching::Off, TopicSchema::None).await?;
    let mut submitted = Vec::new();
    for _ in 0..count {
        let at = wall_us();
        let receipt = publisher.send(Script::new("ok done").message()).await?;
        submitted.push((TaskId::new(receipt.await?, -1), at));
        sleep(PACE).await;
    }
    Ok(submitted)
}

/// Publishes and receives the same messages, and nothing else.
async fn bare(host: &Host, options: &Options, tasks: usize, paced: usize) -> Result<Row> {
    let mut bench = Bench::new(host, "speed", options, Settings::default()).await?;
    bench.row.scenario = "speed: bare publish and receive".to_owned();
    let topic = bench.task_topic();
    let follow = Follow { start: Start::Earliest, compacted: false };
    let mut follower = bench.transport.follower(&topic, follow).await?;
    let mut publisher = bench.transport.publisher(&topic, Batching::Off, TopicSchema::None).await?;
    let from = wall_us();
    let publish = async {
        let mut flow = Flow::default();
        for _ in 0..tasks {
            flow.put(&mut publisher, Script::new("ok done").message()).await?;
        }
        flow.finish().await
    };
    let (_, ()) = tokio::try_join!(publish, receive(&mut follower, tasks))?;
    bench.row.figure("messages", tasks);
    bench.row.figure("publish_and_read_per_s", per_second(tasks, wall_us() - from));
    bench.row.figure("consume_and_ack_per_s", consume(&bench, tasks).await?);
    let mut waits = Vec::new();
    for _ in 0..paced {
        let at = wall_us();
        let receipt = publisher.send(Script::new("ok done").message()).await?;
        receive(&mut follower, 1).await?;
        waits.push(wall_us() - at);
        receipt.await?;
        sleep(PACE).await;
    }
    percentiles(&mut bench.row, "publish_to_receive", waits.into_iter())?;
    Ok(bench.into_row())
}

/// Receives and acknowledges the same messages on a Shared subscription, through the transport of a
/// worker. Returns messages/s.
async fn consume(bench: &Bench, count: usize) -> Result<u64> {
    let mut consumer = bench.transport.consumer(&bench.task_topic(), "bare").await?;
    let from = wall_us();
    let mut acks = Vec::new();
    for _ in 0..count {
        let message = consumer.next().await?;
        acks.push(consumer.ack(message.position.entry_id()));
    }
    for ack in acks {
        ack.await?;
    }
    Ok(per_second(count, wall_us() - from))
}

async fn receive(follower: &mut Box<dyn Follower>, count: usize) -> Result<()> {
    for _ in 0..count {
        follower.next().await?;
    }
    Ok(())
}

fn percentiles(row: &mut Row, name: &str, waits_us: impl Iterator<Item = u64>) -> Result<()> {
    let mut histogram = Histogram::<u64>::new(3)?;
    for wait in waits_us {
        histogram.record(wait)?;
    }
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
    row.figure(
        &format!("{name} p50/p99/max"),
        format!("{p50:.1}/{p99:.1}/{max:.1} ms (n={})", histogram.len()),
    );
    Ok(())
}

fn per_second(count: usize, micros: u64) -> u64 {
    (count as u64 * 1_000_000).checked_div(micros).unwrap_or_default()
}

/// The wall clock in µs, as in the journals.
#[expect(clippy::disallowed_methods, reason = "a measurement decides nothing")]
fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
