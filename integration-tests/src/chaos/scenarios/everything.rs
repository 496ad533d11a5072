//! Every feature under every fault: levels, keys, dependencies, schedules of single tasks, expiry,
//! checkpoints, snoozes, tags and own numbers of attempts, while workers are killed and frozen,
//! topics unloaded, the broker restarted, ledgers and metadata topics compacted.
//!
//! Each message contains the promises made to its task; at the end all promises are checked
//! (`promises.rs`), in addition to the checkers and `Queue::verify` on the logs. A new feature is a
//! [`Kind`] here and a `Promise` there.

use super::faults::rouse;
use super::mixed::{Count, Fault, strike};
use crate::chaos::bench::{Bench, whole};
use crate::chaos::fleet::Settings;
use crate::chaos::load::{Load, Script, submit_one};
use crate::chaos::promises::{End, Fate, HEADER, Promise, judge};
use crate::chaos::reading::{Tail, read_whole};
use crate::chaos::{Host, Options, Row, wall_ms};
use crate::wait::until;
use anyhow::{Context, Result};
use futures::future::join_all;
use longhaul::topics::{
    Admin, AdminOptions, Priority, TopicNames, TopicOverrides, TopicSettings, setup_levels,
};
use longhaul::{Client, Schedule, TaskId, Text};
use longhaul_core::protocol::entry::{ClaimKind, Entry};
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_session::PulsarTransport;
use longhaul_transport::{Publisher, TopicPartition};
use proofs::checkers::{History, Violation};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;

/// The time limit for the remaining tasks after the last fault.
const REST_LIMIT: Duration = Duration::from_secs(180);
/// The pause of a submitter between two groups of tasks, and how long it runs without faults.
const SUBMIT_EVERY: Duration = Duration::from_millis(700);
const CALM: Duration = Duration::from_secs(7);
/// Tasks of the queue's own topic that run during the first faults, and their duration in ms: a
/// killed or frozen worker then has something to lose.
const LONG: usize = 8;
const LONG_MS: u64 = 5_000;
/// How often a polling task releases its attempt: enough for claims with a base.
const POLLS: u32 = 10;
const SCHEDULE: &str = "chaos";
const FIRE_EVERY: Duration = Duration::from_secs(2);
/// The number of dedupe keys.
const DEDUPE_KEYS: u32 = 2;
/// The levels of the submitters. They share the keys, which belong to the queue, whatever its
/// levels.
const SUBMITTERS: [Priority; 4] =
    [Priority::Normal, Priority::Normal, Priority::High, Priority::Low];
const NORMAL_SUBMITTERS: usize = 2;

/// The kinds that a submitter submits in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// With tags.
    Plain,
    /// Snoozes repeatedly.
    Poll,
    /// Stores a checkpoint, fails, and completes with it at the next attempt.
    Keep,
    Expired,
    Scheduled,
    /// Two tasks, one that waits for both, and one that waits for that one.
    Dependents,
    /// Two messages of a new idempotency key, and one of a possibly old key.
    Idempotent,
    Dedupe,
    /// With a limit key of at most two running tasks over all workers.
    Limited,
}

const KINDS: [Kind; 9] = [
    Kind::Dependents,
    Kind::Poll,
    Kind::Idempotent,
    Kind::Scheduled,
    Kind::Keep,
    Kind::Dedupe,
    Kind::Limited,
    Kind::Expired,
    Kind::Plain,
];

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let settings = Settings { max_attempts: 20, levels: true, ..Settings::default() };
    let mut bench = Bench::plain(host, "everything", options, settings).await?;
    let levels = set_up_levels(&mut bench).await?;
    bench.compactor.keep_all().await?;
    bench.compactor.start(options.short);
    let client = Client::connect(bench.sandbox.service_url()).await?;
    set_up_queue(&client, &bench.names.task).await?;
    bench.fleet.start_ready(options.workers.unwrap_or(3)).await?;
    let faults = faults(&mut bench, options);
    let topics: Vec<String> = levels
        .iter()
        .flat_map(|names| [&names.task, &names.ledger, &names.metadata])
        .chain([&bench.names.register])
        .cloned()
        .collect();
    let keys = Cell::new(0);
    let load = Load::default();
    let mut submitters = Vec::new();
    for (index, level) in SUBMITTERS.into_iter().enumerate() {
        // Together they soon reach each kind, however short the run.
        let first = index * KINDS.len() / 2 % KINDS.len() + index / 2;
        submitters.push(Submitter::new(&mut bench, (level, first), &keys, options));
    }
    let storm = async {
        let done = strike(&mut bench, host, &topics, faults).await;
        if options.faults == Some(0) {
            sleep(CALM).await;
        }
        // Also after an error, or the load would never end.
        load.end();
        done
    };
    let submit = join_all(submitters.into_iter().map(|submitter| submitter.run(&load)));
    let done = tokio::join!(submit, storm).1?;
    let schedules = client.queue(&bench.names.task).schedules();
    let deleted = async || Ok(schedules.delete(SCHEDULE).await.ok());
    until("the schedule deleted", REST_LIMIT, deleted).await?;
    if !options.planted {
        rouse(&mut bench).await?;
    }
    let fates = finish(&mut bench, &levels).await?;
    note(&mut bench, &fates, &done, options);
    Ok(vec![bench.into_row()])
}

