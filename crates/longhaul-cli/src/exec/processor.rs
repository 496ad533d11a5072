//! The processor that runs a program per task.

use super::args::WorkerRun;
use super::command::CommandLine;
use super::environment;
use super::link::{Spec, SupervisorMessage};
use super::program::{Heard, RunningProgram};
use super::signals;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use longhaul::{Raw, TaskContext, TaskError, TaskProcessor};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// All attempts of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    /// The number of running attempts.
    pub(super) running: watch::Sender<usize>,
    /// Ends all attempts; their tasks are released.
    pub(super) stop: CancellationToken,
}

impl Attempts {
    fn begin(&self) -> Counted<'_> {
        self.running.send_modify(|count| *count += 1);
        Counted(&self.running)
    }
}

struct Counted<'a>(&'a watch::Sender<usize>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// The pause of a task whose checkpoint has no room on this machine. It costs no attempt, because
/// the machine is at fault, and each task with a checkpoint would fail at once.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(30);

/// Runs one program per task.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    pub(crate) command: CommandLine,
    pub(crate) args: Arc<WorkerRun>,
    pub(crate) attempts: Attempts,
}

impl TaskProcessor for Exec {
    type Task = Raw;
    type Output = Raw;

    async fn process(&self, task: Raw, context: TaskContext) -> Result<Raw, TaskError> {
        let _counted = self.attempts.begin();
        let checkpoint = context.last_checkpoint().map(|bytes| BASE64_STANDARD.encode(bytes));
        let spec = Spec {
            words: self.command.words.clone(),
            environment: environment::of(&context),
            checkpoint,
            nice: self.args.nice,
            grace_ms: u64::try_from(self.args.grace.as_millis()).unwrap_or(u64::MAX),
        };
        let program = RunningProgram::start(&spec).await.map_err(|error| {
            TaskError::elsewhere(format!("cannot start {}: {error:#}", self.command.name()))
        })?;
        let stop = &self.attempts.stop;
        let heard = program.run(task.0, self.args.max_output, &context, stop).await;
        tracing::debug!(task = %context.task_id(), end = ?heard.end, "a program has ended");
        self.judge(heard)
    }
}

impl Exec {
    /// Maps the end of a program to the result of its task.
    fn judge(&self, heard: Heard) -> Result<Raw, TaskError> {
        let name = self.command.name();
        let Heard { end, output, too_large, last_lines, retry_after, was_stopped } = heard;
        let (code, signal) = match end {
            Some(SupervisorMessage::Ended { code, signal, left_behind }) => {
                if left_behind {
                    tracing::error!(program = name, "process left behind: SIGKILL did not end it");
                }
                (code, signal)
            }
            Some(SupervisorMessage::Refused { cause }) => return Err(TaskError::elsewhere(cause)),
            Some(SupervisorMessage::NoRoom { cause }) => {
                tracing::warn!(%cause, "task given back: this machine has no room for its checkpoint");
                return Err(TaskError::snooze(NO_ROOM_PAUSE));
            }
            Some(SupervisorMessage::Started { .. }) | None => (None, None),
        };
        if too_large {
            return Err(TaskError::fatal(self.too_large()));
        }
        if was_stopped {
            // The exit code is meaningless then: many programs exit with 0 after SIGTERM, wherever
            // they are. The result of a cancelled attempt is discarded, and other attempts are
            // released.
            return Err(TaskError::snooze(Duration::from_secs(1)));
        }
        let reason = |what: &str| match last_lines.as_str() {
            "" => format!("{name} {what}, and wrote nothing to stderr"),
            lines => format!("{name} {what}; the end of its stderr:\n{lines}"),
        };
        let again = |reason: String| match retry_after {
            Some(pause) => TaskError::retry_after(pause, reason),
            None => TaskError::retry(reason),
        };
        match (code, signal, output) {
            (Some(0), _, Some(output)) => Ok(Raw(output)),
            (Some(0), _, None) => {
                Err(again(reason("ended, but its stdout could not be read completely")))
            }
            (Some(code), ..) if self.is_fatal(code) => {
                Err(TaskError::fatal(reason(&format!("ended with exit code {code}"))))
            }
            (Some(code), ..) => Err(again(reason(&format!("ended with exit code {code}")))),
            (None, Some(signal), _) => {
                Err(again(reason(&format!("was killed by {}", signals::name(signal)))))
            }
            (None, None, _) => {
                Err(again(reason("was killed because its supervisor process ended")))
            }
        }
    }

    fn is_fatal(&self, code: i32) -> bool {
        self.args.fatal_exit_codes.iter().any(|fatal| i32::from(*fatal) == code)
    }

