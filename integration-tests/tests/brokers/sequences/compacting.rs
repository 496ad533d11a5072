//! Compaction of the ledger and the metadata topic while tasks run: by call and by threshold.
//! Workers that start later find the state from before.

use crate::sequences::plain::Plain;
use crate::sequences::{SILENCE, drain};

use anyhow::{Context, Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::script::{Run, Scripted};
use integration_tests::view::LIMIT;
use longhaul::{TaskId, WorkerHandle};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const HEARTBEAT: Duration = Duration::from_secs(1);
/// Tasks that run while the ledger is compacted.
const RUNNING: usize = 20;
const OF_EACH: usize = 3;
/// Pulsar checks thresholds once a minute.
const BY_THRESHOLD: Duration = Duration::from_secs(150);
/// Pause between two checks of the broker's own actions.
const GLANCE: Duration = Duration::from_millis(100);

/// Tasks of all kinds, as far as they get while the gate is closed.
struct Tasks {
    /// Wait at the gate; the last of them behind a checkpoint without bytes.
    running: Vec<TaskId>,
    /// COMPLETED without a result.
    empty: Vec<TaskId>,
    /// Failed for good, without a reason.
    fatal: Vec<TaskId>,
    /// Failed without a reason, to be tried again in an hour.
    waiting: Vec<TaskId>,
}

impl Tasks {
    async fn submit(bench: &Bench) -> Result<Self> {
        let mut producer = Plain::tasks(bench).await?;
        let mut submit = async |count, script: &str| {
            let mut ids = Vec::new();
            for index in 0..count {
                ids.push(producer.submit(&format!("{index}|{script}")).await?);
            }
            Ok::<_, anyhow::Error>(ids)
        };
        let mut running = submit(RUNNING, "gate,ok x").await?;
        running.extend(submit(OF_EACH, "store ,gate,restore").await?);
        let empty = submit(OF_EACH, "ok ").await?;
        let fatal = submit(OF_EACH, "fatal ").await?;
        let waiting = submit(OF_EACH, "after 3600000 ").await?;
        let tasks = Self { running, empty, fatal, waiting };
        let mut view = bench.view().await?;
        view.until_all(&tasks.running, "PROCESSING 1").await?;
        view.until_all(&tasks.empty, "COMPLETED 1").await?;
        view.until_all(&tasks.fatal, "FAILED 1 FINAL").await?;
        view.until_all(&tasks.waiting, "FAILED 1").await?;
        view.close().await;
        Ok(tasks)
    }

    fn count(&self) -> usize {
        self.running.len() + self.empty.len() + self.fatal.len() + self.waiting.len()
    }
}

async fn worker(bench: &Bench, scripted: &Scripted, name: &'static str) -> Result<WorkerHandle> {
    let worker = bench.worker(scripted.named(name)).await?.concurrency(100).heartbeat(HEARTBEAT);
    let worker = worker.start().await?;
    timeout(LIMIT, worker.ready()).await.with_context(|| format!("{name} is not ready"))?;
    Ok(worker)
}

/// How compaction is started.
#[derive(Clone, Copy)]
enum By {
    Call,
    Threshold,
}

/// Compacts both topics until something was removed from the ledger: only the last heartbeat of a
/// worker remains, and a compaction that removes nothing proves nothing.
async fn compact(bench: &Bench, by: By) -> Result<()> {
    let (ledger, metadata) = (&bench.names().ledger, &bench.names().metadata);
    for (topic, removed_min) in [(metadata, 0), (ledger, 1)] {
        let compacting = until_compacted(bench, by, topic, removed_min);
        let compacted = timeout(BY_THRESHOLD, compacting).await;
        compacted.with_context(|| format!("{topic} is not compacted"))??;
    }
    Ok(())
}

async fn until_compacted(bench: &Bench, by: By, topic: &str, removed_min: u64) -> Result<()> {
    let admin = bench.sandbox().admin();
    let before = compacted(bench, topic, "lastCompactionSucceedTimestamp").await?;
    if matches!(by, By::Threshold) {
        admin.set_policy(topic, "compactionThreshold", &json!(1)).await?;
    }
    loop {
        if matches!(by, By::Call) {
            admin.compact(topic).await?;
        }
        let at = compacted(bench, topic, "lastCompactionSucceedTimestamp").await?;
        let removed = compacted(bench, topic, "lastCompactionRemovedEventCount").await?;
        if at > before && removed >= removed_min {
            return Ok(());
        }
        sleep(GLANCE).await;
    }
}

async fn compacted(bench: &Bench, topic: &str, field: &str) -> Result<u64> {
    let stats = bench.sandbox().admin().stats(topic).await?;
    let value = stats.pointer(&format!("/compaction/{field}")).and_then(Value::as_u64);
    value.with_context(|| format!("{topic}: no {field} in the statistics"))
}

/// Makes the broker deliver all messages of the task topic again, acknowledged or not, to the
/// present consumers.
async fn deliver_all_again(bench: &Bench, first: TaskId) -> Result<()> {
    let topic = bench.names().task.replacen("://", "/", 1);
    let place = json!({"ledgerId": first.ledger, "entryId": first.entry, "partitionIndex": -1});
    let path = format!("{topic}/subscription/longhaul/resetcursor");
    bench.sandbox().admin().call(Method::POST, &path, Some(&place)).await.map(drop)
}

/// Waits until only this number of messages is unacknowledged.
async fn left(bench: &Bench, count: usize) -> Result<()> {
    let expected = i64::try_from(count)?;
    let waiting = async {
        while bench.backlog().await?.0 != expected {
            sleep(GLANCE).await;
        }
        Ok::<_, anyhow::Error>(())
    };
    let waited = timeout(LIMIT, waiting).await;
    let found = bench.backlog().await;
    waited.with_context(|| format!("{count} messages were to be left, there are {found:?}"))?
}

/// Checks that no fencing token was given twice, and that each of these workers, and no other, ran
/// this number of attempts.
fn check(runs: &[Run], expected: &[(&str, usize)]) -> Result<()> {
    let tokens: BTreeSet<_> = runs.iter().map(|run| (run.task, run.epoch)).collect();
    let attempts: BTreeSet<_> = runs.iter().map(|run| (run.task, run.attempt)).collect();
    ensure!(tokens.len() == runs.len(), "a fencing token was given twice: {runs:?}");
    ensure!(attempts.len() == runs.len(), "an attempt was run twice: {runs:?}");
    let sum: usize = expected.iter().map(|(_, count)| count).sum();
    for (worker, count) in expected {
        let found = runs.iter().filter(|run| run.worker == *worker).count();
        ensure!(found == *count, "{worker} started {found}, not {count}: {runs:?}");
    }
    ensure!(runs.len() == sum, "somebody else started something: {runs:?}");
    Ok(())
}

async fn nothing_starts_again(test: &str, by: By) -> Result<()> {
    let Some(bench) = Bench::new(test).await? else { return Ok(()) };
    let scripted = Scripted::default();
    let first = worker(&bench, &scripted, "first").await?;
    let tasks = Tasks::submit(&bench).await?;
    let unfinished = tasks.running.len() + tasks.waiting.len();
    left(&bench, unfinished).await?;
    compact(&bench, by).await?;
    let second = worker(&bench, &scripted, "second").await?;
    deliver_all_again(&bench, tasks.running[0]).await?;
    left(&bench, unfinished).await?;
    // No event shows that a task will never start: a claim takes milliseconds.
    sleep(SILENCE).await;
    check(&scripted.runs(), &[("first", tasks.count())])?;
    // The next worker finds the end of the tasks that ran, and no more.
    scripted.open_gate();
    left(&bench, tasks.waiting.len()).await?;
    compact(&bench, By::Call).await?;
    let third = worker(&bench, &scripted, "third").await?;
    drain([first, second]).await?;
    deliver_all_again(&bench, tasks.running[0]).await?;
    left(&bench, tasks.waiting.len()).await?;
    check(&scripted.runs(), &[("first", tasks.count())])?;
    let audited = bench.audit().await?;
    ensure!(audited.values().all(|task| task.fold.epoch.0 == 1), "{audited:?}");
    drain([third]).await
}

/// Once twenty tasks that had run on one worker were all started again on a second one, with the
/// same fencing tokens: compaction had removed their claims, which had no body, and with them the
/// results without bytes.
#[tokio::test]
async fn nothing_starts_again_after_a_compaction_by_call() -> Result<()> {
    nothing_starts_again("compacted-by-call", By::Call).await
}

/// As above, with compaction by the threshold that topics are set up with.
#[tokio::test]
async fn nothing_starts_again_after_a_compaction_by_threshold() -> Result<()> {
    nothing_starts_again("compacted-by-threshold", By::Threshold).await
}

/// After a compaction the attempts of a worker that died were once lost: they were run again under
/// the same number.
#[tokio::test]
async fn the_heir_of_a_crash_reads_a_compacted_ledger() -> Result<()> {
    let Some(bench) = Bench::new("compacted-crash").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let first = worker(&bench, &scripted, "first").await?;
    let tasks = Tasks::submit(&bench).await?;
    compact(&bench, By::Call).await?;
    first.stop();
    first.join().await?;
    bench.sandbox().admin().compact(&bench.names().ledger).await?;
    let second = worker(&bench, &scripted, "second").await?;
    scripted.open_gate();
    let mut view = bench.view().await?;
    view.until_all(&tasks.running, "COMPLETED 2").await?;
    view.close().await;
    left(&bench, tasks.waiting.len()).await?;
    check(&scripted.runs(), &[("first", tasks.count()), ("second", tasks.running.len())])?;
    bench.audit().await?;
    drain([second]).await
}
