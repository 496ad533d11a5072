//! The options of `worker run`, and the settings made from them.

use super::command::CommandLine;
use crate::sizes::memory_bytes;
use crate::times::duration;
use anyhow::{Context, ensure};
use clap::Args;
use longhaul::WorkerConfig;
use std::net::SocketAddr;
use std::time::Duration;

/// The options of `worker run`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Examples:
  longhaul worker run thumbnails --exec 'convert - -resize 200x200 png:-'
  longhaul worker run reports --shell --exec 'gzip -dc | ./report.py 2>> errors.log' \
    --max-duration 2h")]
pub(crate) struct WorkerRun {
    /// Name of the queue (its task topic).
    pub(crate) queue: String,
    /// Run this program, with its arguments, for each task; with --type, for tasks without a type.
    /// The command line is split into words without a shell.
    #[arg(long, value_name = "COMMAND", required_unless_present = "types")]
    pub(crate) exec: Option<String>,
    /// Run this program for tasks of one type (the property TASK_TYPE). Can be repeated.
    #[arg(long = "type", value_name = "TYPE=COMMAND")]
    pub(crate) types: Vec<String>,
    /// Run command lines by `sh -c`, with pipes, variables and redirections.
    #[arg(long)]
    pub(crate) shell: bool,
    /// Run the tasks of the levels of the queue as well, higher priority first
    #[arg(long)]
    pub(crate) levels: bool,
    /// Run at most this many programs at once [default: number of processors]
    #[arg(long, value_name = "NUMBER", env = "LONGHAUL_CONCURRENCY")]
    pub(crate) concurrency: Option<usize>,
    /// Allow this many attempts for tasks that set no number
    #[arg(long, value_name = "NUMBER", env = "LONGHAUL_MAX_ATTEMPTS", default_value_t = 3)]
    pub(crate) max_attempts: u32,
    /// Limit each attempt to this time, for tasks that set no limit [default: no limit]
    #[arg(long, value_name = "DURATION", env = "LONGHAUL_MAX_DURATION", value_parser = duration)]
    pub(crate) max_duration: Option<Duration>,
    /// Fail a task for good if its result is larger than this, such as 512KiB. At most 3MiB
    #[arg(long, value_name = "SIZE", env = "LONGHAUL_MAX_OUTPUT", default_value = "1MiB", value_parser = memory_bytes)]
    pub(crate) max_output: usize,
    /// Wait this long between SIGTERM and SIGKILL when a program must end
    #[arg(long, value_name = "DURATION", env = "LONGHAUL_GRACE", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
    /// Let programs run this long after the worker was told to end. Then they get SIGTERM, and the
    /// worker gives their tasks back
    #[arg(long, value_name = "DURATION", env = "LONGHAUL_DRAIN", default_value = "30s", value_parser = duration)]
    pub(crate) drain: Duration,
    /// Run programs at this niceness, -20 to 19: 19 gives way to everything else
    #[arg(long, value_name = "NUMBER", env = "LONGHAUL_NICE", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub(crate) nice: Option<i32>,
    /// Fail a task for good after these exit codes, separated by commas
    #[arg(
        long,
        value_name = "CODES",
        env = "LONGHAUL_FATAL_EXIT_CODES",
        value_delimiter = ',',
        default_value = "65"
    )]
    pub(crate) fatal_exit_codes: Vec<u8>,
    /// Send a heartbeat at this interval. After two intervals without one, another worker takes
    /// over the tasks
    #[arg(long, value_name = "DURATION", env = "LONGHAUL_HEARTBEAT", default_value = "10s", value_parser = duration)]
    pub(crate) heartbeat: Duration,
    /// Name of the worker in lists and for `worker drain`. Give each worker of a queue its own,
    /// such as the name of its pod [default: random]
    #[arg(long, value_name = "TEXT", env = "LONGHAUL_WORKER_NAME")]
    pub(crate) name: Option<String>,
    /// Serve `/metrics` and `/livez` at this address, such as 127.0.0.1:7072. Default: not served.
    /// An address beyond this machine needs LONGHAUL_INSECURE=true, because everybody can read them
    #[arg(long, value_name = "HOST:PORT", env = "LONGHAUL_WORKER_METRICS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Show this text in lists of workers and tasks, such as a version, to tell workers apart
    #[arg(long, value_name = "TEXT", env = "LONGHAUL_LABEL", default_value = "")]
    pub(crate) label: String,
}

/// The longest drain; later arithmetic on it cannot overflow.
const DRAIN_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The time beyond the grace in which the supervisor kills programs that ignore SIGTERM, and
/// reports it.
pub(crate) const MARGIN: Duration = Duration::from_secs(8);

/// The programs per type of task.
#[derive(Debug)]
pub(crate) struct Commands {
    /// For tasks without a type, and for types without their own program.
    pub(crate) any: Option<CommandLine>,
    pub(crate) typed: Vec<(String, CommandLine)>,
}

