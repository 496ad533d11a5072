//! `longhaul task cancel`, `kill`, `delete`, `retry`, `force-fail` and `force-release`.

use crate::commands::bulk::BulkOutcomes;
use crate::commands::dead;
use crate::context::CommandContext;
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{TaskOperation, named, parse_task};
use clap::Args;
use longhaul::TaskRef;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task retry tasks@12:3:-1 --reason 'the disk has space again'
  longhaul task retry tasks@12:3:-1 tasks@12:4:-1 -o json

The task runs once more as a new one, whose name is told. `longhaul dead replay` does so for all that a filter takes.")]
pub(crate) struct TaskRetryArgs {
    /// The tasks, as QUEUE@ID.
    #[arg(required = true, value_name = "TASK", value_parser = parse_task)]
    tasks: Vec<TaskRef>,
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

/// # Errors
/// When an operation on one of them failed.
pub(crate) async fn act(
    service: &GatewayClient,
    tasks: &[TaskRef],
    act: TaskOperation,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut outcomes = BulkOutcomes::new(context);
    for task in tasks {
        let acted = service.act(task, act, context.reason()).await;
        outcomes.put(named(task), acted.map(|()| act.done()))?;
    }
    outcomes.finish()
}

/// # Errors
/// As [`act`].
pub(crate) async fn force_fail(
    service: &GatewayClient,
    it: ForceFail,
    context: &CommandContext,
) -> anyhow::Result<()> {
    act(service, &[it.task], TaskOperation::ForceFail(it.epoch), context).await
}

/// # Errors
/// As [`act`].
pub(crate) async fn force_release(
    service: &GatewayClient,
    it: ForceRelease,
    context: &CommandContext,
) -> anyhow::Result<()> {
    act(service, &[it.task], TaskOperation::ForceRelease(it.epoch), context).await
}

/// # Errors
/// When one of them could not be replayed.
pub(crate) async fn retry(
    service: &GatewayClient,
    it: &TaskRetryArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut outcomes = BulkOutcomes::new(context);
    for task in &it.tasks {
        let replayed = service.replay(task, context.reason()).await;
        dead::tell(&mut outcomes, named(task), replayed)?;
    }
    outcomes.finish()
}
