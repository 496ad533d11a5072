//! Tests an HTTP worker in any language from outside: `cargo run -p conformance -- PROGRAM`.
//!
//! ```text
//! stage.rs ── an embedded broker in this process, gateways as processes, a queue for each check
//! gateway.rs ── one gateway, which is killed and started again
//! door.rs ── a proxy of the gateway: refuses requests, cuts answers off, records what was asked
//! storm/ ── many tasks while everything fails, for workers of several programs
//! candidate.rs ── the worker under test: a process group with its settings in the environment
//! checks/ ── what a worker has to do, one function each
//! ```
//!
//! A check submits tasks whose payloads contain the steps for the worker (`docs/leases.md` lists
//! them), injects a fault, and then checks the tasks' history in the log and the requests through
//! the proxy. It never asks the worker.

mod candidate;
mod checks;
mod clock;
mod door;
mod gateway;
mod stage;
mod storm;

use anyhow::bail;
use checks::{ALL, ConformanceCheck};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use futures::{StreamExt, stream};
use serde::Serialize;
use stage::{ConformanceEnvironment, Scene};
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use storm::StormPlan;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// The time limit of a check.
const LIMIT: Duration = Duration::from_secs(180);

/// Tests whether an HTTP worker, in any language, behaves as a worker must.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  cargo run -p conformance -- python3 -m longhaul.conformance
  cargo run -p conformance -- --only drain,frozen ./my-worker --some option
  cargo run -p conformance -- --list
  cargo run -p conformance -- --storm 1000 python3 -m longhaul.conformance + ./my-worker

The suite starts its own broker and gateways, and starts the program as often as the checks need \
it. The program gets these variables: LONGHAUL_GATEWAY (URLs, separated by commas), \
LONGHAUL_TOKEN, LONGHAUL_QUEUE, LONGHAUL_WORKER (the worker name for its requests), \
LONGHAUL_CONCURRENCY, LONGHAUL_LEASE_TIME and LONGHAUL_DRAIN (both in seconds). docs/leases.md \
describes what a worker must do.

Exit codes: 0 the worker passed, 1 it failed a check, or any other error, 2 wrong usage.")]
struct Arguments {
    /// Run only these checks, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Run all but these checks, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = names())]
    #[arg(conflicts_with = "only")]
    skip: Vec<String>,
    /// List the checks and their requirements.
    #[arg(long)]
    list: bool,
    /// Print one JSON document in place of lines.
    #[arg(long)]
    json: bool,
    /// Run this many checks at once, 1 to 64.
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// In place of the checks, let workers end this many tasks while gateways, broker, network and
    /// workers fail. Several programs are separated by `+`.
    #[arg(long, value_name = "TASKS", conflicts_with_all = ["only", "skip", "json", "jobs"])]
    storm: Option<usize>,
    /// The seed of a storm, by default a random one.
    #[arg(long, value_name = "NUMBER", requires = "storm")]
    seed: Option<u64>,
    /// Serve the broker of this recipe: how a storm starts its broker.
    #[arg(long, value_name = "RECIPE", hide = true)]
    broker: Option<String>,
    /// Serve the gateway of this recipe: how the suite starts its gateways.
    #[arg(long, value_name = "RECIPE", hide = true)]
    gateway: Option<String>,
    /// Program to test, with its arguments.
    #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
    #[arg(required_unless_present_any = ["list", "gateway", "broker"])]
    program: Vec<OsString>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(ALL.iter().map(|check| check.name))
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct ConformanceFinding {
    check: &'static str,
    passed: bool,
    seconds: f64,
    demand: &'static str,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The last output of the workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

impl fmt::Display for ConformanceFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, seconds, demand, .. } = self;
        let result = if self.passed { "passed" } else { "FAILED" };
        write!(f, "{result}  {check}, {seconds:.1} s: {demand}")?;
        if let Some(why) = &self.why {
            write!(f, "\n        {why}")?;
        }
        for line in self.output.iter().flat_map(|output| output.lines()) {
            write!(f, "\n        | {line}")?;
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    // The cryptography of all HTTP clients. No provider is installed yet.
    rustls::crypto::ring::default_provider().install_default().ok();
    if let Some(recipe) = &arguments.gateway {
        gateway::serve(recipe).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(recipe) = &arguments.broker {
        storm::serve_broker(recipe).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut stdout = std::io::stdout();
    if arguments.list {
        if arguments.json {
            writeln!(stdout, "{}", serde_json::to_string(ALL)?)?;
        } else {
            for check in ALL {
                writeln!(stdout, "{}: {}", check.name, check.demand)?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(tasks) = arguments.storm {
        let programs = arguments.program.split(|word| word == "+").map(<[OsString]>::to_vec);
        let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
        storm::run(&StormPlan { tasks, seed, programs: programs.collect() }).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let findings = tokio::select! {
        findings = judge(&arguments) => findings?,
        // Started processes end with this program.
        _ = tokio::signal::ctrl_c() => bail!("interrupted before all checks were made"),
        _ = terminate.recv() => bail!("terminated before all checks were made"),
    };
    if arguments.json {
        writeln!(stdout, "{}", serde_json::to_string(&findings)?)?;
    }
    let failed = findings.iter().filter(|finding| !finding.passed).count();
    if failed > 0 {
        writeln!(std::io::stderr(), "the worker failed {failed} of {} checks", findings.len())?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the selected checks. Prints each finding, unless they are to be one document.
async fn judge(arguments: &Arguments) -> anyhow::Result<Vec<ConformanceFinding>> {
    let Arguments { only, skip, json, jobs, program, .. } = arguments;
    let stage = ConformanceEnvironment::start(program).await?;
    let named =
        |names: &[String], check: &ConformanceCheck| names.iter().any(|name| name == check.name);
    let wanted = ALL.iter().filter(|check| only.is_empty() || named(only, check));
    let wanted: Vec<_> = wanted.filter(|check| !named(skip, check)).collect();
    let findings = stream::iter(wanted).map(|check| examine(&stage, check));
    let mut findings = findings.buffered(usize::from(*jobs));
    let (mut all, mut stdout) = (Vec::new(), std::io::stdout());
    while let Some(finding) = findings.next().await {
        if !json {
            writeln!(stdout, "{finding}")?;
        }
        all.push(finding);
    }
    Ok(all)
}

async fn examine(stage: &ConformanceEnvironment, check: &ConformanceCheck) -> ConformanceFinding {
    let begun = clock::monotonic();
    let (result, output) = match stage.scene(check.name).await {
        Ok(mut scene) => {
            let result = timeout(LIMIT, (check.run)(&mut scene)).await;
            let late = || Err(anyhow::anyhow!("the check did not end within {LIMIT:?}"));
            (result.unwrap_or_else(|_| late()), Some(scene.last_lines()))
        }
        Err(error) => (Err(error), None),
    };
    let why = result.err().map(|error| format!("{error:#}"));
    ConformanceFinding {
        check: check.name,
        passed: why.is_none(),
        seconds: begun.elapsed().as_secs_f64(),
        demand: check.demand,
        output: output.filter(|_| why.is_some()),
        why,
    }
}
