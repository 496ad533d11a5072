//! The four sequences that the tests of the Java reference assert, seen by a stock Java client, and
//! byte for byte.

use crate::sequences::plain::Plain;
use crate::sequences::{SILENCE, drain};
use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use integration_tests::audit::Audited;
use integration_tests::bench::Bench;
use integration_tests::java::{JavaClient, JavaEntry, Watcher};
use integration_tests::script::Scripted;
use integration_tests::view::{LIMIT, Shown};
use longhaul::{TaskId, WorkerHandle};
use longhaul_transport::Batching;
use longhaul_transport::clock::Clock;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Settings of the reference's test, and the entries that its watcher must see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    pub(crate) name: &'static str,
    /// The script of the task's runs.
    script: &'static str,
    budget: Option<&'static str>,
    max_attempts: u32,
    keep_alive: Duration,
    entries: &'static [Expected],
}

/// An entry before the tombstone.
#[derive(Clone, Copy, Debug)]
struct Expected {
    state: &'static str,
    attempts: i32,
    result: Option<&'static str>,
    failure_reason: Option<&'static str>,
    /// Fields that the reference does not have.
    failure_cause: &'static str,
    outcome: Option<&'static str>,
    retries: bool,
    detail: Option<&'static str>,
}

const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// The longest wait after a failed attempt in these tests.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The reference's limit for the tombstone, with a retention of one second.
const TOMBSTONE_LIMIT_MS: i64 = 20_000;

const fn processing(attempts: i32) -> Expected {
    Expected {
        state: "PROCESSING",
        attempts,
        result: None,
        failure_reason: None,
        failure_cause: "error",
        outcome: None,
        retries: false,
        detail: None,
    }
}

const fn completed(attempts: i32, result: &'static str) -> Expected {
    Expected { state: "COMPLETED", result: Some(result), ..processing(attempts) }
}

const fn failed(attempts: i32, reason: &'static str) -> Expected {
    Expected {
        state: "FAILED",
        failure_reason: Some(reason),
        retries: true,
        ..processing(attempts)
    }
}

pub(crate) const SUCCESS: Sequence = Sequence {
    name: "success",
    script: "ok bar",
    budget: Some("PT3H"),
    max_attempts: 3,
    keep_alive: FIVE_MINUTES,
    entries: &[processing(1), completed(1, "bar")],
};

pub(crate) const RETRY_WITH_RECOVERY: Sequence = Sequence {
    name: "retry-with-recovery",
    script: "fail failed|ok bar",
    budget: None,
    max_attempts: 3,
    keep_alive: FIVE_MINUTES,
    entries: &[
        processing(1),
        failed(1, "Processing error: failed"),
        processing(2),
        completed(2, "bar"),
    ],
};

pub(crate) const TERMINAL_FAILURE: Sequence = Sequence {
    name: "terminal-failure",
    script: "fail failed",
    budget: None,
    max_attempts: 1,
    keep_alive: FIVE_MINUTES,
    entries: &[
        processing(1),
        Expected {
            outcome: Some("FINAL"),
            retries: false,
            ..failed(1, "Processing error: failed")
        },
    ],
};

pub(crate) const FIRST_ATTEMPT_EXCEEDS_MAX_DURATION: Sequence = Sequence {
    name: "first-attempt-exceeds-max-duration",
    script: "sleep 6000,ok late|sleep 1000,ok bar",
    budget: Some("PT3S"),
    max_attempts: 2,
    keep_alive: Duration::from_secs(4),
    entries: &[
        processing(1),
        Expected {
            failure_cause: "budget",
            detail: Some("The attempt took longer than its budget of PT3S."),
            ..failed(1, "Process was cancelled: null")
        },
        processing(2),
        completed(2, "bar"),
    ],
};

impl Sequence {
    /// Starts a worker with the settings of the reference's test.
    pub(crate) async fn worker(
        &self,
        bench: &Bench,
        scripted: &Scripted,
        concurrency: usize,
    ) -> Result<WorkerHandle> {
        let worker = bench.worker(scripted.clone()).await?;
        let worker = worker.max_attempts(self.max_attempts).keep_alive(self.keep_alive);
        let worker = worker.retention(Duration::from_secs(1)).concurrency(concurrency);
        Ok(worker.backoff(BACKOFF_MAX, BACKOFF_MAX).start().await?)
    }

