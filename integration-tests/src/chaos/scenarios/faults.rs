//! The broker is restarted, and topics are unloaded, under load.

use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::{Load, Script};
use crate::chaos::{Host, Options, Row, wall_ms};
use crate::sandbox::Broker;
use anyhow::Result;
use futures::future::join_all;
use longhaul_session::PulsarTransport;
use longhaul_transport::TopicPartition;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use tokio::time::sleep;

/// The pause between two submits of one submitter, and the number of submitters.
const SUBMIT_EVERY: Duration = Duration::from_millis(600);
const SUBMITTERS: usize = 4;
/// The duration of a task: some end before the next fault, some are hit by it.
const RUN_MS: Range<u64> = 200..2500;
/// One task of this many waits and is snoozed this many times: enough for claims with a base.
const POLLERS_ONE_IN: u32 = 6;
const POLLS: u32 = 10;
/// Tasks submitted between two restarts, and the time limit for that. A killed Pulsar standalone
/// sometimes finds a ledger that it cannot recover yet ("error code: -10", the topic of its
/// policies), and does not answer for two minutes.
const BETWEEN: usize = 20;
const BETWEEN_LIMIT: Duration = Duration::from_secs(300);
/// The time limit for the remaining tasks after the last fault.
const REST_LIMIT: Duration = Duration::from_secs(180);
/// After the last fault new tasks are submitted this often, up to this many times, until every
/// worker has started one.
const ROUSE_PAUSE: Duration = Duration::from_secs(3);
const IDLE_ROUNDS_MAX: u32 = 20;

pub(super) async fn restarts(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let count = options.faults.unwrap_or(if options.short { 2 } else { 5 });
    let mut bench = bench(host, "restarts", options).await?;
    let broker = host.own()?;
    let mut rng = bench.rng.fork();
    let faults = async |load: &Load| {
        let mut down_ms = Vec::new();
        for round in 0..count {
            load.more(BETWEEN, BETWEEN_LIMIT).await?;
            sleep(Duration::from_millis(rng.u64(0..2000))).await;
            down_ms.push(restart(broker, round % 2 == 1).await?);
        }
        load.more(BETWEEN, BETWEEN_LIMIT).await?;
        Ok(down_ms)
    };
    let down_ms = Submitters::new(&mut bench).during(faults).await?;
    bench.row.figure("restarts", count);
    bench.row.spread("broker_away min/p50/max", down_ms);
    rest(&mut bench).await?;
    if bench.row.count("sessions_lost") == 0 {
        let nothing = "no worker says that it has lost a session: the restarts proved nothing";
        bench.row.violations.push(nothing.to_owned());
    }
    Ok(vec![bench.into_row()])
}

pub(super) async fn unloads(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let count = options.faults.unwrap_or(if options.short { 4 } else { 20 });
    let mut bench = bench(host, "unloads", options).await?;
    let topics = [&bench.names.task, &bench.names.ledger, &bench.names.metadata].map(Clone::clone);
    let mut rng = bench.rng.fork();
    let admin = bench.sandbox.admin().clone();
    let faults = async |_: &Load| {
        for topic in topics.iter().cycle().take(count) {
            sleep(Duration::from_millis(rng.u64(500..1500))).await;
            admin.unload(topic).await?;
        }
        Ok(())
    };
    Submitters::new(&mut bench).during(faults).await?;
    bench.row.figure("unloads", count);
    rest(&mut bench).await?;
    Ok(vec![bench.into_row()])
}

pub(super) async fn bench(host: &Host, scenario: &str, options: &Options) -> Result<Bench> {
    let workers = options.workers.unwrap_or(3);
    let mut settings = Settings { max_attempts: 20, ..Settings::default() };
    if let Some(in_flight) = options.in_flight {
        settings.concurrency = in_flight.div_ceil(workers);
    }
    let mut bench = Bench::new(host, scenario, options, settings).await?;
    bench.fleet.start_ready(workers).await?;
    Ok(bench)
}

/// Stops or kills the broker, and restarts it. Returns the outage in ms.
pub(super) async fn restart(broker: &mut Broker, kill: bool) -> Result<u64> {
    let from = wall_ms();
    if kill {
        broker.kill().await?;
    } else {
        broker.stop().await?;
    }
    broker.start().await?;
    Ok(wall_ms() - from)
}

