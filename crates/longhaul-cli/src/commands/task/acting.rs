//! `longhaul task cancel`, `kill`, `delete`, `reschedule`, `force-fail` and `force-release`.

use super::selecting::TaskSelectionArgs;
use crate::clock;
use crate::commands::bulk::BulkOutcomes;
use crate::context::CommandContext;
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{named, open_statuses, parse_task};
use crate::times;
use clap::Args;
use futures::{StreamExt, stream};
use longhaul::TaskRef;
use longhaul_api::action::TaskAction;
use longhaul_api::values::Instant;
use std::pin::pin;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task reschedule tasks@12:3:-1 --now --reason 'its server is back'
  longhaul task reschedule tasks --status retrying --all --delay 2h
  longhaul task reschedule tasks@12:3:-1 --hold

The used attempts stay the same. A pause of the queue and limits still apply. The command refuses \
a task that runs or waits for other tasks, and a task without an attempt that has an order key or \
a total budget.")]
pub(crate) struct TaskRescheduleArgs {
    #[command(flatten)]
    tasks: TaskSelectionArgs,
    #[command(flatten)]
    to: NewTimeArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct NewTimeArgs {
    /// Start the tasks as soon as a worker is free.
    #[arg(long)]
    now: bool,
    /// Start the tasks after this time.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    delay: Option<Duration>,
    /// Start the tasks at this instant, such as 2027-01-01T08:00:00Z.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant)]
    at: Option<Instant>,
    /// Hold the tasks until they are rescheduled again.
    #[arg(long)]
    hold: bool,
}

/// A task, and the epoch in which it may be acted upon.
#[derive(Debug, Args)]
pub(crate) struct TaskEpochArgs {
    /// Name of the task, as QUEUE@ID.
    #[arg(value_parser = parse_task)]
    task: TaskRef,
    /// Act only if the task is still in this epoch. Default: its current epoch.
    #[arg(long)]
    epoch: Option<u32>,
}

/// The delay of a task that is held: 100 years.
const HELD: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How many tasks are acted upon at once.
pub(super) const AT_ONCE: usize = 16;

/// Runs an action on tasks that are not over.
///
/// # Errors
/// When the action on one of them failed.
pub(crate) async fn act_on_all(
    service: &GatewayClient,
    which: TaskSelectionArgs,
    action: TaskAction,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let open: Vec<_> = open_statuses().collect();
    let tasks = which.tasks(service, (action.word(), &open), context).await?;
    act(service, tasks, action, context).await
}

async fn act(
    service: &GatewayClient,
    tasks: Vec<TaskRef>,
    action: TaskAction,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut outcomes = BulkOutcomes::new(context);
    let acts = stream::iter(tasks).map(async |task| {
        let acted = service.act(&task, action, context.reason()).await;
        (named(&task), acted.map(|()| (done(action), None)))
    });
    let mut acts = pin!(acts.buffered(AT_ONCE));
    while let Some((task, acted)) = acts.next().await {
        outcomes.put(task, acted)?;
    }
    outcomes.finish()
}

/// The result of an action, as a word.
const fn done(action: TaskAction) -> &'static str {
    match action {
        TaskAction::Cancel => "cancel requested",
        TaskAction::Kill => "kill requested",
        TaskAction::Delete => "deleted",
        TaskAction::ForceFail(_) => "failed",
        TaskAction::ForceRelease(_) => "released",
        TaskAction::Reschedule(_) => "rescheduled",
    }
}

/// # Errors
/// As [`act_on_all`].
pub(crate) async fn reschedule(
    service: &GatewayClient,
    it: TaskRescheduleArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let NewTimeArgs { delay, at, hold, .. } = it.to;
    let until = |at: Instant| Duration::from_millis(at.ms().saturating_sub(clock::wall_ms()));
    let delay = if hold { HELD } else { delay.or_else(|| at.map(until)).unwrap_or_default() };
    let waiting = ["ready", "scheduled", "retrying"];
    let tasks = it.tasks.tasks(service, ("reschedule", &waiting), context).await?;
    act(service, tasks, TaskAction::Reschedule(delay), context).await
}

/// Closes the task as failed for good, or takes it from its worker.
///
/// # Errors
/// As [`act_on_all`].
pub(crate) async fn force(
    service: &GatewayClient,
    it: TaskEpochArgs,
    action: impl FnOnce(Option<u32>) -> TaskAction,
    context: &CommandContext,
) -> anyhow::Result<()> {
    act(service, vec![it.task], action(it.epoch), context).await
}
