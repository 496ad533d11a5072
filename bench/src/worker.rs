//! A worker in a process of its own, so that its CPU time and its memory are those of a worker and
//! of nothing else.
//!
//! The parent tells it by an argument what to do, and learns by lines on its standard output when
//! it is ready, when enough attempts have started, and in the end what it has counted. SIGUSR1 lets
//! sleeping tasks end, SIGTERM drains.

use crate::child;
use crate::meter::now_ns;
use crate::stage::{Stage, Topics, body_of};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use integration_tests::example::Process;
use longhaul::{
    Client, Raw, Share, TaskContext, TaskError, TaskProcessor, WorkerConfig, WorkerHandle,
};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// How long a worker may go on after SIGTERM.
const DRAIN: Duration = Duration::from_secs(60);

/// What its processor does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Nothing.
    #[default]
    Nothing,
    /// Takes the time since the one in the task's body, in nanoseconds of the machine's clock; none
    /// is taken of zero.
    Latency,
    /// Waits for SIGUSR1.
    Sleep,
    /// As `Latency`, notes when it started, and then takes so many milliseconds.
    Takes(u64),
}

/// What a worker is told.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) service_url: String,
    pub(crate) task_topic: String,
    pub(crate) concurrency: usize,
    pub(crate) work: Work,
    /// A line is printed when so many attempts have started.
    pub(crate) expected: usize,
    /// R and how long M shows what has ended; heartbeats and the self-fence fit to it. Without it
    /// all are as by default.
    pub(crate) retention: Option<Duration>,
    /// Pause between two keep-alives, if not as by default.
    pub(crate) keep_alive: Option<Duration>,
    /// Bytes of each result.
    pub(crate) result: usize,
    /// Further task topics, with precedence and weight of each.
    pub(crate) also: Vec<(String, i32, u32)>,
    /// The weight of the first one, if not 1.
    pub(crate) weight: Option<u32>,
}

impl Plan {
    /// A worker that does nothing with its tasks.
    pub(crate) fn new(stage: &Stage, topics: &Topics, concurrency: usize) -> Self {
        let (service_url, task_topic) = (stage.service_url().to_owned(), topics.names.task.clone());
        Self { service_url, task_topic, concurrency, ..Self::default() }
    }
}

/// A line of a worker.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// It takes tasks.
    Ready {
        process: u32,
        at_ns: u64,
    },
    /// As many attempts have started as were expected.
    Started {
        at_ns: u64,
    },
    Ended(Ended),
}

/// What a worker has counted.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Calls of its processor.
    pub(crate) started: usize,
    /// Of [`Work::Latency`], in microseconds.
    pub(crate) waits_us: Vec<u64>,
    /// Of [`Work::Takes`], by topic: when tasks started.
    pub(crate) starts_ns: BTreeMap<String, Vec<u64>>,
    /// Counters of the worker that a calm run leaves at zero.
    odd: BTreeMap<String, u64>,
}

/// A worker as its parent sees it. Dropping it kills it.
pub(crate) struct Worker {
    command: Process,
    /// The worker itself, where a command such as a profiler runs it.
    pub(crate) process: u32,
    pub(crate) ready_ns: u64,
    /// When its process was started.
    pub(crate) spawned_ns: u64,
}

impl Worker {
    /// Starts one worker and waits until it takes tasks.
    pub(crate) async fn start(plan: &Plan, under: Option<&str>) -> Result<Self> {
        Self::start_all(1, plan, under).await?.pop().context("one was started")
    }

    /// Starts so many workers and waits until all of them take tasks.
    pub(crate) async fn start_all(
        count: usize,
        plan: &Plan,
        under: Option<&str>,
    ) -> Result<Vec<Self>> {
        // All are started before one is waited for.
        let mut commands = Vec::new();
        for _ in 0..count {
            commands.push((now_ns(), start(plan, under)?));
        }
        let mut workers = Vec::new();
        for (spawned_ns, mut command) in commands {
            let Line::Ready { process, at_ns } = next(&mut command, "Ready").await? else {
                bail!("a worker says something else first")
            };
            workers.push(Self { command, process, ready_ns: at_ns, spawned_ns });
        }
        Ok(workers)
    }