/// A load that owns its state, so that faults may use the bench freely.
pub(super) struct Submitters {
    transport: PulsarTransport,
    topic: TopicPartition,
    rng: fastrand::Rng,
    pause: Duration,
    run_ms: Range<u64>,
}

impl Submitters {
    pub(super) fn new(bench: &mut Bench) -> Self {
        let (transport, topic) = (bench.transport.clone(), bench.task_topic());
        // At this rate `in_flight` tasks would run at once without faults.
        let mean = Duration::from_millis(u64::midpoint(RUN_MS.start, RUN_MS.end));
        let pause = |tasks: usize| mean.mul_f64(SUBMITTERS as f64 / tasks.max(1) as f64);
        let pause = bench.in_flight.map_or(SUBMIT_EVERY, pause);
        Self { transport, topic, rng: bench.rng.fork(), pause, run_ms: RUN_MS }
    }

    /// With another pause between submits, and another duration of tasks.
    pub(super) fn at_pace(self, pause: Duration, run_ms: Range<u64>) -> Self {
        Self { pause, run_ms, ..self }
    }

    /// Submits tasks until the faults are over.
    pub(super) async fn during<T>(
        mut self,
        faults: impl AsyncFnOnce(&Load) -> Result<T>,
    ) -> Result<T> {
        let load = Load::default();
        let (transport, topic) = (&self.transport, &self.topic);
        let submitters = (0..SUBMITTERS).map(|_| {
            let mut rng = self.rng.fork();
            let run_ms = self.run_ms.clone();
            let script = move || match rng.u32(0..POLLERS_ONE_IN) {
                0 => Script::poll(POLLS),
                _ => Script::sleep(rng.u64(run_ms.clone())),
            };
            load.run(transport, topic, self.pause, script)
        });
        let submitters: Vec<_> = submitters.collect();
        let faults = async {
            let result = faults(&load).await;
            // Also after an error, or the load would never end.
            load.end();
            result
        };
        tokio::join!(join_all(submitters), faults).1
    }
}

/// After the last fault every worker must start new tasks, and all must end.
pub(super) async fn rest(bench: &mut Bench) -> Result<()> {
    let after_ms = wall_ms();
    rouse(bench).await?;
    let (history, report) = bench.finish(REST_LIMIT).await?;
    let times =
        history.ledger.iter().filter(|e| e.entry.as_ref().is_ok_and(|e| e.task().is_some()));
    let last = times.map(|entry| entry.publish_time_ms).max().unwrap_or_default();
    bench.row.figure("tasks", history.tasks.len());
    bench.row.figure("claims_with_base", report.bases);
    if report.bases == 0 {
        let nothing = "no claim has a base: the tasks that are snoozed proved nothing";
        bench.row.violations.push(nothing.to_owned());
    }
    bench.row.figure("last_fault_to_last_end_ms", last.saturating_sub(after_ms));
    Ok(())
}

/// Submits until every worker has started a task submitted after the last fault.
pub(super) async fn rouse(bench: &mut Bench) -> Result<()> {
    let from_ms = wall_ms();
    let mut silent = bench.fleet.alive();
    // More than the active workers can hold, so that some are left for the others.
    let count = 2 * bench.settings.concurrency * silent.len();
    let mut submitted = BTreeSet::new();
    let mut idle = 0;
    while !silent.is_empty() && idle < IDLE_ROUNDS_MAX {
        let ended = bench.tail.ended;
        submitted.extend(bench.submit(vec![Script::sleep(1500); count]).await?);
        bench.wait_ended(usize::MAX, ROUSE_PAUSE).await;
        let asleep = |worker: &usize| -> Result<bool> {
            Ok(!bench.fleet.runs_of(*worker)?.iter().any(|run| submitted.contains(&run.task)))
        };
        let mut still = Vec::new();
        for worker in silent {
            if asleep(&worker)? {
                still.push(worker);
            }
        }
        silent = still;
        // The backlog comes first: while it is being processed, no worker is idle by its own fault.
        let old_goes_on = bench.tail.ended > ended && silent.len() == bench.fleet.alive().len();
        idle += u32::from(!old_goes_on);
    }
    bench.row.figure("all_roused_after_ms", wall_ms() - from_ms);
    let violation = |worker| format!("worker {worker} starts nothing after the last fault");
    bench.row.violations.extend(silent.into_iter().map(violation));
    Ok(())
}
