//! The tree of commands.

use crate::commands::{
    bench, broker, config, conformance, context, dead, meta, moving, queue, schedule, server, task,
    token, topic, worker,
};
use crate::globals::Globals;
use clap::{Parser, Subcommand};

/// Long-running tasks on Apache Pulsar: submit them, see them, mend them.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, max_term_width = 110, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  longhaul dev --demo
  longhaul task submit hello 'Hello' --wait

Every option in Output, Acting and Connection may also be said by a variable (--service-url is
LONGHAUL_SERVICE_URL) or in a context. Exit codes: 0 well, 1 a task failed or a check found something,
2 usage, 3 not found, 4 conflict, 5 not reachable, 124 the time of --timeout is over.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Start a broker and the gateway on this machine, for development.
    Dev(server::Dev),
    /// Submit tasks, see them, follow them, end them.
    #[command(subcommand)]
    Task(Box<task::TaskCommand>),
    /// See the tasks that failed for good, and run them once more.
    #[command(subcommand)]
    Dead(dead::Dead),
    /// See queues, pause them, limit them.
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Submit tasks by cron expressions, at intervals, or once.
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Set the topics of a queue up, and check them.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Judge every entry of a queue's logs by the invariants of the protocol.
    Verify(topic::Verify),
    /// Write all that a queue holds to a file.
    Export(moving::ExportArgs),
    /// Write what a file of `export` holds to a queue.
    Import(moving::ImportArgs),
    /// Move a queue to another cluster, such as from the embedded broker to a Pulsar.
    Migrate(Box<moving::Migrate>),
    /// Submit tasks, follow them to their ends, and say how long it took.
    Bench(bench::BenchArgs),
    /// Judge a worker that speaks HTTP, in whatever language: does it do what a worker has to?
    Conformance(conformance::Conformance),
    /// The gateway, with a broker of its own or before a Pulsar.
    #[command(subcommand)]
    Server(server::ServerCommand),
    /// The broker by itself, without a gateway; check, repair and copy its data directory.
    #[command(subcommand)]
    Broker(Box<broker::BrokerCommand>),
    /// See the workers of a queue, and be one.
    #[command(subcommand)]
    Worker(worker::WorkerCommand),
    /// Make tokens for callers of the gateway and clients of the embedded broker, and take them
    /// away.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Keep the settings of several clusters, and choose between them.
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// See which settings apply, and where each came from.
    #[command(subcommand)]
    Config(config::Config),
    /// Print completions for a shell.
    Completions(meta::Completions),
    /// Print the manual page, or write those of all commands into a folder.
    Man(meta::Man),
    /// Print the version.
    Version(meta::VersionArgs),
}

impl CliCommand {
    /// Whether it runs until it is stopped.
    pub(crate) const fn is_service(&self) -> bool {
        match self {
            Self::Worker(worker) => worker.is_service(),
            Self::Dev(_) => true,
            Self::Server(server) => server.is_service(),
            Self::Broker(broker) => broker.is_service(),
            Self::Task(_)
            | Self::Export(_)
            | Self::Import(_)
            | Self::Migrate(_)
            | Self::Bench(_)
            | Self::Conformance(_)
            | Self::Dead(_)
            | Self::Queue(_)
            | Self::Schedule(_)
            | Self::Topic(_)
            | Self::Verify(_)
            | Self::Token(_)
            | Self::Context(_)
            | Self::Config(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Version(_) => false,
        }
    }

    /// The default log filter: services log their actions, commands only errors.
    pub(crate) const fn log(&self) -> &'static str {
        // People read the output of `dev`, and see failed tasks by commands.
        if matches!(self, Self::Dev(_)) {
            "warn,longhaul::worker::driver::telling=off"
        } else if self.is_service() {
            "info"
        } else {
            "error"
        }
    }
}

#[cfg(test)]
mod tests;
