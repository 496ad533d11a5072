//! Measures longhaul: workers, the embedded broker, the transport.

mod child;
mod compare;
mod drain;
mod judge;
mod latency;
mod many;
mod meter;
mod sitting;
mod stage;
mod table;
mod transports;
mod worker;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Measures longhaul, on the embedded broker or on a real Pulsar.
///
/// Broker and workers are processes of their own, so that CPU time and memory are told apart from each other and from this program, which
/// submits the tasks and judges the outcome. A run that has lost a task or run one twice fails. Each measurement is made in rounds; printed
/// are the medians, and from where to where the rounds went. CPU is in microseconds per task.
#[derive(Parser)]
#[command(
    name = "bench",
    after_help = "Always with --release, on a machine that does nothing else:\n  \
    cargo run --release -p bench -- drain --concurrency 1000\n  \
    cargo run --release -p bench -- latency --broker maven --json latency.json\n  \
    cargo run --release -p bench -- session flow-100"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Drain(drain::Options),
    Latency(latency::Options),
    Many(many::Options),
    Session(transports::Options),
    Compare(compare::Options),
    /// An embedded broker; for the program itself.
    #[command(hide = true)]
    Broker(child::BrokerArgs),
    /// A worker; for the program itself.
    #[command(hide = true)]
    Worker {
        /// What to do, as JSON.
        plan: String,
    },
    /// One run of `session`; for the program itself.
    #[command(hide = true)]
    SessionRun {
        /// What to do, as JSON.
        plan: String,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Args::parse().command {
        // They end when their parent says so.
        Command::Broker(args) => child::broker(args).await,
        Command::Worker { plan } => worker::run(&plan).await,
        Command::SessionRun { plan } => transports::child(&plan).await,
        Command::Drain(it) => until_signal(it.run()).await,
        Command::Latency(it) => until_signal(it.run()).await,
        Command::Many(it) => until_signal(it.run()).await,
        Command::Session(it) => until_signal(transports::sit(&it)).await,
        Command::Compare(it) => until_signal(Box::pin(compare::run(&it))).await,
    }
}

/// Measures until it is done or somebody wants its end. What was started ends with what is dropped here.
async fn until_signal(measure: impl Future<Output = Result<()>>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = measure => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}
