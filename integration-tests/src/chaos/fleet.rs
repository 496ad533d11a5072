//! Worker processes: the example `scripted`, started, killed, frozen and thawed.

use super::journal::Journal;
use crate::example::Process;
use crate::wait::until;
use anyhow::{Context, Result, bail, ensure};
use longhaul::TaskId;
use proofs::checkers::Run;
use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The time limit until a worker is ready, including the bootstrap from a large ledger.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// The settings of the workers.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) max_attempts: u32,
    pub(super) heartbeat: Duration,
    pub(super) keep_alive: Duration,
    pub(super) cancel_grace: Duration,
    pub(super) drain: Duration,
    /// The retention of the metadata topic, the ledger retention, and the self-fence time.
    pub(super) retention: Duration,
    pub(super) ledger_retention: Duration,
    pub(super) self_fence: Duration,
    /// They also work on the levels of the queue.
    pub(super) levels: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 4,
            max_attempts: 3,
            heartbeat: Duration::from_secs(1),
            keep_alive: Duration::from_secs(300),
            cancel_grace: Duration::ZERO,
            drain: Duration::from_secs(30),
            retention: Duration::from_secs(24 * 3600),
            ledger_retention: Duration::from_secs(3600),
            self_fence: Duration::from_secs(600),
            levels: false,
        }
    }
}

impl Settings {
    fn arguments(&self) -> Vec<String> {
        let ms = |duration: Duration| format!("{}ms", duration.as_millis());
        let pairs = [
            ("--concurrency", self.concurrency.to_string()),
            ("--max-attempts", self.max_attempts.to_string()),
            ("--heartbeat", ms(self.heartbeat)),
            ("--keep-alive", ms(self.keep_alive)),
            ("--cancel-grace", ms(self.cancel_grace)),
            ("--drain", ms(self.drain)),
            ("--retention", ms(self.retention)),
            ("--ledger-retention", ms(self.ledger_retention)),
            ("--self-fence", ms(self.self_fence)),
            ("--backoff-max", "5s".to_owned()),
        ];
        let pairs = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        pairs.chain(self.levels.then(|| "--levels".to_owned())).collect()
    }
}

/// A started process, dead or alive.
#[derive(Debug)]
struct Worker {
    name: String,
    folder: PathBuf,
    /// `None` once it is dead.
    process: Option<Process>,
    /// When it was started, by the wall clock.
    started_ms: u64,
}

/// All processes ever started, by index.
#[derive(Debug)]
pub(super) struct Fleet {
    program: PathBuf,
    folder: PathBuf,
    /// The default URL of the broker.
    service_url: String,
    arguments: Vec<String>,
    workers: Vec<Worker>,
}

impl Fleet {
    pub(super) fn new(
        program: &Path,
        folder: &Path,
        service_url: &str,
        task_topic: &str,
        settings: &Settings,
    ) -> Self {
        let mut arguments = vec!["--task-topic".to_owned(), task_topic.to_owned()];
        arguments.extend(settings.arguments());
        let (program, folder) = (program.to_owned(), folder.to_owned());
        let service_url = service_url.to_owned();
        Self { program, folder, service_url, arguments, workers: Vec::new() }
    }

    /// Starts one more worker and returns its index.
    pub(super) fn start(&mut self) -> Result<usize> {
        self.start_at(&self.service_url.clone())
    }

    /// Starts one more worker with this broker URL, and returns its index.
    pub(super) fn start_at(&mut self, service_url: &str) -> Result<usize> {
        let index = self.workers.len();
        let name = format!("w{index}");
        let folder = self.folder.clone();
        let log = File::create(folder.join(format!("{name}.log")))?;
        let started_ms = super::wall_ms();
        let mut command = Command::new(&self.program);
        command
            .args(["--service-url", service_url])
            .args(&self.arguments)
            .arg("--journal")
            .arg(folder.join(format!("{name}.journal")))
            .env("NO_COLOR", "1")
            .env("RUST_LOG", super::losses::LOG_FILTER)
            // The scenario has set up the topics, and a worker must start without the admin API.
            .env_remove("PULSAR_ADMIN_URL")
            .stdout(Stdio::null())
            .stderr(log);
        let process = Process::start(&mut command)?;
        self.workers.push(Worker { name, folder, process: Some(process), started_ms });
        Ok(index)
    }

    /// Starts this many workers and waits until all take tasks.
    pub(super) async fn start_ready(&mut self, count: usize) -> Result<Vec<usize>> {
        let started: Vec<usize> = (0..count).map(|_| self.start()).collect::<Result<_>>()?;
        for index in &started {
            self.ready(*index).await?;
        }
        Ok(started)
    }

