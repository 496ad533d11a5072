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
        let Ok(mut changes) = service.watch(&task.topic, "latest").await else { return };
        while let Some(Ok(change)) = changes.next().await {
            let TaskChange::Updated(shown) = change else { continue };
            if shown.id != name {
                continue;
            }
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
    let queue = one.as_ref().map_or(it.what.as_str(), |task| task.topic.as_str());
    let name = one.as_ref().map(named);
    // An unclaimed task has no entry yet.
    let mut has_shown = name.is_none();
    let from = if it.from_now { "latest" } else { "earliest" };
    let mut changes = service.watch(queue, from).await?;
    while let Some(change) = changes.next().await {
        match change? {
            TaskChange::Updated(task) => {
                if name.as_ref().is_some_and(|name| *name != task.id) {
                    continue;
                }
                has_shown = true;
                context.output.each(&*task)?;
                let is_reached = it.until == Some(&*task.status);
                if is_reached || (name.is_some() && task.is_over()) {
                    return Ok(());
                }
            }
            TaskChange::CaughtUp if !it.from_now && has_shown => {
                context.output.note("(end of the current state; changes follow)");
            }
            TaskChange::CaughtUp => {}
            TaskChange::Unreadable(what) => context.output.note(&format!("note: {what}")),
        }
    }
    Ok(())
}
