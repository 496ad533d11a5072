//! A running program of an attempt, on the worker's side: its streams, its supervisor, its end.

use super::family;
use super::lines::{LineSplitter, OutputTail, printable};
use super::link::{ProgramPipes, Spec, SupervisorMessage, TERMINATE, send_ends};
use super::reports::{ProgramReport, REPORT_BYTES_MAX};
use anyhow::Context;
use bytes::Bytes;
use futures::StreamExt;
use longhaul::TaskContext;
use rustix::fs::OFlags;
use rustix::process::Pid;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;

/// The first argument of a supervisor process.
pub(crate) const SUPERVISE: &str = "supervise-program";

/// The maximum length kept of a stderr line; the library cuts log lines further.
const STDERR_LINE_BYTES_MAX: usize = 1_000;

/// The most invalid reports logged per attempt: a program that uses the descriptor for something
/// else may write a lot.
const COMPLAINTS_MAX: usize = 10;

/// The wait after the program's end for a process that could not be killed and still has its
/// stdout.
const STREAMS_WAIT: Duration = Duration::from_secs(5);

/// The library's limit.
const CHECKPOINT_BYTES_MAX: u64 = 64 * 1024;

/// A started program, with the worker's ends of its pipes.
#[derive(Debug)]
pub(crate) struct RunningProgram {
    /// The session of its supervisor and all its processes.
    session: Option<Pid>,
    control: UnixStream,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    reports: pipe::Receiver,
}

/// The output and end of a program.
#[derive(Debug)]
pub(crate) struct Heard {
    /// As reported by its supervisor; `None` if the supervisor was killed.
    pub(crate) end: Option<SupervisorMessage>,
    /// All of stdout; `None` if it is too large, or could not be read to its end.
    pub(crate) output: Option<Bytes>,
    /// Stdout exceeded the limit.
    pub(crate) too_large: bool,
    /// The last lines of stderr.
    pub(crate) last_lines: String,
    pub(crate) retry_after: Option<Duration>,
    /// The program was asked to end.
    pub(crate) was_stopped: bool,
}

impl RunningProgram {
    /// Starts a program through a supervisor. Dropping this kills the program and all its
    /// processes.
    ///
    /// # Errors
    /// When the system lacks resources.
    pub(crate) async fn start(spec: &Spec) -> anyhow::Result<Self> {
        let (control, theirs) = UnixStream::pair().context("cannot make a socket")?;
        let ((stdin, stdin_writer), (stdout_reader, stdout)) = (std::io::pipe()?, std::io::pipe()?);
        let ((stderr_reader, stderr), (reports_reader, reports)) =
            (std::io::pipe()?, std::io::pipe()?);
        let ends = ProgramPipes {
            reports: reports.into(),
            stdin: stdin.into(),
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let theirs = theirs.into_std()?;
        theirs.set_nonblocking(false)?;
        let mut supervisor = Command::new(own_program()?);
        supervisor
            .arg0("longhaul")
            .arg(SUPERVISE)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(false);
        // The supervisor ends by itself, and the runtime reaps it.
        let session = supervisor.spawn().context("cannot start a supervisor")?.id();
        drop(supervisor);
        let mut started = Self {
            session: session.and_then(|id| Pid::from_raw(id.cast_signed())),
            control,
            stdin: pipe::Sender::from_owned_fd(stdin_writer.into())?,
            stdout: pipe::Receiver::from_owned_fd(stdout_reader.into())?,
            stderr: pipe::Receiver::from_owned_fd(stderr_reader.into())?,
            reports: pipe::Receiver::from_owned_fd(reports_reader.into())?,
        };
        let bytes = serde_json::to_vec(spec)?;
        send_ends(&started.control, &ends, u32::try_from(bytes.len())?)?;
        drop(ends);
        started.control.write_all(&bytes).await?;
        Ok(started)
    }

    /// Runs the program to its end. It is asked to end when the attempt is cancelled, or on `stop`.
    pub(crate) async fn run(
        self,
        payload: Bytes,
        output_max: usize,
        context: &TaskContext,
        stop: &CancellationToken,
    ) -> Heard {
        let Self { session, control, stdin, stdout, stderr, reports } = self;
        let (too_large, ended) = (CancellationToken::new(), CancellationToken::new());
        let told = ProgramOutput { context, state: Mutex::default() };
        let streams = async {
            let all = async {
                let ((), output, (), ()) = tokio::join!(
                    feed(stdin, payload),
                    take_output(stdout, output_max, &too_large),
                    told.read_stderr(stderr),
                    told.read_reports(reports),
                );
                output
            };
            let given_up = async {
                ended.cancelled().await;
                tokio::time::sleep(STREAMS_WAIT).await;
            };
            tokio::select! {
                output = all => output,
                () = given_up => None,
            }
        };
        let control = async {
            let end = follow(control, context, stop, &too_large).await;
            if let ((None, _), Some(session)) = (&end, session) {
                // Without a supervisor, only this process can kill it.
                family::end_session(session);
            }
            ended.cancel();
            end
        };
        let (output, (end, was_stopped)) = tokio::join!(streams, control);
        let state = told.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        Heard {
            end,
            output,
            too_large: too_large.is_cancelled(),
            last_lines: state.tail.text(),
            retry_after: state.retry_after,
            was_stopped,
        }
    }
}

/// The file of this program, even if it was replaced meanwhile: a supervisor always has its
/// worker's version.
fn own_program() -> anyhow::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().context("cannot find the file of this program")
}

