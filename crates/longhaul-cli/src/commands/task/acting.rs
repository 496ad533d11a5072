//! `longhaul task cancel`, `kill`, `delete`, `retry`, `force-fail` and `force-release`.

use super::selecting::TaskSelectionArgs;
use crate::commands::bulk::BulkOutcomes;
use crate::commands::dead::{self, ReplayChangeArgs};
use crate::context::CommandContext;
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{TaskOperation, named, open_statuses, parse_task};
use clap::Args;
use futures::{StreamExt, stream};
use longhaul::TaskRef;
use std::pin::pin;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task retry tasks@12:3:-1 --reason 'the disk has space again'
  longhaul task retry tasks@12:3:-1 tasks@12:4:-1 -o json
  longhaul task retry tasks --type report --changed-after '1h ago'

The task runs once more as a new one, whose name is told. `longhaul dead replay` does so for all that a filter takes.")]
pub(crate) struct TaskRetryArgs {
    #[command(flatten)]
    tasks: TaskSelectionArgs,
    #[command(flatten)]
    changes: ReplayChangeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task force-fail tasks@12:3:-1 --epoch 2 --reason 'its worker hangs'
  longhaul task force-fail tasks@12:3:-1

`longhaul task list -o json` shows epochs. If the task has changed hands since the epoch that you name, nothing happens.")]
pub(crate) struct ForceFail {
    /// The task, as QUEUE@ID.
    #[arg(value_parser = parse_task)]
    task: TaskRef,
    /// The epoch that you have seen it in; without it, the one that it is in now.
    #[arg(long)]
    epoch: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task force-release tasks@12:3:-1 --epoch 2
  longhaul task force-release tasks@12:3:-1 --reason 'its worker hangs'

Another worker takes it after two heartbeat intervals. The attempt counts.")]
pub(crate) struct ForceRelease {
    /// The task, as QUEUE@ID.
    #[arg(value_parser = parse_task)]
    task: TaskRef,
    /// The epoch that you have seen it in; without it, the one that it is in now.
    #[arg(long)]
    epoch: Option<u32>,
}

/// How many tasks are acted upon at once.
const AT_ONCE: usize = 16;

/// # Errors
/// When an operation on one of them failed.
pub(crate) async fn act_on_all(
    service: &GatewayClient,
    which: TaskSelectionArgs,
    operation: TaskOperation,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let open: Vec<_> = open_statuses().collect();
    let tasks = which.tasks(service, (operation.verb(), &open), context).await?;
    act(service, tasks, operation, context).await
}

async fn act(
    service: &GatewayClient,
    tasks: Vec<TaskRef>,
    act: TaskOperation,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut outcomes = BulkOutcomes::new(context);
    let acts = stream::iter(tasks).map(async |task| {
        let acted = service.act(&task, act, context.reason()).await;
        (named(&task), acted.map(|()| act.done()))
    });
    let mut acts = pin!(acts.buffered(AT_ONCE));
    while let Some((task, acted)) = acts.next().await {
        outcomes.put(task, acted)?;
    }
    outcomes.finish()
}

/// # Errors
/// As [`act_on_all`].
pub(crate) async fn force_fail(
    service: &GatewayClient,
    it: ForceFail,
    context: &CommandContext,
) -> anyhow::Result<()> {
    act(service, vec![it.task], TaskOperation::ForceFail(it.epoch), context).await
}

/// # Errors
/// As [`act_on_all`].
pub(crate) async fn force_release(
    service: &GatewayClient,
    it: ForceRelease,
    context: &CommandContext,
) -> anyhow::Result<()> {
    act(service, vec![it.task], TaskOperation::ForceRelease(it.epoch), context).await
}

/// # Errors
/// When one of them could not be replayed.
pub(crate) async fn retry(
    service: &GatewayClient,
    it: TaskRetryArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let tasks = it.tasks.tasks(service, ("run once more", &["failed"]), context).await?;
    let changes = it.changes.body(tasks.len())?;
    let mut outcomes = BulkOutcomes::new(context);
    for task in tasks {
        let replayed = service.replay(&task, context.reason(), changes.clone()).await;
        dead::tell(&mut outcomes, named(&task), replayed)?;
    }
    outcomes.finish()
}
