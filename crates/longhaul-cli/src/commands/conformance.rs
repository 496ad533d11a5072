//! `longhaul conformance`: tests a worker in any language.

use crate::clock;
use crate::conformance::{ALL, ConformanceCheck, ConformanceEnvironment};
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::output::{TableRow, Tone};
use crate::signals::ShutdownSignals;
use clap::Args;
use futures::{StreamExt, stream};
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;
use tokio::time::timeout;

/// The time limit of a check.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul conformance -- python3 -m longhaul.conformance
  longhaul conformance --only drain,frozen -- ./my-worker
  longhaul conformance --list

The command starts its own broker and gateways, and starts the program as often as the checks \
need it. The program gets these variables: LONGHAUL_GATEWAY (URLs, separated by commas), \
LONGHAUL_TOKEN, LONGHAUL_QUEUE, LONGHAUL_WORKER (the worker name for its requests), \
LONGHAUL_CONCURRENCY, LONGHAUL_LEASE_TIME and LONGHAUL_DRAIN (both in seconds). docs/clients.md \
describes what a worker must do.")]
pub(crate) struct Conformance {
    /// Run only these checks, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Run all but these checks, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "only")]
    skip: Vec<String>,
    /// List the checks and their requirements.
    #[arg(long)]
    list: bool,
    /// Run this many checks at once, 1 to 64.
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    jobs: usize,
    /// Program to test, with its arguments.
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "list")]
    program: Vec<OsString>,
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

impl TableRow for ConformanceFinding {
    const HEADS: &'static [&'static str] = &["CHECK", "RESULT", "TIME", "DEMAND"];

    fn cells(&self) -> Vec<String> {
        let result = if self.passed { "passed" } else { "FAILED" };
        let time = format!("{:.1} s", self.seconds);
        vec![self.check.to_owned(), result.to_owned(), time, self.demand.to_owned()]
    }

    fn tone(&self) -> Tone {
        if self.passed { Tone::Good } else { Tone::Bad }
    }
}

impl TableRow for ConformanceCheck {
    const HEADS: &'static [&'static str] = &["CHECK", "DEMAND"];

    fn cells(&self) -> Vec<String> {
        vec![self.name.to_owned(), self.demand.to_owned()]
    }
}

/// # Errors
/// When the suite cannot be started, or the worker fails a check.
pub(crate) async fn run(arguments: &Conformance, context: &CommandContext) -> anyhow::Result<()> {
    if arguments.list {
        return Ok(context.output.list(ALL)?);
    }
    let checks = chosen(arguments)?;
    let mut signals = ShutdownSignals::new()?;
    let findings = tokio::select! {
        findings = judge(arguments, &checks, context) => findings?,
        // Started processes end with this program.
        () = signals.next() => return Err(CommandFailure::new(Code::Failed, "interrupted before \
            all checks were made").into()),
    };
    context.output.list(&findings)?;
    let failed: Vec<&ConformanceFinding> =
        findings.iter().filter(|finding| !finding.passed).collect();
    if failed.is_empty() {
        return Ok(());
    }
    for finding in &failed {
        let why = finding.why.as_deref().unwrap_or_default();
        let output = finding.output.as_deref().unwrap_or_default();
        context.output.note(&format!("{}: {why}", finding.check));
        for line in output.lines() {
            context.output.note(&format!("  | {line}"));
        }
    }
    let what = format!("the worker failed {} of {} checks", failed.len(), findings.len());
    Err(CommandFailure::new(Code::Failed, what).into())
}

/// The selected checks.
fn chosen(arguments: &Conformance) -> Result<Vec<ConformanceCheck>, CommandFailure> {
    let Conformance { only, skip, jobs, .. } = arguments;
    let known = |name: &String| ALL.iter().any(|check| check.name == name);
    if let Some(name) = only.iter().chain(skip).find(|name| !known(name)) {
        let what = format!("there is no check `{name}`");
        return Err(
            CommandFailure::usage(what).help("`longhaul conformance --list` lists the checks")
        );
    }
    if !(1..=64).contains(jobs) {
        return Err(CommandFailure::usage("--jobs must be between 1 and 64"));
    }
    let named =
        |names: &[String], check: &ConformanceCheck| names.iter().any(|name| name == check.name);
    let wanted = ALL.iter().filter(|check| only.is_empty() || named(only, check));
    Ok(wanted.filter(|check| !named(skip, check)).copied().collect())
}

async fn judge(
    arguments: &Conformance,
    checks: &[ConformanceCheck],
    context: &CommandContext,
) -> anyhow::Result<Vec<ConformanceFinding>> {
    let stage = ConformanceEnvironment::start(&arguments.program).await?;
    let count = u64::try_from(checks.len()).unwrap_or(u64::MAX);
    let progress = context.output.progress(count);
    let findings =
        stream::iter(checks).map(|check| examine(&stage, check)).buffered(arguments.jobs);
    let findings = findings.inspect(|_| progress.step());
    Ok(findings.collect().await)
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
