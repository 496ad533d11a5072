//! The examples of the library and the program `longhaul`, as processes: built or found built, started, read line by line, signalled,
//! killed.

use crate::sandbox::guard::Guard;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long building the programs may take.
const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// How long a program may take until it says what it ought to say, or ends.
const PATIENCE: Duration = Duration::from_secs(120);
/// After our own death, nobody wakes a frozen process or stops a running one.
const AFTERMATH: &str = r#"kill -KILL -- "-$1""#;
/// Names a folder of ready-made binaries of the examples.
const PROGRAMS_VARIABLE: &str = "LONGHAUL_EXAMPLES";

/// Builds an example, or finds it built, and puts a copy into `folder`: a later build must not change it under a running test.
///
/// # Errors
/// It cannot be built or copied.
pub async fn program(name: &str, folder: &Path) -> Result<PathBuf> {
    let built = match std::env::var_os(PROGRAMS_VARIABLE) {
        Some(programs) => PathBuf::from(programs).join(name),
        None => build().await?.join("examples").join(name),
    };
    copy_to(&built, folder)
}

/// The same with a program that is no example.
///
/// # Errors
/// It cannot be built or copied.
pub async fn binary(name: &str, folder: &Path) -> Result<PathBuf> {
    // Programs of another profile lie beside the folder of its examples.
    let built = match std::env::var_os(PROGRAMS_VARIABLE) {
        Some(programs) => PathBuf::from(programs).join("..").join(name),
        None => build().await?.join(name),
    };
    copy_to(&built, folder)
}

fn copy_to(built: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = folder.join(built.file_name().context("a program has a name")?);
    // By another process: whatever is started from here while we have the copy open for writing inherits that, and until it has begun
    // nobody can start the copy ("text file busy").
    let status = std::process::Command::new("cp").arg(built).arg(&copy).status()?;
    ensure!(status.success(), "cannot copy {}: {status}", built.display());
    Ok(copy)
}

/// Has cargo build all programs in the profile that we were built in. Returns the folder where they lie.
///
/// They are always built together and for the whole workspace. A build of one package has other features of its dependencies, and
/// would make the async runtime and everything above it a second time, beside those of the tests.
async fn build() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let profile = own
        .ancestors()
        .skip(1)
        .find(|folder| !folder.ends_with("deps"))
        .context("no folder of the build")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    forget_cargo(&mut command);
    command.args(["build", "--quiet", "--workspace", "--examples", "--bin", "longhaul"]);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).kill_on_drop(true);
    let target = profile.parent().context("no target folder")?;
    let building = command.env("CARGO_TARGET_DIR", target).status();
    let status = timeout(BUILD_LIMIT, building).await.context("building the programs")??;
    ensure!(status.success(), "cargo build of the programs: {status}");
    Ok(profile.to_owned())
}

/// Takes from a command's environment how cargo has described us: build scripts watch such variables, so that a cargo inside would
/// build much again, and the one outside after it.
pub fn forget_cargo(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
}

/// A process that we started and that does not outlive us. Neither do the processes that it has started itself, unless they have left
/// its group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Where it is typed to, if that is so.
    input: Option<ChildStdin>,
    /// Kills it should we die first.
    _guard: Guard,
    /// What it prints, if that is read.
    lines: Option<Lines<BufReader<ChildStdout>>>,
    /// What it has printed so far, for error messages.
    printed: Vec<String>,
}

impl Process {
    /// Starts a command in a process group of its own, because Ctrl-C is for us. To read its lines, `stdout` must be piped.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        Self::begin(command.stdin(Stdio::null()))
    }

    /// The same, to be typed to.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_typing(command: &mut Command) -> Result<Self> {
        Self::begin(command.stdin(Stdio::piped()))
    }

    fn begin(command: &mut Command) -> Result<Self> {
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        let mut child = command
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = child.id().with_context(|| format!("{name} ended at once"))?.to_string();
        let guard = Guard::arm(AFTERMATH, [pid])?;
        let lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        let input = child.stdin.take();
        Ok(Self { name, child, input, _guard: guard, lines, printed: Vec::new() })
    }

    /// Types a line.
    ///
    /// # Errors
    /// It does not listen.
    pub async fn type_line(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("it is not typed to")?;
        input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(input.flush().await?)
    }

    /// Its number; none once it has ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for a line with these words.
    ///
    /// # Errors
    /// It ends, or is silent for long, without one.
    pub async fn line_with(&mut self, words: &str) -> Result<String> {
        while let Some(line) = self.line().await? {
            if line.contains(words) {
                return Ok(line);
            }
        }
        bail!("{} ended without `{words}`, after {:#?}", self.name, self.printed)
    }

    /// The next line; none when it has ended.
    ///
    /// # Errors
    /// It is silent for long.
    pub async fn line(&mut self) -> Result<Option<String>> {
        let lines = self.lines.as_mut().context("its lines are not read")?;
        let line = timeout(PATIENCE, lines.next_line()).await;
        let line = line.with_context(|| {
            format!("{} says nothing more, after {:#?}", self.name, self.printed)
        })??;
        self.printed.extend(line.clone());
        Ok(line)
    }

    /// Reads on until it has ended, well; returns all that it has printed.
    ///
    /// # Errors
    /// It does not end, or ends with an error.
    pub async fn finished(mut self) -> Result<Vec<String>> {
        while self.line().await?.is_some() {}
        let status = self.child.wait().await?;
        ensure!(status.success(), "{}: {status}, after {:#?}", self.name, self.printed);
        Ok(std::mem::take(&mut self.printed))
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// It does not end within `limit`.
    pub async fn ended(mut self, limit: Duration) -> Result<ExitStatus> {
        let status = timeout(limit, self.child.wait()).await;
        Ok(status.with_context(|| format!("{} does not end", self.name))??)
    }

    /// Kills it by SIGKILL.
    ///
    /// # Errors
    /// It cannot be killed.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Freezes, thaws or terminates it.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.with_context(|| format!("{} has ended", self.name))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// The system does not say.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // While it is not waited for, its number belongs to nobody else. That all have ended meanwhile is no failure.
        if let Some(group) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a command that a shell had started only the shell was killed, and the command went on.
    #[tokio::test]
    async fn what_a_process_has_started_ends_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo started; wait"]).stdout(Stdio::piped());
        let mut process = Process::start(&mut command).unwrap();
        process.line_with("started").await.unwrap();
        let mut lines = process.lines.take().unwrap();
        drop(process);
        // The other end of the pipe is closed when nobody is left who could write to it.
        let last = timeout(PATIENCE, lines.next_line()).await;
        assert!(matches!(last, Ok(Ok(None))), "{last:?}");
    }
}
