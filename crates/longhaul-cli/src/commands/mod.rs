//! The commands, one file per noun.

pub(crate) mod bench;
pub(crate) mod broker;
pub(crate) mod bulk;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod dead;
pub(crate) mod meta;
pub(crate) mod migrate;
pub(crate) mod ports;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod server;
pub(crate) mod task;
pub(crate) mod token;
pub(crate) mod topic;
pub(crate) mod worker;

use crate::cli::CliCommand;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::times;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;

/// Runs a command.
///
/// # Errors
/// When the command fails; `exit.rs` defines the exit code.
pub(crate) async fn run(command: CliCommand, context: &CommandContext) -> anyhow::Result<()> {
    // Services have no time limit.
    let limit = context.timeout.filter(|_| !command.is_service());
    let running = dispatch(command, context);
    let Some(limit) = limit else { return running.await };
    match tokio::time::timeout(limit, running).await {
        Ok(ended) => ended,
        Err(_) => {
            let what = format!("the command did not end within {}", times::human(limit));
            let help =
                "raise --timeout; what the command has already submitted or requested remains";
            Err(CommandFailure::new(Code::TimedOut, what).help(help).into())
        }
    }
}

async fn dispatch(command: CliCommand, context: &CommandContext) -> anyhow::Result<()> {
    match command {
        CliCommand::Task(it) => task::run(*it, context).await,
        CliCommand::Dead(it) => dead::run(it, context).await,
        CliCommand::Queue(it) => queue::run(it, context).await,
        CliCommand::Schedule(it) => schedule::run(it, context).await,
        CliCommand::Topic(it) => topic::run(it, context).await,
        CliCommand::Verify(it) => topic::verify(&it, context).await,
        CliCommand::Migrate(it) => migrate::run(&it, context).await,
        CliCommand::Bench(it) => bench::run(&it, context).await,
        CliCommand::Dev(it) => server::dev(&it, context).await,
        CliCommand::Server(it) => server::run(it, context).await,
        CliCommand::Broker(it) => broker::run(*it, context).await,
        CliCommand::Worker(it) => worker::run(it, context).await,
        CliCommand::Token(it) => token::run(it, context),
        CliCommand::Context(it) => context::run(it, context),
        CliCommand::Config(it) => config::run(&it, context),
        CliCommand::Completions(it) => meta::completions(&it),
        CliCommand::Man(it) => meta::man(&it),
        CliCommand::Version => meta::version(context),
    }
}

/// Parses a word of the API, one of `words`, in which `-` stands for `_`.
pub(crate) fn one_of<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    words: impl Into<PossibleValuesParser>,
) -> impl TypedValueParser<Value = T> {
    words.into().try_map(|word: String| serde_json::from_value(word.replace('-', "_").into()))
}
