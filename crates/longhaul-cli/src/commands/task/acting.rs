//! `longhaul task cancel`, `kill`, `delete`, `reschedule`, `force-fail` and `force-release`.

use super::selecting::TaskSelectionArgs;
use crate::clock;
use crate::commands::bulk::BulkOutcomes;
use crate::context::CommandContext;
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{TaskOperation, named, open_statuses, parse_task};
use crate::times;
use clap::Args;
use futures::{StreamExt, stream};
use longhaul::TaskRef;
use longhaul_api::values::Instant;
use std::pin::pin;
use std::time::{Duration, SystemTime};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task reschedule tasks@12:3:-1 --now --reason 'its server is back'
  longhaul task reschedule tasks --status retrying --all --delay 2h
  longhaul task reschedule tasks@12:3:-1 --hold

The attempts that it has used stay the same. A pause of its queue and limits still apply. A task that runs, or waits for
other tasks, is not rescheduled, nor one that has not begun and has an order key or a total budget.")]
pub(crate) struct TaskRescheduleArgs {
    #[command(flatten)]
    tasks: TaskSelectionArgs,
    #[command(flatten)]
    to: NewTimeArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct NewTimeArgs {
    /// It begins as soon as a worker is free.
    #[arg(long)]
    now: bool,
    /// It begins so long from now.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    delay: Option<Duration>,
    /// It begins at this instant, such as 2027-01-01T08:00:00Z.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant)]
    at: Option<SystemTime>,
    /// It does not begin before it is rescheduled once more.
    #[arg(long)]
    hold: bool,
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

/// The delay of a task that is held: 100 years.
const HELD: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How many tasks are acted upon at once.
pub(super) const AT_ONCE: usize = 16;

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
pub(crate) async fn reschedule(
    service: &GatewayClient,
    it: TaskRescheduleArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let NewTimeArgs { delay, at, hold, .. } = it.to;
    let ahead_ms = |at| Instant(at).ms().saturating_sub(clock::wall_ms());
    let until = |at| Duration::from_millis(ahead_ms(at));
    let delay = if hold { HELD } else { delay.or_else(|| at.map(until)).unwrap_or_default() };
    let operation = TaskOperation::Reschedule(delay);
    let waiting = ["ready", "scheduled", "retrying"];
    let tasks = it.tasks.tasks(service, (operation.verb(), &waiting), context).await?;
    act(service, tasks, operation, context).await
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
