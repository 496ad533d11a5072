//! The worker under test, as a process group: its child processes get the same signals.

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The output lines shown in a finding.
const LINES: usize = 25;

/// The options of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) name: &'static str,
    pub(crate) concurrency: u32,
    /// In s.
    pub(crate) lease_time: u32,
    /// The drain time of running tasks, in s; `None` for no limit.
    pub(crate) drain: Option<u32>,
}

impl Default for Orders {
    fn default() -> Self {
        Self { name: "candidate", concurrency: 1, lease_time: 5, drain: Some(2) }
    }
}

#[derive(Debug)]
pub(crate) struct Candidate {
    process: Child,
    group: Pid,
}

impl Candidate {
    /// Starts a worker with these variables, which writes to this file.
    ///
    /// # Errors
    /// When the program does not exist.
    pub(super) fn start(
        words: &[OsString],
        variables: [(&str, &str); 3],
        output: &Path,
        orders: &Orders,
    ) -> anyhow::Result<Self> {
        let (program, arguments) = words.split_first().context("no program is given")?;
        let mut command = Command::new(program);
        command.args(arguments).envs(variables);
        let Orders { name, concurrency, lease_time, drain } = orders;
        command.env("LONGHAUL_WORKER", name);
        command.env("LONGHAUL_CONCURRENCY", concurrency.to_string());
        command.env("LONGHAUL_LEASE_TIME", lease_time.to_string());
        let drain = drain.map_or_else(|| "inf".to_owned(), |limit| limit.to_string());
        command.env("LONGHAUL_DRAIN", drain);
        let output = std::fs::File::options().create(true).append(true).open(output)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        command.process_group(0).kill_on_drop(true);
        let process = command.spawn();
        let process =
            process.with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
        let id = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { process, group: id.context("the worker ended as soon as it was started")? })
    }

    /// # Errors
    /// When the process is gone.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process_group(self.group, signal).context("the worker is no longer running")
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub(crate) async fn ended(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        match timeout(limit, self.process.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("the worker did not end within {limit:?}"),
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // It may have ended, with all its processes.
        kill_process_group(self.group, Signal::KILL).ok();
    }
}

/// The last lines of the output of a check's workers.
pub(super) fn last_lines(output: &PathBuf) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
}
