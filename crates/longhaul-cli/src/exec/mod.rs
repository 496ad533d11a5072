//! `worker run --exec`: a worker that runs a program per task. `docs/exec.md` describes the
//! interface of programs.
//!
//! [`processor`] maps the end of a program to the result of its task; [`program`] is a running
//! program on the worker's side; [`supervisor`] is the process in between, which never lets a
//! program outlive its worker; [`link`] is their protocol.

mod args;
mod command;
mod drain;
mod environment;
mod family;
mod lines;
mod link;
mod processor;
mod program;
mod reports;
mod signals;
mod supervisor;

pub(crate) use args::WorkerRun;
pub(crate) use program::SUPERVISE;
pub(crate) use supervisor::main as supervise;

use crate::context::CommandContext;
use crate::exit::CommandFailure;
use args::Commands;
use longhaul::{Levels, Router, TaskProcessor};
use longhaul_server::MetricsPage;
use processor::{Attempts, Exec};
use std::sync::Arc;

/// Runs a worker until it is told to end.
///
/// # Errors
/// When an option is invalid, the broker cannot be reached, or the worker was stopped before its
/// tasks were over.
pub(crate) async fn run(args: &WorkerRun, context: &CommandContext) -> anyhow::Result<()> {
    let wrong = |error: anyhow::Error| CommandFailure::usage(format!("{error:#}"));
    let Commands { any, typed } = args.commands().map_err(wrong)?;
    args.check().map_err(wrong)?;
    // Each attempt that has a checkpoint needs such a file.
    if let Err(error) = supervisor::checkpoint_file() {
        let help = "set TMPDIR to a directory in which this user may write";
        return Err(CommandFailure::usage(format!("{error:#}")).help(help).into());
    }
    let (shared, attempts) = (Arc::new(args.clone()), Attempts::default());
    let exec = |command| Exec { command, args: Arc::clone(&shared), attempts: attempts.clone() };
    match any {
        Some(command) if typed.is_empty() => work(args, context, exec(command), &attempts).await,
        any => {
            let mut router = Router::new();
            for (task_type, command) in typed {
                router = router.route(task_type, exec(command));
            }
            if let Some(command) = any {
                router = router.untyped(exec(command));
            }
            work(args, context, router, &attempts).await
        }
    }
}

/// The metrics page, if configured.
async fn page(args: &WorkerRun, context: &CommandContext) -> anyhow::Result<Option<MetricsPage>> {
    let Some(address) = args.metrics else { return Ok(None) };
    if !address.ip().is_loopback() && !context.settings.is("insecure")? {
        let what = format!(
            "{address} can be reached from other machines, and the metrics have no authentication"
        );
        let help = "keep others out with --metrics 127.0.0.1:7072, or let everybody in with \
            LONGHAUL_INSECURE=true";
        return Err(CommandFailure::usage(what).help(help).into());
    }
    let page = MetricsPage::start(address).await.map_err(|error| {
        CommandFailure::usage(format!("cannot listen on {address}: {error}"))
            .help("choose another address with --metrics")
    })?;
    context.output.note(&format!("metrics at http://{}/metrics", page.address()));
    Ok(Some(page))
}

async fn work(
    args: &WorkerRun,
    context: &CommandContext,
    processor: impl TaskProcessor,
    attempts: &Attempts,
) -> anyhow::Result<()> {
    let _page = page(args, context).await?;
    let client = context.client().await?;
    let mut worker = client.worker(&args.queue, processor).config(args.config());
    if let Some(name) = &args.name {
        worker = worker.name(name);
    }
    if args.levels {
        worker = worker.levels(Levels::strict());
    }
    let worker = worker.start().await?;
    drain::run(worker, args, attempts, &context.output).await
}
