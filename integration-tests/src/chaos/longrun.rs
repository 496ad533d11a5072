//! A long run at full speed: what grows with the tasks that have been, though none of them is needed any more.
//!
//! Retentions are a minute, compaction comes by threshold, one worker after the other is restarted. Each tenth of the run is measured
//! by itself; what is bounded is the same in the first and in the last.

mod table;

use super::bench::Bench;
use super::fleet::Settings;
use super::load::{Flow, Script};
use super::reading::read_compacted;
use super::{Host, Options};
use crate::stopwatch;
use anyhow::{Context, Result, ensure};
use longhaul::ledger;
use longhaul::protocol::entry::Entry;
use longhaul::protocol::invariants::REFUSED;
use longhaul::transport::session::PulsarTransport;
use longhaul::transport::{Batching, Follow, Message, Schema, Start, TopicPartition, Transport};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;
use tokio::time::{interval, sleep};

pub use table::{Left, Report, Tenth};

/// Parts of a run that are measured each by itself.
const PARTS: usize = 10;
/// Tasks that wait or run at most: memory must not grow because of those that wait.
const AHEAD_MAX: usize = 20_000;
/// Pause of the submitter when it is that far ahead.
const PAUSE: Duration = Duration::from_millis(20);
/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the view is compacted and measured after the last task.
const SETTLE_EVERY: Duration = Duration::from_secs(15);
/// How long a worker may take to end that was told to.
const END_LIMIT: Duration = Duration::from_secs(120);

/// What a run may be told.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Tasks in all.
    pub tasks: usize,
    /// Worker processes, and tasks that each runs at once.
    pub workers: usize,
    /// Tasks that a worker runs at once.
    pub concurrency: usize,
    /// R, and for how long the metadata topic shows what has ended.
    pub retention: Duration,
    /// Uncompacted bytes of ledger and metadata topic at which the broker compacts.
    pub threshold_bytes: u64,
    /// Pause between two restarts of workers.
    pub restart_every: Duration,
    /// How long the ledger may take to shrink after the last task.
    pub settle: Duration,
    /// A view of so many bytes is small enough to end the run.
    pub small_bytes: usize,
}

/// Runs it.
///
/// # Errors
/// The broker or a worker does not do what it must. What grows is no error: it is in the report.
pub async fn run(host: &Host, options: &Options, plan: Plan) -> Result<Report> {
    let heartbeat = plan.retention / 30;
    let settings = Settings {
        concurrency: plan.concurrency,
        heartbeat,
        retention: plan.retention,
        ledger_retention: plan.retention,
        self_fence: plan.retention / 4,
        ..Settings::default()
    };
    let mut bench = Bench::plain(host, "longrun", options, settings).await?;
    for topic in [&bench.names.ledger, &bench.names.metadata] {
        let bytes = json!(plan.threshold_bytes);
        bench.sandbox.admin().set_policy(topic, "compactionThreshold", &bytes).await?;
    }
    let started = bench.fleet.start_ready(plan.workers).await?;
    let mut watched = Watched::new(plan);
    for worker in started {
        watched.note_start(&bench, worker).await?;
    }
    let load = Load::new(&bench, plan.tasks);
    tokio::try_join!(load.submit(), load.count(), watched.watch(&mut bench, &load))?;
    let parts = load.parts.take();
    watched.settle(&bench).await?;
    let refused = bench.fleet.logs()?.matches(REFUSED).count();
    ensure!(refused == 0, "{refused} times: {REFUSED}");
    Ok(watched.report(&parts))
}

/// The tasks: submitted, and counted when they have ended.
struct Load {
    transport: PulsarTransport,
    tasks: TopicPartition,
    ledger: TopicPartition,
    total: usize,
    ended: Cell<usize>,
    /// How long each part of the tasks took.
    parts: RefCell<Vec<Duration>>,
}

impl Load {
    fn new(bench: &Bench, total: usize) -> Self {
        Self {
            transport: bench.transport.clone(),
            tasks: bench.task_topic(),
            ledger: bench.ledger_topic(),
            total,
            ended: Cell::new(0),
            parts: RefCell::default(),
        }
    }

    /// Submits as fast as the workers follow.
    async fn submit(&self) -> Result<()> {
        let publisher = self.transport.publisher(&self.tasks, Batching::Off, Schema::None);
        let mut publisher = publisher.await?;
        let mut flow = Flow::default();
        for submitted in 0..self.total {
            while submitted >= self.ended.get() + AHEAD_MAX {
                sleep(PAUSE).await;
            }
            flow.put(&mut publisher, Script::new("ok done").message()).await?;
        }
        flow.finish().await.map(drop)
    }

    /// Follows the ledger until all have ended.
    async fn count(&self) -> Result<()> {
        let whole = Follow { start: Start::Earliest, compacted: false };
        let mut follower = self.transport.follower(&self.ledger, whole).await?;
        let mut seen = HashSet::new();
        let mut part = stopwatch();
        while seen.len() < self.total {
            let message = follower.next().await?;
            let Ok(Entry::Done(done)) = ledger::read(&message) else { continue };
            if !done.outcome.is_terminal() || !seen.insert(done.key.task) {
                continue;
            }
            self.ended.set(seen.len());
            let over = seen.len() * PARTS / self.total;
            if over > self.over() {
                let took = part();
                say(&format!(
                    "{} tasks have ended, the last part of {PARTS} in {took:.0?}",
                    seen.len()
                ));
                self.parts.borrow_mut().push(took);
                part = stopwatch();
            }
        }
        Ok(())
    }

