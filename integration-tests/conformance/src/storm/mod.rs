//! A storm: workers of one or several programs end thousands of tasks while everything around them
//! fails. Each worker reaches three gateways through proxies of its own, which answer a part of all
//! requests in place of the gateway, or cut, halve and delay the answer. Meanwhile workers, gateways
//! and the broker are killed, stopped and started again.
//!
//! ```text
//! worker of each program ── 3 proxies ── 3 gateways ── broker
//! judge.rs ── what was sent, answered and killed, against what the tasks show
//! ```

mod broker;
mod judge;

pub(crate) use broker::serve as serve_broker;

use crate::candidate::{Candidate, Orders, last_lines};
use crate::clock;
use crate::door::{FaultProxy, InjectedFault};
use crate::gateway::{Recipe, SpawnedGateway};
use crate::stage::tokens;
use anyhow::{Context, bail, ensure};
use broker::SpawnedBroker;
use fastrand::Rng;
use futures::future::try_join_all;
use judge::{EndedWorker, Seen, judge};
use longhaul::topics::TopicSettings;
use longhaul::{Client, RetryPolicy, TaskMetadata, TaskRef, Text};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::cell::Cell;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const QUEUE: &str = "storm";
/// Attempts of each task: more than the storm can cost.
const ATTEMPTS: u32 = 50;
const GATEWAYS: usize = 3;
const LEASE_TIME: u32 = 10;
const CONCURRENCY: u32 = 16;
/// The time limit of a storm, per 1,000 tasks and in any case.
const LIMIT: Duration = Duration::from_secs(900);
/// The time limit of a worker's drain.
const DRAIN: Duration = Duration::from_secs(60);
/// Stands for a log line that Rust has no text for.
const HALF: &str = "<half>";
/// What proxies answer in place of a gateway.
const PAGES: [u16; 12] = [200, 302, 400, 401, 403, 404, 408, 409, 413, 421, 431, 502];

/// The faults of a proxy, and how many of 300 requests have each.
fn faults(delay: Duration) -> Vec<(u32, InjectedFault)> {
    let refusal = |status| InjectedFault::Refuse { status, seconds: 1 };
    let mut faults: Vec<_> = PAGES.map(|status| (4, InjectedFault::page(status))).into();
    faults.extend([
        (6, InjectedFault::problem(401, "token_unknown")),
        (6, InjectedFault::problem(403, "scope_missing")),
        (6, refusal(429)),
        (6, refusal(503)),
        (9, InjectedFault::CutAnswer),
        (9, InjectedFault::HalveAnswer),
        (12, InjectedFault::Delay(delay)),
    ]);
    faults
}

/// Chooses the faults of a proxy.
#[derive(Debug)]
pub(crate) struct Weather(Rng);

impl Weather {
    /// The fault of the next request, if it has one.
    pub(crate) fn fault(&mut self) -> Option<InjectedFault> {
        let delay = Duration::from_millis(self.0.u64(..1_500));
        let mut drawn = self.0.u32(..300);
        faults(delay).into_iter().find_map(|(share, fault)| {
            let is_drawn = drawn < share;
            drawn = drawn.saturating_sub(share);
            is_drawn.then_some(fault)
        })
    }
}

/// What a storm is made of.
#[derive(Clone, Debug)]
pub(crate) struct StormPlan {
    pub(crate) tasks: usize,
    pub(crate) seed: u64,
    /// The command line of a worker of each kind.
    pub(crate) programs: Vec<Vec<OsString>>,
}

/// Runs a storm and prints what it saw.
///
/// # Errors
/// When something does not start, or a promise was broken.
pub(crate) async fn run(plan: &StormPlan) -> anyhow::Result<()> {
    let mut storm = Storm::start(plan).await?;
    let tasks = storm.submit(plan.tasks).await?;
    let mut out = std::io::stdout();
    writeln!(out, "{} tasks are submitted, seed {}", tasks.len(), plan.seed)?;
    storm.start_workers()?;
    let limit = LIMIT * u32::try_from(plan.tasks.div_ceil(1_000))?;
    let begun = clock::monotonic();
    let (client, ended) = (storm.client.clone(), timeout(limit, storm.blow(&tasks)));
    let Ok(ended) = ended.await else {
        let mut open = Vec::new();
        for task in &tasks {
            let shown = client.get(task).await?;
            open.extend((!shown.as_ref().is_some_and(TaskMetadata::is_terminal)).then_some(shown));
        }
        bail!("{} tasks did not end within {limit:?}, such as {:?}", open.len(), open.first());
    };
    let ended = ended?;
    let seen = storm.seen();
    let report = judge(&seen, &storm.stopped, &ended, Duration::from_secs(LEASE_TIME.into()));
    writeln!(out, "{} s; {report}", begun.elapsed().as_secs())?;
    for worker in &storm.workers {
        writeln!(out, "the last lines of a worker:\n{}", last_lines(&worker.output))?;
    }
    let floor = plan.tasks / 200;
    for (_, fault) in faults(Duration::ZERO) {
        let fault = fault.name();
        let count = report.faults.get(&fault).copied().unwrap_or_default();
        ensure!(count >= floor, "only {count} ends met the fault `{fault}`, not {floor}");
    }
    ensure!(report.broken.is_empty(), "{} promises were broken", report.broken.len());
    Ok(writeln!(out, "the storm broke no promise")?)
}

