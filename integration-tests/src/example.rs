//! Runs the examples of the library and the program `longhaul` as processes: builds or finds them,
//! starts them, reads their lines, sends signals and kills them.

use crate::sandbox::guard::Guard;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long building the programs may take.
const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// The time that a program has to print an expected line, or to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// A command that kills the process group after our own death: nothing else would wake a frozen
/// process or stop a running one.
const AFTERMATH: &str = r#"kill -KILL -- "-$1""#;
/// The environment variable with the folder of ready-made binaries of the examples.
const PROGRAMS_VARIABLE: &str = "LONGHAUL_EXAMPLES";

/// Builds or finds an example and links it into `folder`, so that a later build does not change it
/// under a running test.
///
/// # Errors
/// The example cannot be built or copied.
pub async fn program(name: &str, folder: &Path) -> Result<PathBuf> {
    let built = match std::env::var_os(PROGRAMS_VARIABLE) {
        Some(programs) => PathBuf::from(programs).join(name),
        None => build().await?.join("examples").join(name),
    };
    link_into(&built, folder)
}

/// As `program`, for a program that is not an example.
///
/// # Errors
/// The program cannot be built or copied.
pub async fn binary(name: &str, folder: &Path) -> Result<PathBuf> {
    // Programs of another profile lie beside the folder of its examples.
    let built = match std::env::var_os(PROGRAMS_VARIABLE) {
        Some(programs) => PathBuf::from(programs).join("..").join(name),
        None => build().await?.join(name),
    };
    link_into(&built, folder)
}

/// Puts a second name of the program into `folder`: a later build writes a new file and leaves this
/// one as it is. Many tests run at once, so copies would take gigabytes; they are made only where
/// the folder lies on another file system.
fn link_into(built: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = folder.join(built.file_name().context("a program has a name")?);
    match std::fs::hard_link(built, &copy) {
        Ok(()) => return Ok(copy),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(copy),
        Err(_) => {}
    }
    // Another process makes the copy. While we had the copy open for writing, any process started
    // from here would inherit the open file until it has begun to run, and starting the copy would
    // fail with "text file busy".
    let status = std::process::Command::new("cp").arg(built).arg(&copy).status()?;
    ensure!(status.success(), "cannot copy {}: {status}", built.display());
    Ok(copy)
}

/// Builds all programs with cargo in the profile of this test. Returns the folder of the programs.
///
/// They are always built together and for the whole workspace: a build of one package selects other
/// features of its dependencies, and would compile the async runtime and everything above it again,
/// beside those of the tests.
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

/// Removes the variables that cargo has set from a command's environment. Build scripts watch such
/// variables: an inner cargo would rebuild much, and the outer one again after it.
pub fn forget_cargo(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
}

/// A process that ends with us, together with the processes that it has started, unless they have
/// left its process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// The input for `type_line`, if the process has one.
    input: Option<ChildStdin>,
    /// Kills the process if we die first.
    _guard: Guard,
    /// The lines that the process prints, if they are read.
    lines: Option<Lines<BufReader<ChildStdout>>>,
    /// The lines printed so far, for error messages.
    printed: Vec<String>,
}

impl Process {
    /// Starts a command in a process group of its own, because Ctrl-C is for us. `stdout` must be
    /// piped if its lines are to be read.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        Self::begin(command.stdin(Stdio::null()))
    }

    /// As `start`, with an input for `type_line`.
    ///
    /// # Errors
    /// The command cannot be started.
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
    /// The process has no input, or does not read it.
    pub async fn type_line(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("it is not typed to")?;
        input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(input.flush().await?)
    }

    /// The process id; `None` once the process has ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for a line that contains `words`.
    ///
    /// # Errors
    /// The process ends, or prints nothing for 120 s, without such a line.
    pub async fn line_with(&mut self, words: &str) -> Result<String> {
        while let Some(line) = self.line().await? {
            if line.contains(words) {
                return Ok(line);
            }
        }
        bail!("{} ended without `{words}`, after {:#?}", self.name, self.printed)
    }

    /// The next line; `None` when the process has ended.
    ///
    /// # Errors
    /// The process prints nothing for 120 s.
    pub async fn line(&mut self) -> Result<Option<String>> {
        let lines = self.lines.as_mut().context("its lines are not read")?;
        let line = timeout(PATIENCE, lines.next_line()).await;
        let line = line.with_context(|| {
            format!("{} says nothing more, after {:#?}", self.name, self.printed)
        })??;
        self.printed.extend(line.clone());
        Ok(line)
    }

    /// Reads until the process has ended with success; returns all that it has printed.
    ///
    /// # Errors
    /// The process does not end, or ends with an error.
    pub async fn finished(mut self) -> Result<Vec<String>> {
        while self.line().await?.is_some() {}
        let status = self.child.wait().await?;
        ensure!(status.success(), "{}: {status}, after {:#?}", self.name, self.printed);
        Ok(std::mem::take(&mut self.printed))
    }

    /// Waits until the process has ended by itself.
    ///
    /// # Errors
    /// The process does not end within `limit`.
    pub async fn ended(mut self, limit: Duration) -> Result<ExitStatus> {
        let status = timeout(limit, self.child.wait()).await;
        Ok(status.with_context(|| format!("{} does not end", self.name))??)
    }

    /// Kills the process with SIGKILL.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Freezes, thaws or terminates the process.
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.with_context(|| format!("{} has ended", self.name))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Whether the process still runs.
    ///
    /// # Errors
    /// The system does not report its status.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Until the process is waited for, its id is not reused. It is no failure when the whole
        // group has ended meanwhile.
        if let Some(group) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that was started by a shell ends with the shell.
    #[tokio::test]
    async fn what_a_process_has_started_ends_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo started; wait"]).stdout(Stdio::piped());
        let mut process = Process::start(&mut command).unwrap();
        process.line_with("started").await.unwrap();
        let mut lines = process.lines.take().unwrap();
        drop(process);
        // The other end of the pipe is closed when no process can write to it any more.
        let last = timeout(PATIENCE, lines.next_line()).await;
        assert!(matches!(last, Ok(Ok(None))), "{last:?}");
    }
}