    fn too_large(&self) -> String {
        let (name, limit) = (self.command.name(), self.args.max_output);
        format!(
            "{name} wrote more than {limit} bytes to stdout, the limit of a result \
             (--max-output): store large results elsewhere, and print where"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use longhaul::TaskErrorKind;

    fn exec() -> Exec {
        let args = WorkerRun {
            max_output: 100,
            grace: Duration::from_secs(5),
            fatal_exit_codes: vec![65, 78],
            ..WorkerRun::default()
        };
        let command = CommandLine::split("/opt/convert -x").unwrap();
        Exec { command, args: Arc::new(args), attempts: Attempts::default() }
    }

    fn heard(code: Option<i32>, signal: Option<i32>) -> Heard {
        Heard {
            end: Some(SupervisorMessage::Ended { code, signal, left_behind: false }),
            output: Some(Bytes::from_static(b"result")),
            too_large: false,
            last_lines: "disk full\ngiving up".to_owned(),
            retry_after: None,
            was_stopped: false,
        }
    }

    #[track_caller]
    fn check(heard: Heard, kind: TaskErrorKind, reason: &str) {
        let error = exec().judge(heard).unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, reason));
    }

    #[test]
    fn exit_codes_mean_success_another_attempt_or_the_end() {
        assert_eq!(exec().judge(heard(Some(0), None)), Ok(Raw(Bytes::from_static(b"result"))));
        let told = |code| {
            format!(
                "convert ended with exit code {code}; the end of its stderr:\ndisk full\ngiving up"
            )
        };
        for code in [1, 2, 64, 75, 127, 255] {
            check(heard(Some(code), None), TaskErrorKind::Retry, &told(code));
        }
        for code in [65, 78] {
            check(heard(Some(code), None), TaskErrorKind::Fatal, &told(code));
        }
    }

    #[test]
    fn a_program_says_when_it_is_tried_again() {
        let pause = Some(Duration::from_secs(30));
        let later =
            Heard { retry_after: pause, last_lines: String::new(), ..heard(Some(75), None) };
        let kind = TaskErrorKind::RetryAfter(Duration::from_secs(30));
        check(later, kind, "convert ended with exit code 75, and wrote nothing to stderr");
        let fatal = Heard { retry_after: pause, ..heard(Some(65), None) };
        assert_eq!(exec().judge(fatal).unwrap_err().kind(), TaskErrorKind::Fatal);
    }

    #[test]
    fn a_signal_is_a_failed_attempt_and_is_named() {
        let told = "convert was killed by SIGSEGV; the end of its stderr:\ndisk full\ngiving up";
        check(heard(None, Some(11)), TaskErrorKind::Retry, told);
        let gone = Heard { end: None, output: None, ..heard(None, None) };
        assert!(exec().judge(gone).unwrap_err().message().contains("its supervisor process ended"));
    }

    #[test]
    fn a_result_that_is_not_whole_is_none() {
        let large = Heard { too_large: true, output: None, ..heard(None, Some(9)) };
        let error = exec().judge(large).unwrap_err();
        assert_eq!(error.kind(), TaskErrorKind::Fatal);
        assert!(error.message().contains("more than 100 bytes"), "{error}");
        let open = Heard { output: None, ..heard(Some(0), None) };
        assert_eq!(exec().judge(open).unwrap_err().kind(), TaskErrorKind::Retry);
    }

    /// A program that exits with 0 after SIGTERM may have written only a part of its result.
    #[test]
    fn a_program_that_was_stopped_is_not_believed() {
        let stopped = Heard { was_stopped: true, ..heard(Some(0), None) };
        assert!(matches!(exec().judge(stopped).unwrap_err().kind(), TaskErrorKind::Snooze(_)));
    }

    /// A machine whose temporary directory was full failed each task with a checkpoint in a moment,
    /// and used up all attempts of all of them.
    #[test]
    fn a_machine_without_room_for_a_checkpoint_costs_no_attempt() {
        let end = Some(SupervisorMessage::NoRoom { cause: "no space left on device".to_owned() });
        let error = exec().judge(Heard { end, ..heard(None, None) }).unwrap_err();
        assert_eq!(error.kind(), TaskErrorKind::Snooze(NO_ROOM_PAUSE));
    }

    #[test]
    fn what_cannot_be_started_here_may_be_elsewhere() {
        let told = "cannot start `convert`";
        let end = Some(SupervisorMessage::Refused { cause: told.to_owned() });
        check(Heard { end, ..heard(None, None) }, TaskErrorKind::Elsewhere, told);
    }
}