    /// Waits until as many attempts have started as were expected, and returns when that was.
    pub(crate) async fn started(&mut self) -> Result<u64> {
        match next(&mut self.command, "Started").await? {
            Line::Started { at_ns } => Ok(at_ns),
            line @ (Line::Ready { .. } | Line::Ended(_)) => bail!("a worker says {line:?}"),
        }
    }

    /// Lets sleeping tasks end.
    pub(crate) fn release(&self) -> Result<()> {
        self.signal(Signal::USR1)
    }

    /// Drains it, and returns what it has counted.
    pub(crate) async fn end(self) -> Result<Ended> {
        self.end_but_for(&[]).await
    }

    /// Drains workers one after the other, and returns what each has counted.
    pub(crate) async fn end_all(workers: Vec<Self>) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for worker in workers {
            ended.push(worker.end().await?);
        }
        Ok(ended)
    }

    /// The same of one that was made to count these.
    pub(crate) async fn end_but_for(mut self, expected: &[&str]) -> Result<Ended> {
        self.signal(Signal::TERM)?;
        let Line::Ended(mut ended) = next(&mut self.command, "Ended").await? else {
            bail!("a worker ends without its counters")
        };
        ended.odd.retain(|name, _| !expected.contains(&name.as_str()));
        self.command.finished().await?;
        ensure!(
            ended.odd.is_empty(),
            "a worker has counted what a calm run has not: {:?}",
            ended.odd
        );
        Ok(ended)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.process.cast_signed()).context("the worker has no number")?;
        Ok(kill_process(pid, signal)?)
    }
}

/// This program once more, with a plan.
fn start(plan: &Plan, under: Option<&str>) -> Result<Process> {
    let mut command = child::this_program(under)?;
    command.arg("worker").arg(serde_json::to_string(plan)?).stdout(Stdio::piped());
    Process::start(&mut command)
}

async fn next(command: &mut Process, kind: &str) -> Result<Line> {
    let line = command.line_with(&format!("\"{kind}\"")).await?;
    serde_json::from_str(&line).with_context(|| format!("a worker's line: {line}"))
}

/// What the worker's process does.
pub(crate) async fn run(plan: &str) -> Result<()> {
    child::log("error");
    let plan: Plan = serde_json::from_str(plan).context("the plan")?;
    let (mut usr1, mut term) =
        (signal(SignalKind::user_defined1())?, signal(SignalKind::terminate())?);
    let shared = Arc::new(Shared { expected: plan.expected, ..Shared::default() });
    let client = Client::connect(&plan.service_url).await?;
    let processor =
        Processor { work: plan.work, result: body_of(plan.result), shared: Arc::clone(&shared) };
    let mut builder = client.worker(&plan.task_topic, processor).config(config(&plan));
    builder = builder.share(Share::weight(plan.weight.unwrap_or(1)));
    for (topic, precedence, weight) in &plan.also {
        builder = builder.also_with(topic, Share::weight(*weight).precedence(*precedence));
    }
    let handle = builder.start().await?;
    handle.ready().await;
    say(&Line::Ready { process: std::process::id(), at_ns: now_ns() })?;
    loop {
        tokio::select! {
            () = shared.all_started.notified() => say(&Line::Started { at_ns: now_ns() })?,
            _ = usr1.recv() => {
                shared.is_over.store(true, Ordering::SeqCst);
                shared.over.notify_waiters();
            }
            _ = term.recv() => break,
        }
    }
    let odd = odd(&handle);
    handle.drain(DRAIN).await?;
    let waits_us =
        std::mem::take(&mut *shared.waits_us.lock().unwrap_or_else(PoisonError::into_inner));
    let starts_ns =
        std::mem::take(&mut *shared.starts_ns.lock().unwrap_or_else(PoisonError::into_inner));
    let started = shared.started.load(Ordering::SeqCst);
    say(&Line::Ended(Ended { started, waits_us, starts_ns, odd }))
}

