//! Runs many tasks for long and tells what grows.

use anyhow::{Result, ensure};
use clap::Parser;
use integration_tests::chaos::longrun::{Plan, run};
use integration_tests::chaos::{Host, Options};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Runs tasks at full speed with retentions of a minute, compaction by threshold and restarts of workers, and prints for each tenth of
/// the run what it cost: tasks/s, the workers' memory, their time to start, and the size of the ledger's compacted view.
///
/// What a worker needs must not grow with the tasks that have been: the last tenth should be as the first, and the view at the end a
/// few KiB. Exit status 1: it is larger than `--small`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  longrun --tasks 20000 --restart-every 5\n  longrun --broker maven"
)]
struct Args {
    /// Tasks in all.
    #[arg(long, default_value_t = 1_000_000)]
    tasks: usize,
    /// Worker processes.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Tasks that each worker runs at once.
    #[arg(long, default_value_t = 100)]
    concurrency: usize,
    /// Retention of ledger and metadata topic, in seconds; at least 20, because heartbeats are a thirtieth of it.
    #[arg(long, default_value_t = 60)]
    retention: u64,
    /// Uncompacted bytes of a topic at which the broker compacts it.
    #[arg(long, default_value_t = 1024 * 1024)]
    threshold: u64,
    /// Seconds between two restarts of workers, of one worker after the other.
    #[arg(long, default_value_t = 120)]
    restart_every: u64,
    /// Seconds that the ledger may take to shrink after the last task.
    #[arg(long, default_value_t = 300)]
    settle: u64,
    /// Bytes that the ledger's compacted view may have at the end.
    #[arg(long, default_value_t = 16 * 1024)]
    small: usize,
    /// `embedded`, `maven` or `docker` for a broker of its own, or a service URL.
    #[arg(long, env = "LONGHAUL_TEST_BROKER", default_value = "embedded")]
    broker: String,
    /// Admin URL that belongs to a service URL.
    #[arg(long, env = "LONGHAUL_TEST_ADMIN", default_value = "http://127.0.0.1:8080")]
    admin: String,
    /// Keeps logs and journals of the workers in this folder.
    #[arg(long)]
    keep: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    ensure!(args.tasks >= 10 && args.workers > 0, "at least ten tasks and a worker");
    ensure!(args.retention >= 20, "a retention of at least 20 seconds");
    ensure!(args.restart_every > 0, "a pause between two restarts");
    let host = Host::open(&args.broker, &args.admin).await?;
    let options = Options { keep: args.keep, ..Options::default() };
    let plan = Plan {
        tasks: args.tasks,
        workers: args.workers,
        concurrency: args.concurrency,
        retention: Duration::from_secs(args.retention),
        threshold_bytes: args.threshold,
        restart_every: Duration::from_secs(args.restart_every),
        settle: Duration::from_secs(args.settle),
        small_bytes: args.small,
    };
    let report = run(&host, &options, plan).await?;
    writeln!(std::io::stdout(), "{report}")?;
    let is_small = report.end.bytes <= args.small;
    Ok(if is_small { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