    /// Parts that are over.
    fn over(&self) -> usize {
        self.parts.borrow().len()
    }
}

/// What is seen of workers and ledger.
struct Watched {
    plan: Plan,
    tenths: Vec<Tenth>,
    end: Option<Left>,
}

impl Watched {
    fn new(plan: Plan) -> Self {
        Self { plan, tenths: vec![Tenth::default()], end: None }
    }

    fn now(&mut self) -> Option<&mut Tenth> {
        self.tenths.last_mut()
    }

    /// A worker that is ready now has been started.
    async fn note_start(&mut self, bench: &Bench, worker: usize) -> Result<()> {
        let ready_us = bench.fleet.ready_us(worker)?;
        let started_us = bench.fleet.started_ms(worker)? * 1000;
        if let Some(now) = self.now() {
            now.starts_ms.push(ready_us.saturating_sub(started_us) / 1000);
        }
        Ok(())
    }

    /// Looks, and restarts workers, until all tasks have ended.
    async fn watch(&mut self, bench: &mut Bench, load: &Load) -> Result<()> {
        let mut looks = interval(LOOK_EVERY);
        let mut restarts = interval(self.plan.restart_every);
        // The first one comes at once.
        restarts.tick().await;
        while load.ended.get() < load.total {
            tokio::select! {
                _ = looks.tick() => {}
                _ = restarts.tick() => self.restart(bench).await?,
            }
            self.look(bench, load).await?;
        }
        Ok(())
    }

    async fn look(&mut self, bench: &Bench, load: &Load) -> Result<()> {
        if load.over() >= self.tenths.len() {
            let (entries, bytes) = compacted_ledger(bench).await?;
            if let Some(now) = self.now() {
                (now.view_entries, now.view_bytes) = (entries, bytes);
            }
            // When several were over since the last look, what was seen is that of each of them.
            let last = self.tenths.last().cloned().unwrap_or_default();
            while self.tenths.len() < load.over() {
                self.tenths.push(Tenth { starts_ms: Vec::new(), ..last.clone() });
            }
            if self.tenths.len() < PARTS {
                self.tenths.push(Tenth::default());
            }
        }
        let mut kib = 0;
        for worker in bench.fleet.alive() {
            kib = kib.max(bench.fleet.resident_kib(worker)?);
        }
        if let Some(now) = self.now() {
            now.resident_kib = now.resident_kib.max(kib);
        }
        Ok(())
    }

    /// Has the oldest worker drain and end, and starts another one in its place.
    async fn restart(&mut self, bench: &mut Bench) -> Result<()> {
        let oldest = *bench.fleet.alive().first().context("no worker is alive")?;
        bench.fleet.signal(oldest, Signal::TERM)?;
        bench.fleet.ended(oldest, END_LIMIT).await?;
        for worker in bench.fleet.start_ready(1).await? {
            self.note_start(bench, worker).await?;
        }
        Ok(())
    }

    /// After the last task: how small the ledger becomes.
    async fn settle(&mut self, bench: &Bench) -> Result<()> {
        let since = stopwatch();
        loop {
            bench.compactor.compact().await?;
            let view = read_compacted(&bench.transport, &bench.ledger_topic()).await?;
            let bytes: usize = view.iter().map(size).sum();
            let after = since();
            let left = Left { entries: view.len(), bytes, after };
            say(&format!("the ledger's view has {} entries with {bytes} bytes", left.entries));
            let is_over = left.bytes <= self.plan.small_bytes || after >= self.plan.settle;
            self.end = Some(left);
            if is_over {
                return Ok(());
            }
            sleep(SETTLE_EVERY).await;
        }
    }

    fn report(self, parts: &[Duration]) -> Report {
        let each = self.plan.tasks / PARTS;
        let mut tenths = self.tenths;
        for (tenth, took) in tenths.iter_mut().zip(parts) {
            tenth.tasks_per_s = each as f64 / took.as_secs_f64();
        }
        Report { tenths, end: self.end.unwrap_or_default() }
    }
}

/// Tells on standard error how far the run is.
fn say(message: &str) {
    writeln!(std::io::stderr(), "longrun: {message}").ok();
}

/// Entries and bytes of the broker's compacted ledger; zero before its first compaction.
async fn compacted_ledger(bench: &Bench) -> Result<(u64, u64)> {
    let stats = bench.sandbox.admin().internal_stats(&bench.names.ledger).await?;
    let field = |name: &str| {
        let value = stats.pointer(&format!("/compactedLedger/{name}")).and_then(Value::as_i64);
        value.with_context(|| format!("no {name} of the compacted ledger"))
    };
    let positive = |value: i64| u64::try_from(value).unwrap_or_default();
    Ok((positive(field("entries")?), positive(field("size")?)))
}

/// Bytes of a message that its producer chose.
fn size(message: &Message) -> usize {
    let properties = message.properties.iter().map(|(key, value)| key.len() + value.len());
    let key = message.key.as_ref().map_or(0, String::len);
    key + message.payload.len() + properties.sum::<usize>()
}