fn config(plan: &Plan) -> WorkerConfig {
    let mut config = WorkerConfig::default();
    config.concurrency = plan.concurrency;
    config.keep_alive = plan.keep_alive.unwrap_or(config.keep_alive);
    if let Some(retention) = plan.retention {
        config.heartbeat = retention / 30;
        config.self_fence = retention / 4;
        (config.retention, config.ledger_retention) = (retention, retention);
    }
    config
}

fn odd(handle: &WorkerHandle) -> BTreeMap<String, u64> {
    let stats = handle.stats();
    let counters = [
        ("fenced", stats.fenced),
        ("self_fenced", stats.self_fenced),
        ("stuck", stats.stuck),
        ("malformed", stats.malformed),
        ("sessions_lost", stats.sessions_lost),
        ("stalls", stats.stalls),
        ("refusals", stats.refusals),
        ("violations", stats.violations),
    ];
    let odd = counters.into_iter().filter(|(_, count)| *count > 0);
    odd.map(|(name, count)| (name.to_owned(), count)).collect()
}

fn say(line: &Line) -> Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", serde_json::to_string(line)?)?;
    Ok(stdout.flush()?)
}

/// What the attempts have in common.
#[derive(Default)]
struct Shared {
    expected: usize,
    started: AtomicUsize,
    all_started: Notify,
    waits_us: Mutex<Vec<u64>>,
    starts_ns: Mutex<BTreeMap<String, Vec<u64>>>,
    is_over: AtomicBool,
    over: Notify,
}

struct Processor {
    work: Work,
    result: Bytes,
    shared: Arc<Shared>,
}

impl TaskProcessor for Processor {
    type Task = Raw;
    type Output = Raw;

    async fn process(&self, task: Raw, context: TaskContext) -> Result<Raw, TaskError> {
        let now_ns = now_ns();
        let shared = &self.shared;
        if shared.started.fetch_add(1, Ordering::SeqCst) + 1 == shared.expected {
            shared.all_started.notify_one();
        }
        match self.work {
            Work::Nothing => {}
            Work::Latency => shared.record_wait(&task, now_ns)?,
            Work::Takes(millis) => {
                shared.record_wait(&task, now_ns)?;
                shared.record_start(context.topic(), now_ns);
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
            Work::Sleep => shared.until_over().await,
        }
        Ok(Raw(self.result.clone()))
    }
}

impl Shared {
    fn record_wait(&self, task: &Raw, now_ns: u64) -> Result<(), TaskError> {
        let then_ns = stamp(&task.0).ok_or_else(|| TaskError::fatal("no time"))?;
        if then_ns > 0 {
            let wait_us = now_ns.saturating_sub(then_ns) / 1_000;
            self.waits_us.lock().unwrap_or_else(PoisonError::into_inner).push(wait_us);
        }
        Ok(())
    }

    fn record_start(&self, topic: &str, now_ns: u64) {
        let mut starts = self.starts_ns.lock().unwrap_or_else(PoisonError::into_inner);
        starts.entry(topic.to_owned()).or_default().push(now_ns);
    }

    async fn until_over(&self) {
        let mut over = std::pin::pin!(self.over.notified());
        // From here on a notification reaches us, whether we are asked before it or not.
        over.as_mut().enable();
        if !self.is_over.load(Ordering::SeqCst) {
            over.await;
        }
    }
}

/// The body of a task of [`Work::Latency`]: the time and as many bytes more as are missing.
pub(crate) fn stamped(at_ns: u64, bytes: usize) -> Bytes {
    Bytes::from(format!("{at_ns:0>bytes$}"))
}

fn stamp(body: &[u8]) -> Option<u64> {
    std::str::from_utf8(body).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_from_a_body_of_any_size() {
        for (at_ns, bytes) in [(0, 100), (123, 100), (u64::MAX, 1)] {
            let body = stamped(at_ns, bytes);
            assert_eq!(stamp(&body), Some(at_ns));
            assert!(body.len() >= bytes);
        }
        assert_eq!(stamp(b"xx"), None);
    }
}
