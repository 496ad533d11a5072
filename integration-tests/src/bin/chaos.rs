//! Runs chaos scenarios and prints their figures.

use anyhow::{Result, ensure};
use clap::Parser;
use integration_tests::chaos::{Host, Options, SCENARIOS, Scenario};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Kills, freezes, stops and unloads what a longhaul fleet is made of, and checks that nothing was
/// lost.
///
/// Each scenario starts worker processes (the example `scripted`) on topics of its own, submits
/// tasks, does its worst, waits until every task has ended, then reads the task topic, the ledger
/// and the metadata topic whole and checks them: no task lost, one accepted end per task, no epoch
/// run twice, no write-once key used twice, attempts within their limit, the metadata topic ending
/// with what the ledger says, every message acknowledged. It prints one table line of figures per
/// run. The exit status is 1 when a checker found something.
///
/// By default it starts an embedded broker of its own; `--broker maven` starts a real Pulsar from
/// Maven artifacts (Java 17 and Maven are needed; the first time 235 MB are fetched),
/// `--broker cluster` a whole cluster of it.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  chaos list\n  chaos kills --seed 7\n  chaos restarts --faults 10 --broker maven\n  chaos proxy --no-deduplication\n  chaos all --short --json\n  \
    chaos unloads --broker pulsar://localhost:6650 --admin http://localhost:8080"
)]
struct Args {
    /// A scenario, `list` to see them, or `all`.
    scenario: String,
    /// Decides who is hit, and when. The same seed makes the same choices; what the processes make
    /// of them differs.
    #[arg(long)]
    seed: Option<u64>,
    /// Tasks; for kill-owner and freeze rounds, for prefilled finished tasks.
    #[arg(long)]
    tasks: Option<usize>,
    /// Kills, restarts, unloads, faults of the network or of all kinds, for the scenario that is
    /// named after them.
    #[arg(long)]
    faults: Option<usize>,
    /// Worker processes.
    #[arg(long)]
    workers: Option<usize>,
    /// Tasks that run at once, where a scenario submits tasks all the time. Without it about ten.
    #[arg(long)]
    in_flight: Option<usize>,
    /// Small numbers: a minute per scenario at most, and figures that say little.
    #[arg(long)]
    short: bool,
    /// Switches the broker's deduplication of the ledger off: what a client sends twice is then
    /// there twice, and is found.
    #[arg(long)]
    no_deduplication: bool,
    /// Plants faults where the scenario knows any (everything, order): it must then find what is
    /// broken.
    #[arg(long)]
    planted: bool,
    /// Print JSON, one object per line, instead of table lines.
    #[arg(long)]
    json: bool,
    /// `embedded`, `maven` or `docker` for a broker of its own, `cluster` for ZooKeeper, four
    /// bookies and two brokers from Maven artifacts, or a service URL. Restarts and outage need a
    /// broker of their own, cluster needs a cluster.
    #[arg(long, env = "LONGHAUL_TEST_BROKER", default_value = "embedded")]
    broker: String,
    /// Admin URL that belongs to a service URL.
    #[arg(long, env = "LONGHAUL_TEST_ADMIN", default_value = "http://127.0.0.1:8080")]
    admin: String,
    /// Keeps logs and journals of the workers in this folder.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Goes on after a scenario that could not be run.
    #[arg(long)]
    go_on: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut stdout = std::io::stdout();
    if args.scenario == "list" {
        for scenario in SCENARIOS {
            writeln!(stdout, "{:<11} {}", scenario.name, scenario.about)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // A wrong name is reported before anything is started.
    let named = Scenario::find(&args.scenario);
    ensure!(named.is_some() || args.scenario == "all", "no scenario {}: see `list`", args.scenario);
    let mut host = Host::open(&args.broker, &args.admin).await?;
    let chosen: Vec<&Scenario> = match named {
        Some(scenario) => vec![scenario],
        None => SCENARIOS.iter().filter(|scenario| scenario.suits(&host)).collect(),
    };
    let options = Options {
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        tasks: args.tasks,
        faults: args.faults,
        workers: args.workers,
        in_flight: args.in_flight,
        short: args.short,
        no_deduplication: args.no_deduplication,
        planted: args.planted,
        keep: args.keep,
    };
    let mut sound = true;
    for scenario in chosen {
        let rows = match scenario.run(&mut host, &options).await {
            Ok(rows) => rows,
            Err(error) if args.go_on => {
                sound = false;
                writeln!(std::io::stderr(), "{}: {error:#}", scenario.name)?;
                continue;
            }
            Err(error) => return Err(error.context(scenario.name)),
        };
        for row in rows {
            sound &= row.violations.is_empty();
            if args.json {
                writeln!(stdout, "{}", row.to_json())?;
            } else {
                writeln!(stdout, "{row}")?;
            }
        }
        stdout.flush()?;
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
