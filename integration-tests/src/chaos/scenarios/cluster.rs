//! A cluster's processes are killed one at a time, and topics unloaded, under load: how long the
//! workers stall, compared with a plain publisher.

use super::faults::{Submitters, rest};
use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::Script;
use crate::chaos::probe::Probe;
use crate::chaos::reading::read_whole;
use crate::chaos::{Host, Options, Row, wall_ms};
use crate::sandbox::Cluster;
use crate::wait::until;
use anyhow::Result;
use std::ops::Range;
use std::time::Duration;
use tokio::time::sleep;

/// A little more work than the workers can do, and some in reserve: so they start tasks all the
/// time, and a pause is a stall.
const RUN_MS: Range<u64> = 450..550;
const SUBMIT_EVERY: Duration = Duration::from_millis(160);
const RESERVE: usize = 100;
/// How long each step is watched after everything has recovered.
const AFTER: Duration = Duration::from_secs(4);
/// How long a bookie is away.
const BOOKIE_AWAY: Duration = Duration::from_secs(12);
/// The time limit until brokers and workers recover from a broker's death; its session alone takes
/// 10 s.
const RECOVERY_LIMIT: Duration = Duration::from_secs(120);

/// The time limit for the accumulated tasks.
const PILE_LIMIT: Duration = Duration::from_secs(600);

/// A time span with one fault, and the longest pauses that ended in it or had not ended, in ms.
struct Step {
    name: &'static str,
    /// In which no worker started a task.
    all: u64,
    /// In which one worker started none.
    one: u64,
    probe: u64,
}

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let rounds = options.faults.unwrap_or(if options.short { 1 } else { 3 });
    let settings = Settings { max_attempts: 20, ..Settings::default() };
    let mut bench = Bench::new(host, "cluster", options, settings).await?;
    bench.fleet.start_ready(options.workers.unwrap_or(3)).await?;
    let cluster = host.cluster()?;
    let probe = Probe::beside(cluster, &bench.names.ledger).await?;
    bench.submit(vec![Script::sleep(RUN_MS.start); RESERVE]).await?;
    let submitters = Submitters::new(&mut bench).at_pace(SUBMIT_EVERY, RUN_MS);
    let steps = submitters.during(async |_| {
        let mut stage = Stage { bench: &mut bench, cluster, probe, steps: Vec::new() };
        for _ in 0..rounds {
            stage.round().await?;
        }
        Ok(stage.steps)
    });
    let steps = steps.await?;
    let names =
        ["quiet", "broker_killed", "broker_back", "unloaded", "bookie_killed", "bookie_back"];
    for name in names {
        let of = |pause: fn(&Step) -> u64| {
            steps.iter().filter(|step| step.name == name).map(pause).collect()
        };
        bench.row.spread(&format!("{name}: workers"), of(|step| step.all));
        bench.row.spread(&format!("{name}: slowest worker"), of(|step| step.one));
        bench.row.spread(&format!("{name}: probe"), of(|step| step.probe));
    }
    // The accumulated tasks are not measured after the last fault.
    let submitted = read_whole(&bench.transport, &bench.task_topic()).await?.len();
    bench.wait_ended(submitted, PILE_LIMIT).await;
    rest(&mut bench).await?;
    Ok(vec![bench.into_row()])
}

struct Stage<'a> {
    bench: &'a mut Bench,
    cluster: &'a mut Cluster,
    probe: Probe,
    steps: Vec<Step>,
}

impl Stage<'_> {
    async fn round(&mut self) -> Result<()> {
        let from = wall_ms();
        sleep(AFTER).await;
        self.watched("quiet", from)?;

        let ledger = self.bench.names.ledger.clone();
        let owner = self.cluster.owner(&ledger).await?;
        let from = wall_ms();
        self.cluster.kill_broker(owner).await?;
        self.all_go_on().await?;
        sleep(AFTER).await;
        self.watched("broker_killed", from)?;

        let from = wall_ms();
        self.cluster.start_broker(owner).await?;
        sleep(AFTER).await;
        self.watched("broker_back", from)?;

        let names = &self.bench.names;
        for topic in [&names.task, &names.ledger, &names.metadata].map(Clone::clone) {
            let from = wall_ms();
            self.cluster.admin()?.unload(&topic).await?;
            sleep(AFTER).await;
            self.watched("unloaded", from)?;
        }

        let bookie = self.bench.rng.usize(..self.cluster.bookies());
        let from = wall_ms();
        self.cluster.kill_bookie(bookie).await?;
        sleep(BOOKIE_AWAY).await;
        self.watched("bookie_killed", from)?;

        let from = wall_ms();
        self.cluster.start_bookie(bookie).await?;
        sleep(AFTER).await;
        self.watched("bookie_back", from)
    }

    /// Waits until the probe has a receipt again, and then every worker has started a task: both
    /// from the new owner.
    async fn all_go_on(&self) -> Result<()> {
        let dead_ms = wall_ms();
        until("all go on", RECOVERY_LIMIT, async || {
            // A receipt may have been in transit when its broker died.
            let later = |at: &u64| *at > dead_ms + 500;
            let Some(back_ms) = self.probe.receipts().into_iter().find(later) else {
                return Ok(None);
            };
            let starts = self.starts()?;
            let on = |starts: &Vec<u64>| starts.iter().any(|at| *at > back_ms);
            Ok(starts.iter().all(on).then_some(()))
        })
        .await
    }

    /// When each worker started tasks, in ms.
    fn starts(&self) -> Result<Vec<Vec<u64>>> {
        let workers = self.bench.fleet.alive().into_iter();
        let starts = workers.map(|worker| {
            let runs = self.bench.fleet.runs_of(worker)?;
            Ok(runs.iter().map(|run| run.started_us / 1000).collect())
        });
        starts.collect()
    }

    fn watched(&mut self, name: &'static str, from_ms: u64) -> Result<()> {
        let window = from_ms..wall_ms();
        let starts = self.starts()?;
        let all = longest_pause(starts.concat(), &window);
        let each = starts.into_iter().map(|starts| longest_pause(starts, &window));
        let one = each.max().unwrap_or_default();
        let probe = longest_pause(self.probe.receipts(), &window);
        self.steps.push(Step { name, all, one, probe });
        Ok(())
    }
}

/// The longest time without an event that ended in the window, or had not ended at its end.
fn longest_pause(mut events: Vec<u64>, window: &Range<u64>) -> u64 {
    events.sort_unstable();
    events.retain(|at| *at < window.end);
    let before = events.iter().rposition(|at| *at < window.start).unwrap_or(0);
    let mut marks = events.get(before..).unwrap_or_default().to_vec();
    marks.push(window.end);
    let pauses = marks.windows(2).filter_map(|pair| match pair {
        [a, b] => Some(b - a),
        _ => None,
    });
    pauses.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_counts_where_it_ends() {
        let events = vec![10, 90, 100, 130, 150, 400];
        let pause = |window| longest_pause(events.clone(), &window);
        assert_eq!(pause(0..1_000), 600);
        assert_eq!(pause(95..140), 30);
        // Begun before the window.
        assert_eq!(pause(50..140), 80);
        // Not ended at its end.
        assert_eq!(pause(140..390), 240);
        assert_eq!(longest_pause(Vec::new(), &(0..10)), 0);
    }
}
