//! `longhaul task retry`.

use super::acting::AT_ONCE;
use super::selecting::TaskSelectionArgs;
use crate::commands::bulk::BulkOutcomes;
use crate::commands::dead::{self, ReplayChangeArgs};
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{named, no_task};
use clap::Args;
use futures::{StreamExt, stream};
use longhaul::TaskRef;
use longhaul_api::action::TaskAction;
use longhaul_api::dead::{ReplayBody, ReplayChangesBody};
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

/// How long a task that was closed may take to have its dead letter.
const LETTER_LIMIT: Duration = Duration::from_secs(30);

/// Statuses of tasks that wait for nothing but a worker or their next attempt. The new task would
/// not wait for the tasks and the time that others wait for.
const WAITING: [&str; 2] = ["ready", "retrying"];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task retry tasks@12:3:-1 --reason 'the disk has space again'
  longhaul task retry tasks@12:3:-1 tasks@12:4:-1 -o json
  longhaul task retry tasks --type report --changed-after '1h ago'
  longhaul task retry tasks@12:3:-1 --waiting --priority high

Each task runs again as a new task, whose name is printed. `longhaul dead replay` does the same \
for all dead letters that match a filter.

With --waiting, you can change the priority, payload or limits of a waiting task: the command \
closes it as failed, and a new task replaces it, without its dedupe key and its expiry. Tasks \
that wait for the old task see it fail. The queue needs a running worker, and dead letters. A \
task that waits for its start time, or for other tasks, stays unchanged.")]
pub(crate) struct TaskRetryArgs {
    #[command(flatten)]
    tasks: TaskSelectionArgs,
    /// Restart tasks that still wait for a worker or for their next attempt.
    #[arg(long)]
    waiting: bool,
    #[command(flatten)]
    changes: ReplayChangeArgs,
}

/// # Errors
/// When one of them could not be replayed.
pub(crate) async fn retry(
    service: &GatewayClient,
    it: TaskRetryArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let statuses = if it.waiting { &WAITING[..] } else { &["failed"] };
    let tasks = it.tasks.tasks(service, ("run once more", statuses), context).await?;
    let changes = it.changes.body(tasks.len())?;
    let mut outcomes = BulkOutcomes::new(context);
    let replays = stream::iter(tasks).map(async |task| {
        let replayed = if it.waiting {
            replace(service, &task, changes.clone(), context).await
        } else {
            service.replay(&task, context.reason(), changes.clone()).await
        };
        (named(&task), replayed)
    });
    let mut replays = pin!(replays.buffered(AT_ONCE));
    while let Some((task, replayed)) = replays.next().await {
        outcomes.put(task, replayed.and_then(dead::restarted))?;
    }
    outcomes.finish()
}

/// Closes a task that waits, and replays it.
async fn replace(
    service: &GatewayClient,
    task: &TaskRef,
    changes: Option<ReplayChangesBody>,
    context: &CommandContext,
) -> anyhow::Result<ReplayBody> {
    close_waiting(service, task, context).await?;
    let replayed = service.replay(task, context.reason(), changes).await?;
    // The workers of the queue were built to keep no dead letters, or this one had no room for the
    // payload.
    if matches!(&*replayed.outcome, "NOT_FOUND" | "NO_PAYLOAD") {
        let what = "the task was closed, but has no dead letter with its payload";
        let help =
            format!("submit it again: `longhaul task payload {}` prints its payload", named(task));
        return Err(CommandFailure::not_found(what).help(help).into());
    }
    Ok(replayed)
}

/// Closes a task that waits as failed, and waits for its dead letter. If this is cut off, the letter
/// is still there: the same command goes on with it.
async fn close_waiting(
    service: &GatewayClient,
    task: &TaskRef,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let shown = service.task(task).await?.ok_or_else(|| no_task(task))?;
    if shown.status == "failed" {
        return Ok(());
    }
    if !WAITING.contains(&&*shown.status) {
        let what =
            format!("the task is {}; only ready and retrying tasks can be replaced", shown.status);
        return Err(CommandFailure::new(Code::Conflict, what).into());
    }
    let letters = service.settings(&task.topic).await?.settings.dead_letters;
    if letters.and_then(|it| it.enabled) == Some(false) {
        let what = "the queue keeps no dead letters, which replacing a task needs";
        return Err(CommandFailure::new(Code::Conflict, what).into());
    }
    // In another epoch it runs by now, and is left alone.
    let close = TaskAction::ForceFail(Some(shown.epoch.unwrap_or_default()));
    service.act(task, close, context.reason()).await?;
    // Its letter is published before its end is shown.
    match timeout(LETTER_LIMIT, service.ended(task)).await {
        Ok(ended) => ended.map(drop),
        Err(_) => {
            let what = "the task was closed, but its dead letter is not written yet";
            let help = "start a worker and run the same command again";
            Err(CommandFailure::new(Code::TimedOut, what).help(help).into())
        }
    }
}
