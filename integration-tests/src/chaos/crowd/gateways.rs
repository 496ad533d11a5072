//! Gateway processes, killed and restarted.

use crate::example::{self, Process};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The program of a gateway.
const PROGRAM: &str = "longhaul";

/// The number of gateways.
pub(super) const COUNT: usize = 2;

/// How long a killed gateway is away.
const AWAY: Duration = Duration::from_millis(300);

/// The time limit until a gateway listens, and the most restarts if it ends before.
const START_LIMIT: Duration = Duration::from_secs(60);
const STARTS_MAX: usize = 20;

/// The current or last addresses of the gateways: callers do not know that one is dead.
#[derive(Clone, Debug)]
pub(super) struct Urls(Arc<RwLock<[String; COUNT]>>);

impl Urls {
    /// The URL of one gateway.
    pub(super) fn of(&self, number: usize) -> String {
        let urls = self.0.read().unwrap_or_else(PoisonError::into_inner);
        urls.get(number % COUNT).cloned().unwrap_or_default()
    }

    fn set(&self, number: usize, url: String) {
        let mut urls = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = urls.get_mut(number) {
            *old = url;
        }
    }
}

/// See the module's documentation. Dropping them kills them.
#[derive(Debug)]
pub(super) struct Gateways {
    program: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
    running: [Option<Process>; COUNT],
    urls: Urls,
    kills: watch::Sender<usize>,
    /// The number of starts; each has its own log.
    starts: usize,
    /// The number of failed starts.
    pub(super) failed_starts: usize,
}

impl Gateways {
    /// Starts them in front of this Pulsar, for the queues of a namespace.
    pub(super) async fn start(
        folder: &Path,
        (service_url, admin_url): (&str, &str),
        namespace: &str,
    ) -> Result<Self> {
        let pairs = [
            ("--engine", "pulsar"),
            ("--service-url", service_url),
            ("--admin-url", admin_url),
            ("--namespace", namespace),
            ("--http", "127.0.0.1:0"),
            ("--output", "jsonl"),
        ];
        let pairs = pairs.into_iter().flat_map(|(name, value)| [name, value]);
        let mut gateways = Self {
            program: example::binary(PROGRAM, folder).await?,
            folder: folder.to_owned(),
            arguments: ["server", "start"].into_iter().chain(pairs).map(str::to_owned).collect(),
            running: [None, None],
            urls: Urls(Arc::default()),
            kills: watch::Sender::new(0),
            starts: 0,
            failed_starts: 0,
        };
        for number in 0..COUNT {
            gateways.begin(number).await?;
        }
        Ok(gateways)
    }

    pub(super) fn urls(&self) -> Urls {
        self.urls.clone()
    }

    /// The number of kills.
    pub(super) fn killed(&self) -> watch::Receiver<usize> {
        self.kills.subscribe()
    }

    /// Kills the gateways in turn by SIGKILL, and restarts each on another port, until it is over.
    /// Returns the number of kills.
    pub(super) async fn kill_in_turn(
        &mut self,
        every: Duration,
        mut over: watch::Receiver<bool>,
    ) -> Result<usize> {
        let mut kills = 0;
        loop {
            if timeout(every, over.wait_for(|over| *over)).await.is_ok() {
                return Ok(kills);
            }
            let number = kills % COUNT;
            if let Some(process) = self.running.get_mut(number).and_then(Option::take) {
                process.kill().await?;
                kills += 1;
                self.kills.send_replace(kills);
            }
            sleep(AWAY).await;
            self.begin(number).await?;
        }
    }

    /// Starts a gateway. If it ends at once, because the broker is away, it is started again, as
    /// its operator would do.
    async fn begin(&mut self, number: usize) -> Result<()> {
        let mut cause = None;
        for _ in 0..STARTS_MAX {
            match self.try_begin().await {
                Ok((process, url)) => {
                    if let Some(slot) = self.running.get_mut(number) {
                        *slot = Some(process);
                    }
                    self.urls.set(number, url);
                    return Ok(());
                }
                Err(error) => cause = Some(error),
            }
            self.failed_starts += 1;
            sleep(AWAY).await;
        }
        Err(cause.context("nothing was tried")?.context(format!("gateway {number}")))
    }

    async fn try_begin(&mut self) -> Result<(Process, String)> {
        let name = format!("gateway-{}", self.starts);
        self.starts += 1;
        let log = File::create(self.folder.join(format!("{name}.log")))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env("LONGHAUL_CONFIG", self.folder.join("no-config.toml"))
            .env("NO_COLOR", "1")
            .env("RUST_LOG", super::super::losses::LOG_FILTER)
            .stdout(Stdio::piped())
            .stderr(log);
        let mut process = Process::start(&mut command)?;
        let told = timeout(START_LIMIT, process.line_with("\"http\"")).await;
        let told: Value = serde_json::from_str(&told.context("it does not listen")??)?;
        let url = told.get("http").and_then(Value::as_str).context("no address")?;
        Ok((process, url.to_owned()))
    }

    /// The logs of all gateways.
    pub(super) fn logs(&self) -> Result<String> {
        let log = |start| self.folder.join(format!("gateway-{start}.log"));
        (0..self.starts).map(|start| Ok(std::fs::read_to_string(log(start))?)).collect()
    }
}