/// A worker, and its own way to each gateway.
#[derive(Debug)]
struct StormWorker {
    words: Vec<OsString>,
    proxies: Vec<FaultProxy>,
    output: PathBuf,
    process: Option<Candidate>,
    started: Instant,
}

impl StormWorker {
    /// Whether it has made a request since it was started. Before that SIGTERM kills it.
    fn is_up(&self) -> bool {
        self.proxies.iter().any(|proxy| proxy.heard_at() > Some(self.started))
    }
}

#[derive(Debug)]
struct Storm {
    rng: Rng,
    client: Client,
    token: String,
    gateways: Vec<SpawnedGateway>,
    workers: Vec<StormWorker>,
    stopped: Vec<EndedWorker>,
    broker: SpawnedBroker,
    _folder: TempDir,
}

impl Storm {
    async fn start(plan: &StormPlan) -> anyhow::Result<Self> {
        let mut rng = Rng::with_seed(plan.seed);
        let folder = tempfile::tempdir()?;
        let broker = SpawnedBroker::start(&folder.path().join("broker")).await?;
        let (service_url, admin_url) = broker.urls();
        let client = Client::builder(service_url).admin_url(admin_url).connect().await?;
        client.queue(QUEUE).setup_topics(TopicSettings::default()).await?;
        let (tokens, token, _) = tokens(folder.path())?;
        let recipe = Recipe {
            listen: "127.0.0.1:0".parse()?,
            tokens,
            service_url: service_url.to_owned(),
            admin_url: admin_url.to_owned(),
        };
        let gateways = try_join_all((0..GATEWAYS).map(|_| SpawnedGateway::start(&recipe))).await?;
        let http = reqwest::Client::builder().no_proxy().build()?;
        let mut workers = Vec::new();
        for (index, words) in plan.programs.iter().enumerate() {
            let mut proxies = Vec::new();
            for gateway in &gateways {
                let weather = Weather(rng.fork());
                proxies.push(FaultProxy::open(gateway.url(), http.clone(), Some(weather)).await?);
            }
            let output = folder.path().join(format!("{index}.out"));
            let (words, started) = (words.clone(), clock::monotonic());
            workers.push(StormWorker { words, proxies, output, process: None, started });
        }
        let (stopped, _folder) = (Vec::new(), folder);
        Ok(Self { rng, client, token, gateways, workers, stopped, broker, _folder })
    }

    async fn submit(&mut self, count: usize) -> anyhow::Result<Vec<TaskRef>> {
        let (base, max) = (Duration::from_millis(100), Duration::from_millis(500));
        let policy = RetryPolicy { base, max, ..RetryPolicy::default() };
        let mut tasks = Vec::new();
        for _ in 0..count {
            let payload = json!({ "attempts": script(&mut self.rng) }).to_string();
            let text = Text(payload.replace(HALF, "half of a pair: \\ud800"));
            let submission = self.client.submission(QUEUE, &text).retry(policy.clone());
            tasks.push(submission.max_attempts(ATTEMPTS).send());
        }
        Ok(try_join_all(tasks).await?)
    }

    fn start_workers(&mut self) -> anyhow::Result<()> {
        (0..self.workers.len()).try_for_each(|index| self.start_worker(index))
    }

