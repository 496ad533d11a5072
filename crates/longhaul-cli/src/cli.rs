//! The tree of commands.

use crate::commands::broker::BrokerCommand;
use crate::commands::server::ServerCommand;
use crate::commands::worker::WorkerCommand;
use crate::commands::{
    bench, config, context, dead, meta, migrate, queue, schedule, server, task, token, topic,
};
use crate::globals::Globals;
use clap::{Parser, Subcommand};

/// Submit, run, watch and repair long-running tasks on Apache Pulsar.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, max_term_width = 110, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  longhaul dev --demo
  longhaul task submit hello 'Hello' --wait

You can also set each option under Output, Acting and Connection by a variable (--service-url is \
LONGHAUL_SERVICE_URL) or in a context.

Exit codes: 0 success, 1 a task or a check failed, or any other error, 2 wrong usage, 3 not \
found, 4 conflict, 5 gateway or broker unreachable, 124 the time of --timeout is over.")]
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
    /// Submit, list, follow and end tasks.
    #[command(subcommand)]
    Task(Box<task::TaskCommand>),
    /// List, replay and purge dead letters: tasks that failed for good.
    #[command(subcommand)]
    Dead(dead::Dead),
    /// Create, list, pause, limit and delete queues.
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Schedule tasks by cron expression, at intervals, or once.
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Set up, check and compact the topics of a queue.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Check every entry of a queue's logs against the invariants of the protocol.
    Verify(topic::Verify),
    /// Move a queue to another cluster, such as from the embedded broker to Pulsar.
    Migrate(Box<migrate::Migrate>),
    /// Submit tasks, wait until they are over, and print rates and percentiles.
    Bench(bench::BenchArgs),
    /// Run or check the gateway, with the embedded broker or in front of Pulsar.
    #[command(subcommand)]
    Server(ServerCommand),
    /// Run the embedded broker without a gateway; check, repair, back up or restore its data.
    #[command(subcommand)]
    Broker(Box<BrokerCommand>),
    /// Run a worker; list, show and drain the workers of a queue.
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Create, list and revoke tokens of the gateway; sign tokens for the embedded broker.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Store the settings of several clusters, and select one.
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// Show the settings that apply, and the source of each.
    #[command(subcommand)]
    Config(config::Config),
    /// Print completions for a shell.
    Completions(meta::Completions),
    /// Print the manual page, or write the pages of all commands to a folder.
    Man(meta::Man),
    /// Print the version.
    #[command(after_help = "\
Examples:
  longhaul version
  longhaul version -o json")]
    Version,
}

impl CliCommand {
    /// Whether it runs until it is stopped.
    pub(crate) const fn is_service(&self) -> bool {
        match self {
            Self::Broker(it) => matches!(**it, BrokerCommand::Run(_)),
            Self::Server(it) => matches!(it, ServerCommand::Dev(_) | ServerCommand::Start(_)),
            Self::Worker(it) => matches!(it, WorkerCommand::Run(_)),
            Self::Dev(_) => true,
            Self::Task(_)
            | Self::Dead(_)
            | Self::Queue(_)
            | Self::Schedule(_)
            | Self::Topic(_)
            | Self::Verify(_)
            | Self::Migrate(_)
            | Self::Bench(_)
            | Self::Token(_)
            | Self::Context(_)
            | Self::Config(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Version => false,
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
