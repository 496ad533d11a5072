//! SIGSTOP of an owner for 5 heartbeat intervals, then SIGCONT.

use super::kill_owner::takeover;
use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::Script;
use crate::chaos::{Host, Options, Row};
use anyhow::{Result, ensure};
use longhaul::{TaskId, TaskState};
use proofs::checkers::{History, Run};
use rustix::process::Signal;
use std::ops::Range;
use std::time::Duration;
use tokio::time::sleep;

const START_LIMIT: Duration = Duration::from_secs(60);
/// Tasks per round of each kind.
const EACH: usize = 4;
/// The name of the expected result.
const HEIR: &str = "ok heir";

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let rounds = options.tasks.unwrap_or(if options.short { 1 } else { 4 });
    // Keep-alives are frequent, so that one is due when the zombie thaws.
    let keep_alive = Duration::from_millis(400);
    let settings = Settings { keep_alive, concurrency: 2 * EACH, ..Settings::default() };
    let heartbeat = settings.heartbeat;
    let mut bench = Bench::new(host, "freeze", options, settings).await?;
    let workers = options.workers.unwrap_or(3);
    bench.fleet.start_ready(workers).await?;
    let mut orphans = Vec::new();
    let mut fenced = 0;
    for _ in 0..rounds {
        // One kind still runs when its worker thaws; the other has its result ready at that moment.
        let long = Script::new(format!("sleep 20000,ok zombie|sleep 1000,{HEIR}"));
        let short = Script::new(format!("sleep 3000,ok zombie|sleep 1000,{HEIR}"));
        let scripts = [vec![long; EACH], vec![short; EACH]].concat();
        let tasks = bench.submit(scripts).await?;
        let mut owners = Vec::new();
        for task in &tasks {
            owners.push((*task, bench.fleet.run_of(*task, 1, START_LIMIT).await?.0));
        }
        let Some((_, zombie)) = bench.rng.choice(&owners).copied() else { continue };
        let frozen_ms = bench.fleet.signal(zombie, Signal::STOP)?;
        let theirs = owners.iter().filter(|(_, owner)| *owner == zombie);
        orphans.extend(theirs.map(|(task, _)| (*task, frozen_ms)));
        sleep(5 * heartbeat).await;
        bench.fleet.signal(zombie, Signal::CONT)?;
        // Every attempt ends, at the latest when the long ones have slept.
        for task in &tasks {
            ended(&bench, *task).await?;
        }
        fenced += usize::from(bench.fleet.log(zombie)?.contains("fenced"));
    }
    let (history, report) = bench.finish(START_LIMIT).await?;
    let promised = takeover(heartbeat);
    judge(&mut bench, &history, &orphans, (fenced, rounds), promised);
    bench.row.figure("zombie_entries_on_C", report.ignored.values().sum::<usize>());
    Ok(vec![bench.into_row()])
}

async fn ended(bench: &Bench, task: TaskId) -> Result<()> {
    crate::wait::until(&format!("the end of all attempts of {task}"), START_LIMIT, async || {
        let runs = bench.fleet.runs()?;
        let mine: Vec<&Run> = runs.iter().filter(|run| run.task == task).collect();
        ensure!(!mine.is_empty(), "{task} was never run");
        Ok(mine.iter().all(|run| run.ended_us.is_some()).then_some(()))
    })
    .await
}

fn judge(
    bench: &mut Bench,
    history: &History,
    orphans: &[(TaskId, u64)],
    (fenced, rounds): (usize, usize),
    promised: Range<Duration>,
) {
    let row = &mut bench.row;
    let mut adopted = Vec::new();
    let mut cancelled = 0;
    for (task, frozen_ms) in orphans {
        let key = task.to_string();
        let heirs =
            |m: &longhaul::TaskMetadata| m.state == TaskState::Processing && m.attempts == 2;
        let shown =
            history.view.iter().find(|s| s.key == key && s.metadata.as_ref().is_some_and(heirs));
        match shown {
            Some(shown) => adopted.push(shown.publish_time_ms.saturating_sub(*frozen_ms)),
            None => row.violations.push(format!("{task} was not adopted")),
        }
        let result = history.view.iter().rev().find(|shown| shown.key == key);
        let result = result.and_then(|shown| shown.metadata.as_ref()?.result.clone());
        if result.as_deref() != Some(b"heir") {
            row.violations.push(format!("the outcome of {task}'s heir does not stand"));
        }
        let first = history.runs.iter().find(|run| run.task == *task && run.epoch == 1);
        cancelled += usize::from(
            first.is_some_and(|run| run.cancelled_us.is_some() || run.ended_us.is_some()),
        );
    }
    row.figure("orphans", orphans.len());
    row.within("freeze_to_PROCESSING(2) min/p50/max", adopted, promised);
    row.figure("zombie_attempts_ended", cancelled);
    row.figure("fenced_in_log", format!("{fenced} of {rounds} rounds"));
    row.spread("late_on_M_to_repair min/p50/max", repairs(history));
}

/// For each metadata entry of a lower epoch than an earlier one: the time until the next entry of
/// the highest epoch.
fn repairs(history: &History) -> Vec<u64> {
    let mut waits = Vec::new();
    for (at, late) in history.view.iter().enumerate() {
        let same = |shown: &&proofs::checkers::ViewEntry| shown.key == late.key;
        let (before, after) = history.view.split_at(at);
        let high = before.iter().filter(same).filter_map(|shown| shown.epoch).max();
        if late.epoch < high {
            let repaired = after.iter().filter(same).find(|shown| shown.epoch >= high);
            waits.extend(repaired.map(|s| s.publish_time_ms.saturating_sub(late.publish_time_ms)));
        }
    }
    waits
}