    fn start_worker(&mut self, index: usize) -> anyhow::Result<()> {
        let worker = self.workers.get_mut(index).context("no such worker")?;
        let gateways: Vec<&str> = worker.proxies.iter().map(FaultProxy::url).collect();
        let (gateways, token) = (gateways.join(","), self.token.as_str());
        let variables = [
            ("LONGHAUL_GATEWAY", gateways.as_str()),
            ("LONGHAUL_TOKEN", token),
            ("LONGHAUL_QUEUE", QUEUE),
        ];
        let orders =
            Orders { concurrency: CONCURRENCY, lease_time: LEASE_TIME, ..Orders::default() };
        let started = Candidate::start(&worker.words, variables, &worker.output, &orders)?;
        (worker.process, worker.started) = (Some(started), clock::monotonic());
        Ok(())
    }

    /// Kills, stops and restarts processes at random until all tasks are over.
    async fn blow(&mut self, tasks: &[TaskRef]) -> anyhow::Result<Vec<(TaskRef, TaskMetadata)>> {
        let mut waits = JoinSet::new();
        for task in tasks.iter().cloned() {
            let client = self.client.clone();
            waits.spawn(async move {
                let end = client.wait_metadata(&task).await;
                end.map(|end| (task, end))
            });
        }
        let over = Cell::new(0);
        let all = async {
            let mut ended = Vec::new();
            while let Some(end) = waits.join_next().await {
                ended.push(end??);
                over.set(ended.len());
            }
            anyhow::Ok(ended)
        };
        tokio::pin!(all);
        let (begun, mut told) = (clock::monotonic(), 0);
        loop {
            let minutes = begun.elapsed().as_secs() / 60;
            if minutes > told {
                told = minutes;
                writeln!(std::io::stdout(), "{told} min: {} tasks are over", over.get())?;
            }
            let pause = Duration::from_millis(self.rng.u64(1_000..4_000));
            tokio::select! {
                ended = &mut all => return ended,
                () = sleep(pause) => self.strike().await?,
            }
        }
    }

    async fn strike(&mut self) -> anyhow::Result<()> {
        let (worker, gateway) = (self.rng.usize(..self.workers.len()), self.rng.usize(..GATEWAYS));
        let pause = Duration::from_millis(self.rng.u64(..3_000));
        match self.rng.u32(..10) {
            0..3 => {
                let at = clock::monotonic();
                // Dropped: it is killed with its processes.
                self.worker(worker)?.process = None;
                self.stopped.push(EndedWorker { worker, at, is_killed: true });
                sleep(pause).await;
                self.start_worker(worker)
            }
            3..5 if !self.worker(worker)?.is_up() => Ok(()),
            3..5 => {
                let process = &mut self.worker(worker)?.process;
                let mut process = process.take().context("the worker is gone")?;
                process.signal(Signal::TERM)?;
                let status = process.ended(DRAIN).await?;
                ensure!(status.success(), "a drained worker ended with {status}");
                let at = clock::monotonic();
                self.stopped.push(EndedWorker { worker, at, is_killed: false });
                self.start_worker(worker)
            }
            kind @ 5..9 => {
                let gateway = self.gateways.get_mut(gateway).context("no such gateway")?;
                if kind < 7 {
                    gateway.kill().await?
                } else {
                    gateway.stop().await?
                }
                sleep(pause).await;
                gateway.start_again().await
            }
            _ => {
                self.broker.kill().await?;
                sleep(pause).await;
                self.broker.start_again().await
            }
        }
    }

    fn worker(&mut self, index: usize) -> anyhow::Result<&mut StormWorker> {
        self.workers.get_mut(index).context("no such worker")
    }

    /// All requests of all workers.
    fn seen(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        for (worker, one) in self.workers.iter().enumerate() {
            let calls = one.proxies.iter().flat_map(FaultProxy::calls);
            seen.extend(calls.map(|call| Seen { worker, call }));
        }
        seen.sort_by_key(|seen| seen.call.at);
        seen
    }
}

/// The steps of each attempt of a task. Each attempt has a result of its own.
fn script(rng: &mut Rng) -> Vec<Value> {
    let fails = rng.u32(..10) == 0;
    // Some take longer than a lease.
    let seconds = if rng.u32(..50) == 0 { 12.0 } else { rng.f64() };
    let attempt = |number: u32| {
        let mut steps = vec![
            json!({ "progress": ["nan", 3, "begun"] }),
            json!({ "log": HALF }),
            json!({ "sleep": seconds }),
        ];
        if number == 1 && fails {
            steps.push(json!({ "checkpoint": "so far" }));
            steps.push(json!({ "fail": "not at once" }));
        } else {
            steps.push(json!({ "succeed": format!("attempt {number}") }));
        }
        Value::Array(steps)
    };
    (1..=ATTEMPTS).map(attempt).collect()
}
