//! The process of a server on this machine, which ends with ours, and its folder.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal as Number, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use super::broker::{Server, Signal};
use super::guard::Guard;

/// Runs after our death: kills the process and, once it no longer writes, removes its folder.
const AFTERMATH: &str = r#"
kill -KILL "$1"
rounds=0
while kill -0 "$1" && [ $rounds -lt 50 ]; do sleep 0.1; rounds=$((rounds + 1)); done
rm -rf -- "$2""#;

/// A server's folder, and its process while it runs.
#[derive(Debug)]
pub(super) struct LocalServer {
    /// The program and its arguments.
    command: Vec<OsString>,
    /// The error when the program cannot be started.
    hint: String,
    /// Declared before the folder, so that the process ends before its folder is removed.
    process: Option<ServerProcess>,
    /// Data, configuration, keys and log. They survive a restart.
    folder: TempDir,
}

impl LocalServer {
    /// A server that does not run yet. Paths in the command are relative to the folder.
    pub(super) fn new(command: Vec<OsString>, hint: String, folder: TempDir) -> Self {
        Self { command, hint, process: None, folder }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }
}

impl Server for LocalServer {
    fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let (program, arguments) = self.command.split_first().context("no program")?;
        let mut command = Command::new(program);
        // It inherits the environment, and the embedded broker reads settings from there, too.
        command.args(arguments).env("RUST_BACKTRACE", "0").stdout(log.try_clone()?).stderr(log);
        let process = ServerProcess::start(&mut command, self.folder.path());
        self.process = Some(process.with_context(|| self.hint.clone())?);
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.as_ref().context("the server does not run")?.signal(signal)
    }

    fn is_running(&mut self) -> Result<bool> {
        if let Some(running) = &mut self.process
            && running.child.try_wait()?.is_some()
        {
            self.process = None;
        }
        Ok(self.process.is_some())
    }

    fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        read_tail(&log).unwrap_or_else(|cause| format!("{}: {cause}", log.display()))
    }

    fn folder(&self) -> Option<&Path> {
        Some(self.folder.path())
    }
}

/// A process. Dropping it kills it.
#[derive(Debug)]
struct ServerProcess {
    child: Child,
    _guard: Guard,
}

impl ServerProcess {
    /// Starts a command in a folder that is removed if we die.
    fn start(command: &mut Command, folder: &Path) -> Result<Self> {
        let mut child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            // Ctrl-C is for us: we stop the broker ourselves.
            .process_group(0)
            .spawn()?;
        let pid = child.id().to_string();
        match Guard::arm(AFTERMATH, [pid.as_ref(), folder.as_os_str()]) {
            Ok(guard) => Ok(Self { child, _guard: guard }),
            Err(cause) => {
                child.kill()?;
                child.wait()?;
                Err(cause)
            }
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let number = match signal {
            Signal::Terminate => Number::TERM,
            Signal::Kill => Number::KILL,
            Signal::Pause => Number::STOP,
            Signal::Resume => Number::CONT,
        };
        let pid = Pid::from_child(&self.child);
        kill_process(pid, number).context("the server has ended")?;
        if signal == Signal::Pause {
            // The signal reaches the threads one by one: until then a fast broker still answers.
            let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), stopped).context("the server does not stop")?;
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail only if the process is already gone.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Last few kilobytes of a log.
fn read_tail(path: &Path) -> std::io::Result<String> {
    const TAIL_BYTES: u64 = 8 * 1024;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
