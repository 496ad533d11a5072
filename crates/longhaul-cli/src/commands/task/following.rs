//! `longhaul task wait` and `longhaul task watch`.

use super::listing::status;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{TaskChange, TaskDetails, attempts_in_words, named, parse_task};
use clap::Args;
use futures::StreamExt;
use longhaul::TaskRef;
use std::io::{self, IsTerminal};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task wait tasks@12:3:-1 --timeout 10m
  longhaul task wait tasks@12:3:-1 tasks@12:4:-1 -o jsonl

Exit codes: 0 all tasks completed, 1 a task did not, 124 the time of --timeout is over.")]
pub(crate) struct TaskWaitArgs {
    /// Names of the tasks, as QUEUE@ID.
    #[arg(required = true, value_name = "TASK", value_parser = parse_task)]
    tasks: Vec<TaskRef>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task watch tasks --from-now
  longhaul task watch tasks@12:3:-1 --until running
  longhaul task watch tasks@12:3:-1 -o jsonl")]
pub(crate) struct TaskWatchArgs {
    /// Name of the queue; or of one task, as QUEUE@ID, to watch until it is over.
    what: String,
    /// Exit as soon as a task has this status.
    #[arg(long, value_name = "STATUS", value_parser = status)]
    until: Option<&'static str>,
    /// Start with the next change, not with the current state of each task.
    #[arg(long)]
    from_now: bool,
}

/// # Errors
/// When a task did not complete.
pub(crate) async fn wait(
    service: &GatewayClient,
    it: &TaskWaitArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut failed = 0_usize;
    for task in &it.tasks {
        let ended = follow(service, task, context).await?;
        context.output.each(&ended)?;
        failed += usize::from(!ended.is_completed());
    }
    if failed == 0 {
        return Ok(());
    }
    let what = match it.tasks.len() {
        1 => "the task did not complete".to_owned(),
        count => format!("{failed} of {count} tasks did not complete"),
    };
    Err(CommandFailure::new(Code::Failed, what).into())
}

/// Waits for a task, and shows its progress to people.
pub(crate) async fn follow(
    service: &GatewayClient,
    task: &TaskRef,
    context: &CommandContext,
) -> anyhow::Result<TaskDetails> {
    if context.output.quiet || !io::stderr().is_terminal() {
        return service.ended(task).await;
    }
    let progress = context.output.progress(0);
    let name = named(task);
    progress.set(0, 0, &format!("{name} waits for a worker"));
    let show = async {
        let Ok(mut changes) = service.watch_task(task).await else { return };
        while let Some(Ok(change)) = changes.next().await {
            let TaskChange::Updated(shown) = change else { continue };
            let said = shown.progress.clone().unwrap_or_default();
            let message = format!("{name} {} {}", shown.status, said.message);
            progress.set(said.done, said.total, &message);
        }
    };
    let ended = service.ended(task);
    tokio::pin!(ended);
    tokio::select! {
        ended = &mut ended => ended,
        // After the watch has ended nothing more is shown; the wait continues.
        () = show => ended.await,
    }
}

/// Prints the result of a finished task.
///
/// # Errors
/// When it has none.
pub(crate) fn print_result(task: &TaskDetails, context: &CommandContext) -> anyhow::Result<()> {
    if let Some(bytes) = &task.bytes {
        if context.output.is_for_people() {
            return Ok(context.output.bytes(bytes)?);
        }
        return Ok(context.output.one(task, &[])?);
    }
    if !task.is_over() {
        let what = format!("{} has no result yet: it is {}", task.id, task.status);
        return Err(CommandFailure::new(Code::Conflict, what)
            .help("use --wait to wait for it")
            .into());
    }
    let why = task
        .reason
        .as_ref()
        .or(task.warning.as_ref())
        .map(|it| format!(": {it}"))
        .unwrap_or_default();
    let attempts = attempts_in_words(task.attempts);
    let what = format!("{} has {} after {attempts}{why}", task.id, ended_word(task));
    let help = format!("`longhaul task history {}` shows what happened", task.id);
    Err(CommandFailure::new(Code::Failed, what).help(help).into())
}

fn ended_word(task: &TaskDetails) -> &'static str {
    match &*task.status {
        "cancelled" => "been cancelled",
        "expired" => "expired",
        "completed" => "completed without a result to show,",
        _ => "failed",
    }
}

/// # Errors
/// When the queue cannot be followed.
pub(crate) async fn watch(
    service: &GatewayClient,
    it: &TaskWatchArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let one: Option<TaskRef> = match it.what.contains('@') {
        true => Some(parse_task(&it.what).map_err(CommandFailure::usage)?),
        false => None,
    };
    // The first event of a task is its state.
    let mut is_old = one.is_some() && it.from_now;
    let mut changes = match &one {
        Some(task) => service.watch_task(task).await?,
        None => service.watch(&it.what, if it.from_now { "latest" } else { "earliest" }).await?,
    };
    while let Some(change) = changes.next().await {
        match change? {
            TaskChange::Updated(_) if std::mem::take(&mut is_old) => {}
            TaskChange::Updated(task) => {
                context.output.each(&*task)?;
                if it.until == Some(&*task.status) {
                    return Ok(());
                }
            }
            TaskChange::CaughtUp if !it.from_now && one.is_none() => {
                context.output.note("(end of the current state; changes follow)");
            }
            TaskChange::CaughtUp => {}
            TaskChange::Unreadable(what) => context.output.note(&format!("note: {what}")),
        }
    }
    Ok(())
}
