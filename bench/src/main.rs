//! Measures longhaul: workers, the embedded broker, the transport.

mod ahead;
mod backlog;
mod bytes;
mod child;
mod compare;
mod course;
mod drain;
mod enqueue;
mod gateway;
mod growth;
mod judge;
mod known;
mod latency;
mod leases;
mod levels;
mod limits;
mod long;
mod many;
mod meter;
mod order;
mod payload;
mod peer;
mod sitting;
mod stage;
mod table;
mod topics;
mod transports;
mod view;
mod worker;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit codes after Ctrl-C and SIGTERM, as shells have them.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;

/// Measures longhaul, on the embedded broker or on a real Pulsar.
///
/// Broker and workers are processes of their own, so that CPU time and memory are told apart from
/// each other and from this program, which submits the tasks and judges the outcome. A run that has
/// lost a task or run one twice fails. Each measurement is made in rounds; printed are the medians,
/// and from where to where the rounds went. CPU is in microseconds per task.
#[derive(Parser)]
#[command(
    name = "bench",
    after_help = "Always with --release, on a machine that does nothing else, in the folder bench:\n  \
    cargo run --release -- drain --concurrency 1000\n  \
    cargo run --release -- latency --broker maven --json latency.json\n  \
    cargo run --release -- session flow-100"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Drain(drain::Options),
    Enqueue(enqueue::Options),
    Gateway(gateway::Options),
    Latency(latency::Options),
    Leases(leases::Options),
    Levels(levels::Options),
    Limits(limits::Options),
    Order(order::Options),
    Topics(topics::Options),
    Many(many::Options),
    Known(known::Options),
    Ahead(ahead::Options),
    Bytes(bytes::Options),
    Growth(growth::Options),
    Long(long::Options),
    Payload(payload::Options),
    View(view::ViewOptions),
    Waits(view::WaitsOptions),
    Session(transports::Options),
    Compare(compare::Options),
    /// An embedded broker; for the program itself.
    #[command(hide = true)]
    Broker(child::BrokerArgs),
    /// A gateway; for the program itself.
    #[command(hide = true)]
    GatewayProcess(gateway::GatewayArgs),
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
async fn main() -> Result<ExitCode> {
    let command = Args::parse().command;
    if command.is_child() {
        // It ends when its parent says so.
        command.run().await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminate = signal(SignalKind::terminate())?;
    // What was started ends with what is dropped here.
    tokio::select! {
        done = Box::pin(command.run()) => done.map(|()| ExitCode::SUCCESS),
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(INTERRUPTED)),
        _ = terminate.recv() => Ok(ExitCode::from(TERMINATED)),
    }
}

impl Command {
    /// Whether the program has started itself.
    const fn is_child(&self) -> bool {
        matches!(
            self,
            Self::Broker(_)
                | Self::GatewayProcess(_)
                | Self::Worker { .. }
                | Self::SessionRun { .. }
        )
    }

    async fn run(self) -> Result<()> {
        match self {
            Self::Drain(it) => it.run().await,
            Self::Enqueue(it) => it.run().await,
            Self::Gateway(it) => Box::pin(it.run()).await,
            Self::Latency(it) => it.run().await,
            Self::Leases(it) => it.run().await,
            Self::Levels(it) => it.run().await,
            Self::Limits(it) => it.run().await,
            Self::Order(it) => it.run().await,
            Self::Topics(it) => it.run().await,
            Self::Many(it) => it.run().await,
            Self::Known(it) => it.run().await,
            Self::Ahead(it) => it.run().await,
            Self::Bytes(it) => it.run().await,
            Self::Growth(it) => it.run().await,
            Self::Long(it) => it.run().await,
            Self::Payload(it) => it.run().await,
            Self::View(it) => it.run().await,
            Self::Waits(it) => it.run().await,
            Self::Session(it) => transports::sit(&it).await,
            Self::Compare(it) => Box::pin(compare::run(&it)).await,
            Self::Broker(it) => child::broker(it).await,
            Self::GatewayProcess(it) => gateway::run_process(it).await,
            Self::Worker { plan } => worker::run(&plan).await,
            Self::SessionRun { plan } => transports::child(&plan).await,
        }
    }
}