/// Writes the payload to the program, which need not read it.
async fn feed(mut stdin: pipe::Sender, payload: Bytes) {
    stdin.write_all(&payload).await.ok();
}

async fn take_output(
    stdout: pipe::Receiver,
    bytes_max: usize,
    too_large: &CancellationToken,
) -> Option<Bytes> {
    let mut output = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    stdout.take(limit).read_to_end(&mut output).await.ok()?;
    if output.len() > bytes_max {
        too_large.cancel();
        return None;
    }
    Some(output.into())
}

/// Follows the supervisor until the program ends. Also returns whether the program was asked to
/// end.
async fn follow(
    control: UnixStream,
    context: &TaskContext,
    stop: &CancellationToken,
    too_large: &CancellationToken,
) -> (Option<SupervisorMessage>, bool) {
    let (reader, mut writer) = control.into_split();
    let mut lines = BufReader::new(reader).lines();
    let (mut was_stopped, mut was_killed) = (false, false);
    loop {
        tokio::select! {
            line = lines.next_line() => {
                let said = line.ok().flatten().and_then(|line| serde_json::from_str(&line).ok());
                match said {
                    Some(SupervisorMessage::Started { pid }) => {
                        tracing::debug!(task = %context.task_id(), pid, "a program has started");
                    }
                    Some(end) => return (Some(end), was_stopped),
                    None => return (None, was_stopped),
                }
            }
            () = context.cancelled(), if !was_stopped => was_stopped = true,
            () = stop.cancelled(), if !was_stopped => was_stopped = true,
            () = too_large.cancelled(), if !was_killed => {
                was_killed = true;
                writer.shutdown().await.ok();
                continue;
            }
        }
        if was_stopped && !was_killed {
            writer.write_all(&[TERMINATE]).await.ok();
        }
    }
}

/// Passes a program's reports on to the task's watchers.
struct ProgramOutput<'a> {
    context: &'a TaskContext,
    state: Mutex<ProgramOutputState>,
}

#[derive(Debug, Default)]
struct ProgramOutputState {
    tail: OutputTail,
    retry_after: Option<Duration>,
    complaints: usize,
}

impl ProgramOutput<'_> {
    fn state(&self) -> MutexGuard<'_, ProgramOutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_stderr(&self, stderr: pipe::Receiver) {
        let splitter = LineSplitter::with_returns(STDERR_LINE_BYTES_MAX);
        let mut lines = FramedRead::new(stderr, splitter);
        while let Some(Ok(line)) = lines.next().await {
            let text = printable(&line.text);
            self.context.log(text.clone());
            self.state().tail.push(text);
        }
    }

    async fn read_reports(&self, reports: pipe::Receiver) {
        let mut lines = FramedRead::new(reports, LineSplitter::new(REPORT_BYTES_MAX));
        while let Some(Ok(line)) = lines.next().await {
            let done = match ProgramReport::read(&line) {
                Ok(report) => self.obey(report).await,
                Err(cause) => Err(cause),
            };
            if let Err(cause) = done {
                self.complain(&line.text, &cause);
            }
        }
    }

    async fn obey(&self, report: ProgramReport) -> Result<(), String> {
        match report {
            ProgramReport::Progress { done, total, message } => {
                self.context.progress(done, total, message)
            }
            ProgramReport::Log(text) => self.context.log(text),
            ProgramReport::RetryAfter(pause) => self.state().retry_after = Some(pause),
            ProgramReport::Checkpoint(bytes) => self.keep(bytes).await?,
            ProgramReport::CheckpointFile(path) => {
                let file = path.clone();
                let read = tokio::task::spawn_blocking(move || read_checkpoint(&file)).await;
                let bytes = read.unwrap_or_else(|error| Err(error.into()));
                let bytes = bytes.map_err(|error| format!("{}: {error:#}", path.display()))?;
                self.keep(bytes).await?;
            }
        }
        Ok(())
    }

    async fn keep(&self, bytes: Bytes) -> Result<(), String> {
        self.context.checkpoint(bytes).await.map_err(|error| error.to_string())
    }

    /// Reports an invalid report in the task's log, for the program's author and the task's
    /// watchers; the task is not affected.
    fn complain(&self, line: &str, cause: &str) {
        let count = {
            let mut state = self.state();
            state.complaints += 1;
            state.complaints
        };
        if count > COMPLAINTS_MAX {
            return;
        }
        let line: String = printable(line).chars().take(80).collect();
        let task = self.context.task_id();
        tracing::warn!(%task, line, cause, "report of the program ignored");
        self.context.log(format!("report ignored: {cause}: {line}"));
        if count == COMPLAINTS_MAX {
            self.context.log("further ignored reports are not logged");
        }
    }
}

/// Refuses pipes and devices, which could block the reader for ever.
fn read_checkpoint(path: &Path) -> anyhow::Result<Bytes> {
    use std::io::Read;
    let flags = i32::try_from(OFlags::NONBLOCK.bits())?;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    anyhow::ensure!(file.metadata()?.is_file(), "it is not a file");
    let mut bytes = Vec::new();
    // One byte more than the limit, so that the library reports it as too large.
    file.take(CHECKPOINT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}
