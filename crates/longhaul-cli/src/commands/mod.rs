//! What the commands do, one file per noun.

pub(crate) mod bench;
pub(crate) mod broker;
pub(crate) mod bulk;
pub(crate) mod config;
pub(crate) mod conformance;
pub(crate) mod context;
pub(crate) mod dash;
pub(crate) mod dead;
pub(crate) mod meta;
pub(crate) mod moving;
pub(crate) mod ports;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod server;
pub(crate) mod task;
pub(crate) mod token;
pub(crate) mod topic;
pub(crate) mod worker;

use crate::cli::Command;
use crate::context::Context;
use crate::exit::{Code, Failure};
use crate::times;

/// Runs a command.
///
/// # Errors
/// What it meets; `exit.rs` says with which code the program then ends.
pub(crate) async fn run(command: Command, context: &Context) -> anyhow::Result<()> {
    // A service ends when it is told to.
    let limit = context.timeout.filter(|_| !command.is_service());
    let running = dispatch(command, context);
    let Some(limit) = limit else { return running.await };
    match tokio::time::timeout(limit, running).await {
        Ok(ended) => ended,
        Err(_) => {
            let what = format!("it was not done within {}", times::human(limit));
            let help = "--timeout sets the limit; what was submitted or asked for by then stands";
            Err(Failure::new(Code::TimedOut, what).help(help).into())
        }
    }
}

async fn dispatch(command: Command, context: &Context) -> anyhow::Result<()> {
    match command {
        Command::Task(it) => task::run(*it, context).await,
        Command::Dead(it) => dead::run(it, context).await,
        Command::Queue(it) => queue::run(it, context).await,
        Command::Schedule(it) => schedule::run(it, context).await,
        Command::Topic(it) => topic::run(it, context).await,
        Command::Verify(it) => topic::verify(&it, context).await,
        Command::Export(it) => moving::export(&it, context).await,
        Command::Import(it) => moving::import(&it, context).await,
        Command::Migrate(it) => moving::migrate(&it, context).await,
        Command::Bench(it) => bench::run(&it, context).await,
        Command::Conformance(arguments) => conformance::run(&arguments, context).await,
        Command::Dash(arguments) => dash::run(&arguments, context).await,
        Command::Dev(it) => server::dev(&it, context).await,
        Command::Server(it) => server::run(it, context).await,
        Command::Broker(it) => broker::run(*it, context).await,
        Command::Worker(it) => worker::run(it, context).await,
        Command::Token(it) => token::run(it, context),
        Command::Context(it) => context::run(it, context),
        Command::Config(it) => config::run(&it, context),
        Command::Completions(it) => meta::completions(&it),
        Command::Man(it) => meta::man(&it),
        Command::Version(it) => meta::version(&it, context),
    }
}