    /// Submits this number of tasks to all partitions in turn; returns their payloads.
    pub(crate) async fn submit(
        &self,
        bench: &Bench,
        count: usize,
    ) -> Result<BTreeMap<TaskId, String>> {
        let mut producers = Vec::new();
        for part in bench.parts(&bench.names().task) {
            producers.push(Plain::open(bench, &part, Batching::Off).await?);
        }
        let properties: Vec<_> =
            self.budget.map(|budget| ("MAX_TASK_DURATION", budget)).into_iter().collect();
        let turns = producers.len();
        let mut payloads = BTreeMap::new();
        for index in 0..count {
            let payload = format!("{index}|{}", self.script);
            let producer = &mut producers[index % turns];
            let id = producer.submit_with(payload.as_bytes(), &properties).await?;
            payloads.insert(id, payload);
        }
        Ok(payloads)
    }

    /// Waits until all of these tasks have left the metadata topic, and checks that nothing
    /// follows.
    pub(crate) async fn watch(
        &self,
        watcher: &mut Watcher,
        payloads: &BTreeMap<TaskId, String>,
    ) -> Result<()> {
        let mut seen: BTreeMap<String, Vec<JavaEntry>> = BTreeMap::new();
        let mut gone = BTreeSet::new();
        while gone.len() < payloads.len() {
            let next = watcher.next(LIMIT).await;
            let entry = next.with_context(|| format!("{} of {}", gone.len(), payloads.len()))?;
            let now = i64::try_from(Clock::System.wall_ms())?;
            ensure!(entry.last_updated.is_none_or(|at| at <= now), "in the future: {entry:?}");
            if entry.null {
                gone.insert(entry.key.clone());
            }
            seen.entry(entry.key.clone().context("no key")?).or_default().push(entry);
        }
        watcher.nothing_for(SILENCE).await?;
        for (id, payload) in payloads {
            let entries = seen.remove(&id.to_string()).context("a task that was not shown")?;
            self.check(*id, payload, &entries).with_context(|| told(&entries))?;
        }
        ensure!(seen.is_empty(), "not submitted: {seen:?}");
        Ok(())
    }

    /// Checks the entries of one task as Java saw them.
    fn check(&self, id: TaskId, payload: &str, entries: &[JavaEntry]) -> Result<()> {
        ensure!(entries.len() == self.entries.len() + 1, "{} entries", entries.len());
        let (tombstone, shown) = entries.split_last().context("nothing")?;
        let created = shown[0].created;
        let mut updated = created;
        for (expected, entry) in self.entries.iter().zip(shown) {
            ensure!(entry.error.is_none() && !entry.null);
            ensure!(entry.message_id.as_ref() == Some(&id.to_string()), "messageId");
            ensure!(entry.state.as_deref() == Some(expected.state));
            ensure!(entry.attempts == Some(expected.attempts));
            ensure!(entry.created == created && entry.created > Some(0), "created");
            ensure!(updated <= entry.last_updated, "lastUpdated");
            updated = entry.last_updated;
            ensure!(entry.task.as_deref() == Some(payload.as_bytes()), "task");
            ensure!(entry.result.as_deref() == expected.result.map(str::as_bytes), "result");
            ensure!(entry.failure_reason.as_deref() == expected.failure_reason, "failureReason");
            let names: Vec<_> = entry.properties.keys().map(String::as_str).collect();
            ensure!(names == ["epoch", "owner"], "{names:?}");
            ensure!(entry.properties["epoch"] == expected.attempts.to_string(), "epoch");
            ensure!(entry.properties["owner"].len() == 32, "owner");
        }
        ensure!(tombstone.null && tombstone.error.is_none(), "{tombstone:?}");
        let ended = shown.last().and_then(|entry| entry.publish_time).context("no time")?;
        let late = tombstone.publish_time.context("no time")? - ended;
        ensure!(late <= TOMBSTONE_LIMIT_MS, "the tombstone came {late} ms after the end");
        Ok(())
    }

    /// Checks the same entries byte for byte, and the ledger's state.
    pub(crate) fn check_bytes(&self, payload: &str, task: &Audited) -> Result<()> {
        let (tombstone, shown) = task.shown.split_last().context("nothing")?;
        ensure!(tombstone.metadata.is_none() && tombstone.json.is_empty());
        for (expected, entry) in self.entries.iter().zip(shown) {
            let json = expected.json(payload, entry)?;
            ensure!(entry.json == json, "found    {}\nexpected {json}", entry.json);
            let owner = task.fold.owner.to_string();
            ensure!(entry.properties["owner"] == owner, "{} is not {owner}", entry);
        }
        ensure!(task.ignored == 0, "{} entries of the ledger were in vain", task.ignored);
        Ok(())
    }
}

