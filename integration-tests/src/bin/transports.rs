//! Measures the third-party client crate against our own session.

use anyhow::Result;
use clap::{Parser, Subcommand};
use integration_tests::transports::{Options, ROWS, child, sit};
use std::io::Write;

/// The crate `pulsar` against longhaul's own session: the same scenarios over one small seam, in turn, in one sitting.
///
/// Each run is a process of its own: CPU time and memory are those of one transport alone. Each row is measured in rounds, the
/// sides in turn, there and back; printed are medians and ranges as Markdown tables. What is measured:
///
/// - flow: the whole flow of a task with 100 or 1,000 tasks in flight. A claim on C is read back; PROCESSING goes to M and nobody
///   waits for its receipt; the outcome goes to C and is read back; COMPLETED goes to M and its receipt is awaited; the task's
///   message is acknowledged. Entries of C have six properties.
/// - each, both, claim: parts of that. publish: one message with 100 bytes, with 1 to 1,000 in flight.
/// - latency: 100 messages per second, until the receipt and until they are read. consume: take and acknowledge.
/// - idle: memory of a transport that has open what a worker has open, and of a real worker.
///
/// The crate has three clients (publishing, following, consuming) with a queue of 100 commands; batched it sends 1,000 messages or what
/// has come within 1 ms. The session batches what comes while four entries are without a receipt. Our worker is `session, C batched,
/// M not`. CPU is in seconds per 10,000 tasks or messages. The session's acks have receipts, which are waited for; the crate is asked
/// a question behind its last one. After each run the broker must have counted all acks.
///
/// On the broker `maven` Pulsar has its own settings; on `maven-tuned` its journal and its dispatch wait for nothing
/// (`journalMaxGroupWaitMSec=0`, `managedLedgerNewEntriesCheckDelayInMillis=0`).
#[derive(Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Build with --release, on a machine that does nothing else:\n  \
    cargo build --release -p longhaul-broker -p integration-tests --bin longhaul-broker --bin transports\n  \
    cargo build --release --example greeter_worker\n  \
    export LONGHAUL_EXAMPLES=$PWD/target/release/examples\n  \
    target/release/transports --broker maven flow\n  \
    target/release/transports --broker embedded --rounds 5 publish-1000 idle"
)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// `embedded`, `maven` (Java 17 and Maven are needed; the first time 235 MB are fetched) or `maven-tuned`.
    #[arg(long, default_value = "embedded")]
    broker: String,
    /// How often each side of a row is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Multiplies the number of tasks and messages of a run.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Measures only sides whose name contains this, such as `session` or `session, C batched`.
    #[arg(long, default_value = "")]
    only: String,
    /// Runs each child under a command, such as `perf record -g -o /tmp/child.data`; its output must not go to stdout.
    #[arg(long)]
    under: Option<String>,
    /// Rows, or kinds of rows; without any all.
    rows: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the rows.
    List,
    /// One run; for the program itself.
    #[command(hide = true)]
    Child {
        /// What to do, as JSON.
        plan: String,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let mut stdout = std::io::stdout();
    match args.command {
        Some(Command::Child { plan }) => writeln!(stdout, "{}", child(&plan).await?)?,
        Some(Command::List) => {
            for row in ROWS {
                writeln!(stdout, "{:<13} {}", row.name, row.about)?;
            }
        }
        None => {
            let Args { broker, rounds, scale, only, under, rows, .. } = args;
            sit(&Options { broker, rounds, scale, only, under, rows }, &mut stdout).await?;
        }
    }
    Ok(())
}