/// A few of each fault, in random order.
fn faults(bench: &mut Bench, options: &Options) -> Vec<Fault> {
    let count = options.faults.unwrap_or(if options.short { 6 } else { 40 });
    let of_each =
        [Fault::Kill, Fault::Freeze, Fault::Unload, Fault::Kill, Fault::Restart, Fault::Freeze];
    let mut faults: Vec<Fault> = of_each.into_iter().cycle().take(count).collect();
    bench.rng.shuffle(&mut faults);
    faults
}

/// Sets a limit per key, and creates a schedule.
async fn set_up_queue(client: &Client, topic: &str) -> Result<()> {
    let queue = client.queue(topic);
    let stands = queue.settings().await?;
    queue.update(stands.version, |settings| settings.per_key.max_in_flight = Some(2)).await?;
    let task = client.submission(topic, &Text("fired|sleep 100,ok fired".to_owned()));
    client.queue(topic).schedules().create(SCHEDULE, Schedule::every(FIRE_EVERY), task).await?;
    Ok(())
}

/// Creates the topics of the levels. Returns those of all levels, the queue's own first.
async fn set_up_levels(bench: &mut Bench) -> Result<Vec<TopicNames>> {
    let level = |priority| bench.names.level(priority, "longhaul", &TopicOverrides::default());
    let others = [level(Priority::High)?, level(Priority::Low)?];
    let admin = Admin::new(bench.sandbox.admin().url(), &AdminOptions::default())?;
    let ledger_retention = bench.settings.ledger_retention;
    let settings = TopicSettings { ledger_retention, ..TopicSettings::default() };
    setup_levels(&admin, &bench.names, &others, &settings).await?;
    for names in &others {
        bench.compactor.also(names);
    }
    Ok([bench.names.clone()].into_iter().chain(others).collect())
}

/// Submits groups of tasks through all faults of the broker.
struct Submitter<'a> {
    transport: PulsarTransport,
    level: Priority,
    topic: TopicPartition,
    publisher: Option<Box<dyn Publisher>>,
    rng: fastrand::Rng,
    /// The first kind.
    first: usize,
    /// The number of idempotency keys so far.
    keys: &'a Cell<u64>,
    /// Leaves the properties out of the messages, so that their promises are broken.
    planted: bool,
}

impl<'a> Submitter<'a> {
    fn new(
        bench: &mut Bench,
        (level, first): (Priority, usize),
        keys: &'a Cell<u64>,
        options: &Options,
    ) -> Self {
        Self {
            transport: bench.transport.clone(),
            level,
            topic: whole(&bench.names.task_of(level)),
            publisher: None,
            rng: bench.rng.fork(),
            first,
            keys,
            planted: options.planted,
        }
    }

    async fn run(mut self, load: &Load) {
        if self.level == Priority::Normal {
            for _ in 0..LONG / NORMAL_SUBMITTERS {
                self.long().await.ok();
            }
        }
        let mut kinds = KINDS.into_iter().cycle().skip(self.first);
        while !load.has_ended() {
            let kind = kinds.next().unwrap_or(Kind::Plain);
            // A partial group left by an outage consists of normal tasks.
            if self.group(kind).await.is_err() {
                self.publisher = None;
            }
            sleep(SUBMIT_EVERY).await;
        }
    }