impl Expected {
    /// The entry as it must be on the topic; only the times are taken from `found`.
    fn json(&self, payload: &str, found: &Shown) -> Result<String> {
        let value: Value = serde_json::from_str(&found.json)?;
        let time = |name: &str| value[name].as_u64().context(name.to_owned());
        let (created, updated) = (time("created")?, time("lastUpdated")?);
        let mut json = format!(
            r#"{{"messageId":"{}","state":"{}","created":{created},"lastUpdated":{updated},"attempts":{},"task":"{}""#,
            found.task,
            self.state,
            self.attempts,
            BASE64_STANDARD.encode(payload)
        );
        if let Some(result) = self.result {
            json += &format!(r#","result":"{}""#, BASE64_STANDARD.encode(result));
        }
        if let Some(reason) = self.failure_reason {
            let cause = self.failure_cause;
            json += &format!(r#","failureReason":"{reason}","failureCause":"{cause}""#);
        }
        if let Some(outcome) = self.outcome {
            json += &format!(r#","outcome":"{outcome}""#);
        }
        if self.retries {
            let at = time("nextAttemptAt")?;
            let latest = updated + u64::try_from(BACKOFF_MAX.as_millis())?;
            ensure!((created..=latest).contains(&at), "the next attempt is at {at}: {json}");
            json += &format!(r#","nextAttemptAt":{at}"#);
        }
        if let Some(detail) = self.detail {
            json += &format!(r#","detail":"{detail}""#);
        }
        let submitted = time("submittedAt")?;
        ensure!(submitted <= created, "submitted at {submitted}: {json}");
        json += &format!(r#","submittedAt":{submitted}"#);
        if self.state == "PROCESSING" {
            // The worker that runs it: its own name and its machine's.
            let word = |name: &str| value["worker"][name].as_str().context(name.to_owned());
            json +=
                &format!(r#","worker":{{"name":"{}","host":"{}"}}"#, word("name")?, word("host")?);
        }
        Ok(json + "}")
    }
}

/// The entries as text, one line each.
fn told(entries: &[JavaEntry]) -> String {
    let line = |entry: &JavaEntry| {
        let JavaEntry { id, state, attempts, last_updated, publish_time, properties, .. } = entry;
        format!("{id:?} {state:?} {attempts:?} {last_updated:?} {publish_time:?} {properties:?}\n")
    };
    entries.iter().map(line).collect()
}

/// Plays a sequence with this number of tasks at once. The Java client watches from before the
/// first.
pub(crate) async fn play(
    sequence: Sequence,
    partitions: Option<u32>,
    tasks: usize,
    concurrency: usize,
) -> Result<()> {
    let Some(bench) = Bench::with_partitions(sequence.name, partitions).await? else {
        return Ok(());
    };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let mut watcher = java.watch(bench.service_url(), &bench.names().metadata).await?;
    let scripted = Scripted::default();
    let worker = sequence.worker(&bench, &scripted, concurrency).await?;
    let payloads = sequence.submit(&bench, tasks).await?;
    sequence.watch(&mut watcher, &payloads).await?;
    bench.all_acknowledged().await?;
    let audited = bench.audit().await?;
    for (id, payload) in &payloads {
        sequence.check_bytes(payload, &audited[id]).with_context(|| id.to_string())?;
    }
    ensure!(scripted.runs().iter().all(|run| !run.overlaps), "{:?}", scripted.runs());
    drain([worker]).await
}

#[tokio::test]
async fn success() -> Result<()> {
    play(SUCCESS, None, 1, 16).await
}

#[tokio::test]
async fn retry_with_recovery() -> Result<()> {
    play(RETRY_WITH_RECOVERY, None, 1, 16).await
}

#[tokio::test]
async fn terminal_failure() -> Result<()> {
    play(TERMINAL_FAILURE, None, 1, 16).await
}

#[tokio::test]
async fn first_attempt_exceeds_max_duration() -> Result<()> {
    play(FIRST_ATTEMPT_EXCEEDS_MAX_DURATION, None, 1, 16).await
}