impl WorkerRun {
    /// The commands for all tasks and for types.
    ///
    /// # Errors
    /// When a command line is invalid, or its program does not exist.
    pub(crate) fn commands(&self) -> anyhow::Result<Commands> {
        let path = std::env::var_os("PATH");
        let read = |text: &str| {
            let command =
                if self.shell { CommandLine::of_shell(text) } else { CommandLine::split(text) }?;
            command.check(path.as_deref())?;
            anyhow::Ok(command)
        };
        let any = self.exec.as_deref().map(read).transpose().context("--exec")?;
        let typed = self.types.iter().map(|text| {
            let (task_type, command) = text
                .split_once('=')
                .with_context(|| format!("--type {text}: expected TYPE=COMMAND"))?;
            ensure!(!task_type.is_empty(), "--type {text}: no type before the `=`");
            let command = read(command).with_context(|| format!("--type {task_type}"))?;
            Ok((task_type.to_owned(), command))
        });
        Ok(Commands { any, typed: typed.collect::<anyhow::Result<_>>()? })
    }

    /// Checks what the options of a command line do not check one by one.
    ///
    /// # Errors
    /// When exit code 0 is a failure code, the drain time is too long, or the worker would not start
    /// with the options, such as a --max-output of 1GB.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.fatal_exit_codes.contains(&0),
            "--fatal-exit-codes: 0 means success and cannot be a failure"
        );
        ensure!(
            self.drain <= DRAIN_MAX,
            "--drain: the limit is {} days",
            DRAIN_MAX.as_secs() / 86_400
        );
        self.config().validate().context("the worker cannot start")
    }

    /// The worker's configuration.
    pub(crate) fn config(&self) -> WorkerConfig {
        let mut config = WorkerConfig::default();
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        config.concurrency = self.concurrency.unwrap_or_else(processors);
        config.max_attempts = self.max_attempts;
        config.max_duration = self.max_duration;
        config.heartbeat = self.heartbeat;
        config.label.clone_from(&self.label);
        config.result_bytes_max = self.max_output;
        config.cancel_grace = self.grace + MARGIN;
        config.drain_limit = self.drain + self.grace + MARGIN;
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        run: WorkerRun,
    }

    fn parse(words: &[&str]) -> Result<WorkerRun, clap::Error> {
        Program::try_parse_from(["run", "tasks"].iter().chain(words)).map(|program| program.run)
    }

    #[test]
    fn the_defaults_make_a_worker() {
        let run = parse(&["--exec", "sh -c true"]).unwrap();
        let config = run.config();
        config.validate().unwrap();
        assert_eq!(config.result_bytes_max, WorkerConfig::default().result_bytes_max);
        assert!(config.cancel_grace > run.grace);
        run.check().unwrap();
        assert_eq!(run.fatal_exit_codes, [65]);
        let Commands { any, typed } = run.commands().unwrap();
        assert_eq!(
            (any.unwrap().words, typed.len()),
            (vec!["sh".into(), "-c".into(), "true".into()], 0)
        );
    }

    #[test]
    fn each_type_has_its_program() {
        let run = parse(&["--shell", "--type", "a=cat | wc", "--type", "b=true"]).unwrap();
        let Commands { any, typed } = run.commands().unwrap();
        assert_eq!(any, None);
        let words: Vec<_> =
            typed.iter().map(|(name, command)| (name.as_str(), command.words.join(" "))).collect();
        assert_eq!(words, [("a", "sh -c cat | wc".to_owned()), ("b", "sh -c true".to_owned())]);
    }

    #[test]
    fn what_cannot_work_is_refused_at_once() {
        for (words, told) in [
            (&["--exec", "no-such-program"][..], "--exec: there is no program"),
            (&["--exec", ""], "--exec: the command line is empty"),
            (&["--type", "resize"], "expected TYPE=COMMAND"),
            (&["--type", "=true"], "no type before the `=`"),
            (&["--type", "a=no-such-program"], "--type a: there is no program"),
        ] {
            let error = format!("{:#}", parse(words).unwrap().commands().unwrap_err());
            assert!(error.contains(told), "{words:?}: {error}");
        }
        assert!(parse(&["--exec", "true", "--fatal-exit-codes", "65,0"]).unwrap().check().is_err());
        assert!(parse(&["--exec", "true", "--drain", "366d"]).unwrap().check().is_err());
        assert!(parse(&["--exec", "true", "--max-output", "1GB"]).unwrap().check().is_err());
        for words in [
            &[][..],
            &["--exec", "true", "--nice", "20"],
            &["--exec", "true", "--max-output", "1.5M"],
            &["--exec", "true", "--grace", "soon"],
            &["--exec", "true", "--fatal-exit-codes", "256"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
