//! A queue with an order, while its workers are killed, frozen and drained, and the broker is
//! restarted: the tasks of each key run one at a time, in order.

use super::faults::restart;
use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::{Load, Script};
use crate::chaos::reading::read_whole;
use crate::chaos::{Host, Options, Row};
use crate::wait::until;
use anyhow::{Context, Result};
use futures::future::join_all;
use longhaul::ops::QueueOrder;
use longhaul::{Client, TaskId};
use longhaul_core::protocol::entry::{Entry, Outcome};
use proofs::checkers::order::{Compared, OrderJudge, Submitted, overlapping};
use proofs::checkers::{History, LedgerEntry, Report};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use tokio::time::sleep;

/// Enough keys that nearly every worker runs a task at each fault.
const KEYS: u32 = 8;
/// How long a task runs.
const RUN_MS: Range<u64> = 100..700;
/// One task of this many starts later, after this delay.
const DELAYED_ONE_IN: u32 = 12;
const DELAY_MS: Range<u64> = 500..4_000;
/// One of this many fails at its first attempt, or releases it a few times.
const FAILS_ONE_IN: u32 = 10;
const POLLS_ONE_IN: u32 = 12;
const POLLS: u32 = 2;

const SUBMITTERS: usize = 4;
const SUBMIT_EVERY: Duration = Duration::from_millis(450);
/// Tasks submitted between two faults, and the time limit for that if the broker comes back late.
const BETWEEN: usize = 8;
const BETWEEN_LIMIT: Duration = Duration::from_secs(300);
/// The time limit for all tasks to end after the last fault.
const REST_LIMIT: Duration = Duration::from_secs(180);
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// The longest time between a worker's look at the clock and the publish time of its entry, on a
/// busy machine.
const SOON_MS: u64 = 500;

/// The time limit until a worker starts something.
const BUSY_LIMIT: Duration = Duration::from_secs(60);

/// In this order, repeatedly. The restart comes within a short run, too.
const FAULTS: [Fault; 5] = [Fault::Kill, Fault::Freeze, Fault::Kill, Fault::Drain, Fault::Restart];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Freeze,
    Drain,
    Restart,
}

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let drain = Duration::from_secs(1);
    let settings = Settings { max_attempts: 50, drain, ..Settings::default() };
    let mut bench = Bench::new(host, "order", options, settings).await?;
    if !options.planted {
        let client = Client::connect(bench.sandbox.service_url()).await?;
        let queue = client.queue(&bench.names.task);
        let stands = queue.settings().await?;
        queue.update(stands.version, |settings| settings.order = Some(QueueOrder::Key)).await?;
    }
    bench.fleet.start_ready(options.workers.unwrap_or(3)).await?;
    let (transport, topic) = (bench.transport.clone(), bench.task_topic());
    let load = Load::default();
    let submitters = (0..SUBMITTERS).map(|_| {
        let mut rng = bench.rng.fork();
        load.run(&transport, &topic, SUBMIT_EVERY, move || task(&mut rng))
    });
    let submitters: Vec<_> = submitters.collect();
    let storm = async {
        let done = strike(&mut bench, host, options, &load).await;
        // Also after an error, or the load would never end.
        load.end();
        done
    };
    tokio::join!(join_all(submitters), storm).1?;
    let (history, report) = bench.finish(REST_LIMIT).await?;
    judge(&mut bench, &history, &report).await?;
    Ok(vec![bench.into_row()])
}

fn task(rng: &mut fastrand::Rng) -> Script {
    let works = format!("sleep {}", rng.u64(RUN_MS));
    let steps = match (rng.u32(..FAILS_ONE_IN), rng.u32(..POLLS_ONE_IN)) {
        (0, _) => format!("{works},fail not yet|{works},ok done"),
        (_, 0) => format!("poll {POLLS} 300,ok polled"),
        _ => format!("{works},ok done"),
    };
    let script = Script::new(steps).key(format!("key-{}", rng.u32(..KEYS)));
    if rng.u32(..DELAYED_ONE_IN) > 0 {
        return script;
    }
    script.property("DELAY", format!("PT{:.3}S", rng.u64(DELAY_MS) as f64 / 1000.0))
}