    async fn group(&mut self, kind: Kind) -> Result<()> {
        let work = |rng: &mut fastrand::Rng| format!("sleep {},ok done", rng.u64(50..600));
        let done = || Promise::Result("done".to_owned());
        let script = work(&mut self.rng);
        match kind {
            Kind::Plain => {
                let tags = vec![format!("tag-{}", self.rng.u8(..)), "all".to_owned()];
                let said = [("TAGS", tags.join(","))];
                self.put(script, vec![done(), Promise::Tags(tags)], &said).await?;
            }
            Kind::Poll => {
                let polled = Promise::Result("polled".to_owned());
                self.put(format!("poll {POLLS} 1000,ok polled"), vec![polled], &[]).await?;
            }
            Kind::Keep => {
                let text = format!("kept {}", self.rng.u32(..));
                let script = format!("keep {text},fail not yet");
                self.put(script, vec![Promise::Result(text)], &[]).await?;
            }
            Kind::Expired => {
                let said = [("EXPIRES_AT", (wall_ms() - 1_000).to_string())];
                self.put(script, vec![Promise::Never], &said).await?;
            }
            Kind::Scheduled => {
                let at_ms = wall_ms() + self.rng.u64(1_500..4_000);
                let said = [("SCHEDULED_AT", at_ms.to_string())];
                self.put(script, vec![done(), Promise::NotBefore(at_ms)], &said).await?;
            }
            Kind::Limited => {
                let said = [("LIMIT_KEY", "narrow".to_owned())];
                for _ in 0..3 {
                    self.put(script.clone(), vec![done(), Promise::Limited], &said).await?;
                }
            }
            Kind::Dependents => self.dependents(script).await?,
            Kind::Idempotent => {
                let new = self.keys.replace(self.keys.get() + 1);
                for number in [new, new, self.rng.u64(0..=new)] {
                    let key = format!("once-{number}");
                    let said = [("IDEMPOTENCY_KEY", key.clone())];
                    self.put(script.clone(), vec![Promise::Once(key)], &said).await?;
                }
            }
            Kind::Dedupe => {
                for _ in 0..2 {
                    let key = format!("one-{}", self.rng.u32(..DEDUPE_KEYS));
                    let said = [("DEDUPE_KEY", key.clone())];
                    self.put(script.clone(), vec![Promise::OneAtATime(key)], &said).await?;
                }
            }
        }
        Ok(())
    }

    async fn long(&mut self) -> Result<()> {
        let done = Promise::Result("done".to_owned());
        self.put(format!("sleep {LONG_MS},ok done"), vec![done], &[]).await?;
        Ok(())
    }

    async fn dependents(&mut self, script: String) -> Result<()> {
        let policy = self.rng.choice(["fail", "skip", "run"]).unwrap_or("fail");
        let once = [("MAX_ATTEMPTS", "1".to_owned())];
        let fails = self
            .put("sleep 300,fail for good".to_owned(), vec![Promise::Attempts(1)], &once)
            .await?;
        let good = self.put(script.clone(), vec![Promise::Result("done".to_owned())], &[]).await?;
        let mut before = match self.rng.bool() {
            true => vec![fails, good],
            false => vec![good],
        };
        for _ in 0..2 {
            let ids: Vec<String> = before.iter().map(TaskId::to_string).collect();
            let said = [("AFTER", ids.join(",")), ("AFTER_FAILED", policy.to_owned())];
            let promise = Promise::After(ids, policy.to_owned());
            before = vec![self.put(script.clone(), vec![promise], &said).await?];
        }
        Ok(())
    }

    /// Submits one task with these promises, and the properties that make workers keep them.
    async fn put(
        &mut self,
        steps: String,
        promises: Vec<Promise>,
        said: &[(&str, String)],
    ) -> Result<TaskId> {
        let mut script = Script::new(steps).property(HEADER, serde_json::to_string(&promises)?);
        let attempts = promises.iter().any(|promise| matches!(promise, Promise::Attempts(_)));
        if !self.planted || attempts {
            for (name, value) in said {
                script = script.property(name, value.clone());
            }
        }
        submit_one(&self.transport, &self.topic, &mut self.publisher, &script).await
    }
}

/// Waits until all tasks of all levels have ended, checks the logs, and returns each task's fate.
async fn finish(bench: &mut Bench, levels: &[TopicNames]) -> Result<BTreeMap<TaskId, Fate>> {
    for names in levels {
        let tasks = read_whole(&bench.transport, &whole(&names.task)).await?.len();
        let mut tail = Tail::new(bench.transport.clone(), whole(&names.ledger));
        tail.until(REST_LIMIT, |tail| tail.ended >= tasks).await;
    }
    bench.compactor.stop().await;
    let mut fates = BTreeMap::new();
    let mut bases = 0;
    let mut takeovers = 0;
    let mut tasks = Vec::new();
    for names in levels {
        let (history, report) = bench.settled(names).await?;
        (bases, takeovers) = (bases + report.bases, takeovers + report.takeovers);
        tasks.push(history.tasks.len());
        bench.row.violations.extend(report.violations.iter().map(Violation::to_string));
        fates.extend(fates_of(bench, names, &history).await?);
    }
    bench.row.figure("tasks normal/high/low", format!("{tasks:?}"));
    bench.row.figure("takeovers", takeovers);
    bench.row.figure("claims_with_base", bases);
    let outside = bench.fleet.runs()?.into_iter().filter(|run| !fates.contains_key(&run.task));
    let outside = outside.map(|run| format!("a run of no task: {run:?}"));
    bench.row.violations.extend(outside);
    bench.compactor.tell(&mut bench.row);
    bench.row.refused(&bench.fleet.logs()?);
    verify(bench, levels).await?;
    Ok(fates)
}