    /// Waits until a worker takes tasks. Returns when that was, in µs of the wall clock.
    pub(super) async fn ready(&mut self, index: usize) -> Result<u64> {
        until(&format!("worker {index} ready"), READY_LIMIT, async || {
            let worker = self.worker_mut(index)?;
            let journal = worker.journal()?;
            if journal.ready_us.is_none() {
                ensure!(worker.is_alive()?, "the worker has ended:\n{}", worker.log()?);
            }
            Ok(journal.ready_us)
        })
        .await
    }

    /// Kills a worker by SIGKILL, and returns when.
    pub(super) async fn kill(&mut self, index: usize) -> Result<u64> {
        let worker = self.worker_mut(index)?;
        let Some(process) = worker.process.take() else { bail!("{} is dead", worker.name) };
        let at = super::wall_ms();
        process.kill().await?;
        Ok(at)
    }

    /// Freezes, thaws or terminates a worker, and returns when.
    pub(super) fn signal(&mut self, index: usize, signal: Signal) -> Result<u64> {
        let worker = self.worker_mut(index)?;
        let process = worker.process.as_ref().context("the worker is dead")?;
        let at = super::wall_ms();
        process.signal(signal)?;
        Ok(at)
    }

    /// Waits until a worker has ended by itself. Returns when.
    pub(super) async fn ended(&mut self, index: usize, limit: Duration) -> Result<u64> {
        let worker = self.worker_mut(index)?;
        let Some(process) = worker.process.take() else { bail!("{} is dead", worker.name) };
        let status = process.ended(limit).await;
        let at = super::wall_ms();
        let status = status.with_context(|| format!("worker {index}"))?;
        ensure!(status.success(), "worker {index}: {status}\n{}", self.log(index)?);
        Ok(at)
    }

    /// The indexes of the live workers.
    pub(super) fn alive(&self) -> Vec<usize> {
        let alive = |(index, worker): (usize, &Worker)| worker.process.is_some().then_some(index);
        self.workers.iter().enumerate().filter_map(alive).collect()
    }

    /// Attempts of one worker.
    pub(super) fn runs_of(&self, index: usize) -> Result<Vec<Run>> {
        Ok(self.worker(index)?.journal()?.runs)
    }

    /// The attempts of all workers ever started.
    pub(super) fn runs(&self) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        for worker in &self.workers {
            runs.extend(worker.journal()?.runs);
        }
        Ok(runs)
    }

    /// Waits until a worker runs this attempt. Returns the worker's index and the run.
    pub(super) async fn run_of(
        &self,
        task: TaskId,
        attempt: u32,
        limit: Duration,
    ) -> Result<(usize, Run)> {
        until(&format!("attempt {attempt} of {task}"), limit, async || {
            for index in 0..self.workers.len() {
                let mut runs = self.runs_of(index)?.into_iter();
                if let Some(run) = runs.find(|run| run.task == task && run.attempt == attempt) {
                    return Ok(Some((index, run)));
                }
            }
            Ok(None)
        })
        .await
    }

    /// The log of a worker.
    pub(super) fn log(&self, index: usize) -> Result<String> {
        self.worker(index)?.log()
    }

    /// The logs of all workers.
    pub(super) fn logs(&self) -> Result<String> {
        self.workers.iter().map(Worker::log).collect()
    }

    /// When a worker's process was started, by the wall clock.
    pub(super) fn started_ms(&self, index: usize) -> Result<u64> {
        Ok(self.worker(index)?.started_ms)
    }

    /// A worker's resident memory, in KiB.
    pub(super) fn resident_kib(&self, index: usize) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid(index)?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.context("no VmRSS")?.parse()?)
    }

    /// A worker's processor time, in ms.
    pub(super) fn processor_ms(&self, index: usize) -> Result<u64> {
        /// The kernel's unit in `/proc`, on every Linux.
        const MS_PER_TICK: u64 = 10;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid(index)?))?;
        // The fields after the name in brackets; user and system time are the 14th and 15th field
        // of the line.
        let (_, rest) = stat.rsplit_once(") ").context("no process name")?;
        let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        Ok(MS_PER_TICK * ticks.sum::<Result<u64, _>>()?)
    }

    fn pid(&self, index: usize) -> Result<u32> {
        let process = self.worker(index)?.process.as_ref().context("the worker is dead")?;
        process.id().context("the worker has ended")
    }

    fn worker(&self, index: usize) -> Result<&Worker> {
        self.workers.get(index).context("no such worker")
    }

    fn worker_mut(&mut self, index: usize) -> Result<&mut Worker> {
        self.workers.get_mut(index).context("no such worker")
    }
}

impl Worker {
    fn file(&self, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}", self.name))
    }

    fn journal(&self) -> Result<Journal> {
        match std::fs::read_to_string(self.file("journal")) {
            Ok(text) => Journal::read(&self.name, &text),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(Journal::default()),
            Err(cause) => Err(cause.into()),
        }
    }

    fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.file("log"))?)
    }

    fn is_alive(&mut self) -> Result<bool> {
        match &mut self.process {
            Some(process) => process.is_alive(),
            None => Ok(false),
        }
    }
}