async fn strike(bench: &mut Bench, host: &mut Host, options: &Options, load: &Load) -> Result<()> {
    let count = options.faults.unwrap_or(if options.short { 5 } else { 40 });
    let mut frozen = None;
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    for fault in FAULTS.into_iter().cycle().take(count) {
        load.more(BETWEEN, BETWEEN_LIMIT).await?;
        sleep(Duration::from_millis(bench.rng.u64(0..500))).await;
        let victim = busy(bench, frozen).await?;
        let broker = host.own();
        // A shared broker is not restarted.
        let fault = if fault == Fault::Restart && broker.is_err() { Fault::Kill } else { fault };
        match (fault, broker) {
            (Fault::Kill, _) => {
                bench.fleet.kill(victim).await?;
                bench.fleet.start()?;
            }
            (Fault::Freeze, _) => {
                bench.fleet.signal(victim, Signal::STOP)?;
                frozen = Some(victim);
            }
            (Fault::Drain, _) => {
                // A worker that has just started may not handle signals yet.
                bench.fleet.ready(victim).await?;
                bench.fleet.signal(victim, Signal::TERM)?;
                bench.fleet.start()?;
                bench.fleet.ended(victim, DRAIN_LIMIT).await?;
            }
            (Fault::Restart, broker) => {
                restart(broker?, bench.rng.bool()).await?;
            }
        }
        *done.entry(format!("{fault:?}").to_lowercase()).or_default() += 1;
        // A frozen worker sleeps through a kill, and longer than the takeover time.
        if fault == Fault::Drain
            && let Some(worker) = frozen.take()
        {
            bench.fleet.signal(worker, Signal::CONT)?;
        }
    }
    if let Some(worker) = frozen {
        bench.fleet.signal(worker, Signal::CONT)?;
    }
    // The last fault must have an effect, too.
    load.more(BETWEEN, BETWEEN_LIMIT).await?;
    for (fault, count) in done {
        bench.row.figure(&fault, count);
    }
    Ok(())
}

/// A running worker with something to lose.
async fn busy(bench: &mut Bench, frozen: Option<usize>) -> Result<usize> {
    let fleet = &bench.fleet;
    let busy = until("a worker runs a task", BUSY_LIMIT, async || {
        let mut busy = Vec::new();
        for worker in fleet.alive().into_iter().filter(|worker| Some(*worker) != frozen) {
            if fleet.runs_of(worker)?.iter().any(|run| run.ended_us.is_none()) {
                busy.push(worker);
            }
        }
        Ok((!busy.is_empty()).then_some(busy))
    });
    let busy = busy.await?;
    bench.rng.choice(busy).context("there is one")
}

async fn judge(bench: &mut Bench, history: &History, report: &Report) -> Result<()> {
    let messages = read_whole(&bench.transport, &bench.task_topic()).await?;
    let mut tasks = BTreeMap::new();
    for message in messages {
        let key = message.order_key().map(<[u8]>::to_vec);
        let delay_ms = message.properties.get("DELAY").map(delay_ms);
        let from_ms = delay_ms.map(|delay_ms| message.publish_time_ms + delay_ms);
        tasks.insert(TaskId::new(message.position, -1), Submitted { key, from_ms });
    }
    let overlaps = overlapping(&tasks, history);
    let lines = lines(&tasks);
    let mut judge = OrderJudge::new(tasks);
    for message in &history.ledger {
        if let Ok(entry) = &message.entry {
            // The recipients of deliveries are unknown here.
            judge.read(entry, message.publish_time_ms.saturating_sub(SOON_MS), |_| true);
        }
    }
    let (found, compared) = judge.end();
    let Compared { pairs, troubled, exempt, beside } = compared;
    let retries = history.ledger.iter().filter(|message| is_failure(message)).count();
    bench.row.figure("tasks", history.tasks.len());
    bench.row.figure("lines", lines);
    bench.row.figure("retries", retries);
    bench.row.figure("order_pairs", pairs);
    bench.row.figure("order_troubled", troubled);
    bench.row.figure("order_exempt", exempt);
    bench.row.figure("order_beside", beside);
    bench.row.violations.extend(found.into_iter().chain(overlaps));
    for (what, count, least) in [
        ("kills", bench.row.count("kill"), 1),
        ("tasks taken over", report.takeovers as u64, 1),
        ("tasks tried again", retries as u64, 1),
        ("keys with several tasks", lines as u64, u64::from(KEYS) / 2),
        ("pairs in line", pairs as u64, history.tasks.len() as u64),
        ("pairs in line whose first was taken over or tried again", troubled as u64, 1),
    ] {
        bench.row.floor(what, count, least);
    }
    Ok(())
}

/// The number of keys with several tasks.
fn lines(tasks: &BTreeMap<TaskId, Submitted>) -> usize {
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    for key in tasks.values().filter_map(|submitted| submitted.key.as_deref()) {
        *counts.entry(key).or_default() += 1;
    }
    counts.into_values().filter(|&count| count > 1).count()
}

fn is_failure(message: &LedgerEntry) -> bool {
    let Ok(Entry::Done(done)) = &message.entry else { return false };
    matches!(done.outcome, Outcome::Failed(_))
}

/// Parses the form written by [`task`].
fn delay_ms(text: &str) -> u64 {
    let seconds = text.strip_prefix("PT").and_then(|text| text.strip_suffix('S'));
    let seconds = seconds.and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
    Duration::from_secs_f64(seconds).as_millis().try_into().unwrap_or_default()
}