/// The checks available to users.
async fn verify(bench: &mut Bench, levels: &[TopicNames]) -> Result<()> {
    let client = Client::connect(bench.sandbox.service_url()).await?;
    let mut judged = 0;
    for names in levels {
        let found = client.queue(&names.task).verify().await.with_context(|| names.task.clone())?;
        judged += found.ledger_entries + found.metadata_entries;
        let told = found.findings.iter().map(|it| format!("verify: {} {}: {it:?}", it.id, it.what));
        bench.row.violations.extend(told);
    }
    bench.row.figure("entries_verified", judged);
    Ok(())
}

async fn fates_of(
    bench: &Bench,
    names: &TopicNames,
    history: &History,
) -> Result<BTreeMap<TaskId, Fate>> {
    let mut fates = BTreeMap::new();
    for message in read_whole(&bench.transport, &whole(&names.task)).await? {
        fates.insert(TaskId::new(message.position, -1), Fate::of(&message)?);
    }
    for run in &history.runs {
        if let Some(fate) = fates.get_mut(&run.task) {
            fate.runs.push(run.clone());
        }
    }
    let mut folds: BTreeMap<TaskId, TaskFold> = BTreeMap::new();
    for message in &history.ledger {
        let Ok(entry) = &message.entry else { continue };
        let Some(task) = entry.task() else { continue };
        let Some(fate) = fates.get_mut(&task) else { continue };
        let fold = folds.entry(task).or_default();
        if fold.apply(entry) != Verdict::Accepted {
            continue;
        }
        if matches!(entry, Entry::Claim(claim) if claim.kind == ClaimKind::Run) {
            fate.claimed_ms.get_or_insert(message.publish_time_ms);
        }
        if fold.phase.is_terminal() && fate.end.is_none() {
            let published_ms = message.publish_time_ms;
            fate.end = Some(End { published_ms, phase: fold.phase });
        }
    }
    for shown in &history.view {
        let ends = shown.metadata.as_ref().filter(|metadata| metadata.is_terminal());
        let fate = shown.key.parse().ok().and_then(|id: TaskId| fates.get_mut(&id));
        if let (Some(metadata), Some(fate)) = (ends, fate) {
            fate.shown.get_or_insert_with(|| (shown.publish_time_ms, metadata.clone()));
        }
    }
    Ok(fates)
}

/// Reports broken promises, and the minimums that make the run conclusive.
fn note(bench: &mut Bench, fates: &BTreeMap<TaskId, Fate>, done: &Count, options: &Options) {
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for promise in fates.values().flat_map(|fate| &fate.promises) {
        *counted.entry(promise.name()).or_default() += 1;
    }
    let duplicates = fates.values().filter_map(|fate| fate.shown.as_ref());
    let duplicates = duplicates.filter(|(_, shown)| shown.duplicate_of.is_some()).count();
    counted.insert("closed as duplicates", duplicates);
    let fired = fates.values().filter(|fate| fate.fired().is_some());
    counted.insert("fired", fired.count());
    let row = &mut bench.row;
    let broken = judge(fates);
    row.violations.extend(broken.into_iter().map(|(name, why)| format!("promise {name}: {why}")));
    for (name, count) in &counted {
        row.figure(name, *count);
    }
    for (name, count) in done.by_name() {
        row.figure(name, count);
    }
    if options.faults == Some(0) {
        return;
    }
    let named = [
        "result",
        "not_before",
        "never",
        "after",
        "once",
        "one_at_a_time",
        "tags",
        "attempts",
        "limited",
        "fired",
        "closed as duplicates",
    ];
    let figures = ["claims_with_base", "takeovers", "kills", "freezes", "unloads"];
    let missing = named
        .into_iter()
        .filter(|name| !counted.contains_key(name) || counted.get(name) == Some(&0));
    let missing: Vec<&str> =
        missing.chain(figures.into_iter().filter(|name| row.count(name) == 0)).collect();
    let proves_nothing = |name| {
        format!("nothing of this kind has happened, so that the run proves nothing of it: {name}")
    };
    row.violations.extend(missing.into_iter().map(proves_nothing));
}
