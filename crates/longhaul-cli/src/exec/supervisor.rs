//! The supervisor of one program: a separate process between a worker and the program that it runs
//! for a task.
//!
//! It starts the program in a process group and reports its end to the worker. It kills the whole
//! group on the worker's request, when the program has ended and left processes behind, and when
//! the worker is gone, of which the kernel notifies it however the worker ended. Only a parent
//! process learns of these events without a race, so each program has its own supervisor.
//!
//! On Linux it also adopts processes that left the group (as their child subreaper), and kills
//! those, too.

use super::family::Family;
use super::link::{ProgramPipes, Spec, SupervisorMessage, TERMINATE, receive_ends};
use anyhow::Context;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

/// The wait after SIGKILL: a process that stays in the kernel for longer is left behind.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// The prefix of the worker's own variables, including secrets: programs get only the ones set for
/// them.
const OWN_PREFIX: &str = "LONGHAUL_";

/// Runs the supervisor started by a worker. No file may have been opened before.
pub(crate) fn main() -> ExitCode {
    match supervise() {
        Ok(()) => ExitCode::SUCCESS,
        // A worker notices the exit. A person who runs the command gets an explanation.
        Err(error) => {
            drop(writeln!(std::io::stderr(), "longhaul: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn supervise() -> anyhow::Result<()> {
    // A session of its own: Ctrl-C at the worker's terminal does not reach it, programs cannot ask
    // for a password there, and processes left by a killed supervisor can be found.
    rustix::process::setsid().context("only workers may start this command")?;
    let stdin = rustix::stdio::stdin();
    let (ends, length) = receive_ends(stdin).context("the supervisor has no program")?;
    let mut control = StdUnixStream::from(fcntl_dupfd_cloexec(stdin, 3)?);
    let mut spec = vec![0; usize::try_from(length)?];
    control.read_exact(&mut spec)?;
    let spec: Spec = serde_json::from_slice(&spec)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        control.set_nonblocking(true)?;
        let mut control = UnixStream::from_std(control)?;
        // Register before any start: earlier signals would be lost.
        let mut children = signal(SignalKind::child())?;
        // Ctrl-C and a service stop are for the worker, which then decides.
        let _ignored =
            [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        let grace = Duration::from_millis(spec.grace_ms);
        let checkpoint = spec.checkpoint.as_ref().map(keep_checkpoint).transpose();
        let checkpoint = match checkpoint {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                let said = SupervisorMessage::NoRoom { cause: format!("{error:#}") };
                return say(&mut control, &said).await;
            }
        };
        match SupervisedProgram::start(&spec, checkpoint, ends) {
            Err(error) => {
                let said = SupervisorMessage::Refused { cause: format!("{error:#}") };
                say(&mut control, &said).await
            }
            Ok(mut program) => {
                let pid = program.family.leader();
                say(&mut control, &SupervisorMessage::Started { pid }).await.ok();
                let ended = program.watch(&mut control, &mut children, grace).await;
                say(&mut control, &ended).await
            }
        }
    })
}

async fn say(control: &mut UnixStream, said: &SupervisorMessage) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    Ok(control.write_all(&line).await?)
}

/// The running program.
struct SupervisedProgram {
    family: Family,
    /// Removed on drop.
    _checkpoint: Option<NamedTempFile>,
}

/// The stage of the program's termination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TerminationStage {
    Running,
    /// SIGTERM is sent.
    Terminating,
    /// SIGKILL is sent.
    Killing,
}

impl SupervisedProgram {
    fn start(
        spec: &Spec,
        checkpoint: Option<NamedTempFile>,
        ends: ProgramPipes,
    ) -> anyhow::Result<Self> {
        let (name, arguments) = spec.words.split_first().context("no program is given")?;
        if let Some(increment) = spec.nice {
            rustix::process::nice(increment)
                .with_context(|| format!("cannot set the niceness {increment}"))?;
        }
        Family::adopt_strays();
        let mut command = Command::new(name);
        command.args(arguments).process_group(0);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with(OWN_PREFIX) {
                command.env_remove(variable);
            }
        }
        command.envs(spec.environment.iter().map(|(name, value)| (name, value)));
        let ProgramPipes { reports, stdin, stdout, stderr } = ends;
        fcntl_setfd(&reports, FdFlags::empty()).context("cannot pass the descriptor of reports")?;
        command.env("LONGHAUL_FD", reports.as_raw_fd().to_string());
        if let Some(file) = &checkpoint {
            command.env("LONGHAUL_CHECKPOINT_FILE", file.path());
        }
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let child = command.spawn().with_context(|| format!("cannot start `{name}`"))?;
        // With the command dropped, only the program has these ends.
        Ok(Self { family: Family::of(&child)?, _checkpoint: checkpoint })
    }

    /// Waits until the program and all its descendants have ended.
    async fn watch(
        &mut self,
        control: &mut UnixStream,
        children: &mut tokio::signal::unix::Signal,
        grace: Duration,
    ) -> SupervisorMessage {
        let mut stage = TerminationStage::Running;
        let mut listening = true;
        let timer = tokio::time::sleep(Duration::MAX);
        tokio::pin!(timer);
        loop {
            // Processes that the program left behind get no grace of their own, but the grace of a
            // SIGTERM continues without the leader.
            let in_grace = stage == TerminationStage::Terminating && Family::ADOPTS;
            if stage != TerminationStage::Killing && !in_grace && self.family.leader_has_ended() {
                stage = TerminationStage::Killing;
                timer.set(tokio::time::sleep(KILL_WAIT));
            }
            if stage == TerminationStage::Killing {
                // Signal again each time: there may be new strays.
                self.family.signal(Signal::KILL);
            }
            self.family.reap();
            if self.family.is_gone() {
                return self.family.ended(false);
            }
            tokio::select! {
                _ = children.recv() => {}
                byte = control.read_u8(), if listening => match byte {
                    Ok(TERMINATE) if stage == TerminationStage::Running => {
                        self.family.signal(Signal::TERM);
                        stage = TerminationStage::Terminating;
                        timer.set(tokio::time::sleep(grace));
                    }
                    Ok(_) => {}
                    Err(_) => {
                        listening = false;
                        stage = TerminationStage::Killing;
                        timer.set(tokio::time::sleep(KILL_WAIT));
                    }
                },
                () = &mut timer => {
                    if stage == TerminationStage::Killing {
                        return self.family.ended(true);
                    }
                    stage = TerminationStage::Killing;
                    timer.set(tokio::time::sleep(KILL_WAIT));
                }
            }
        }
    }
}

/// An empty file for a checkpoint, which is removed on drop.
pub(super) fn checkpoint_file() -> anyhow::Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix("longhaul-checkpoint-").tempfile();
    file.with_context(|| {
        format!("cannot make a file for a checkpoint in {}", std::env::temp_dir().display())
    })
}

/// Stores the last checkpoint in a file that only this user can read.
fn keep_checkpoint(base64: &String) -> anyhow::Result<NamedTempFile> {
    let bytes = BASE64_STANDARD.decode(base64)?;
    let mut file = checkpoint_file()?;
    file.write_all(&bytes).context("cannot write the last checkpoint")?;
    Ok(file)
}
