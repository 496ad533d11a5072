//! `longhaul task`: submit, read, follow and end tasks.

mod acting;
mod following;
mod lines;
pub(crate) mod listing;
mod retrying;
mod selecting;
pub(crate) mod submitting;

use crate::context::CommandContext;
use crate::exit::CommandFailure;
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{attempts_in_words, history_rows, named, no_task, parse_task};
use crate::times;
use clap::Subcommand;
use longhaul::TaskRef;
use longhaul_api::action::TaskAction;
use longhaul_api::task::TaskLimitsBody;
use selecting::TaskSelectionArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Submit a task, or one for each line of the payload.
    Submit(Box<submitting::Submit>),
    /// Show tasks: status, attempts, progress, result or failure.
    #[command(after_help = "\
Examples:
  longhaul task get tasks@12:3:-1
  longhaul task get tasks@12:3:-1 tasks@12:4:-1 -o json")]
    Get {
        /// Names of the tasks, as QUEUE@ID.
        #[arg(required = true, value_name = "TASK", value_parser = parse_task)]
        tasks: Vec<TaskRef>,
    },
    /// List the tasks of a queue, now or at a past instant.
    #[command(visible_alias = "ls")]
    List(listing::TaskListArgs),
    /// Count the tasks of a queue by status.
    Count(listing::TaskCountArgs),
    /// Wait until tasks are over.
    Wait(following::TaskWaitArgs),
    /// Watch the tasks of a queue, or one task, and print each change.
    Watch(following::TaskWatchArgs),
    /// Show the history of a task, entry by entry.
    #[command(after_help = "\
Examples:
  longhaul task history tasks@12:3:-1
  longhaul task history tasks@12:3:-1 --log-lines
  longhaul task history tasks@12:3:-1 -o jsonl")]
    History {
        /// Name of the task, as QUEUE@ID.
        #[arg(value_parser = parse_task)]
        task: TaskRef,
        /// Show the newest 1,000 log lines of all attempts as well.
        #[arg(long)]
        log_lines: bool,
    },
    /// Show why a task does not run, or which worker runs it.
    #[command(after_help = "\
Examples:
  longhaul task why tasks@12:3:-1
  longhaul task why tasks@12:3:-1 -o json")]
    Why {
        /// Name of the task, as QUEUE@ID.
        #[arg(value_parser = parse_task)]
        task: TaskRef,
    },
    /// Request the cancellation of waiting or running tasks.
    #[command(after_help = "\
Examples:
  longhaul task cancel tasks@12:3:-1
  longhaul task cancel tasks@12:3:-1 tasks@12:4:-1 --operator ann
  longhaul task cancel tasks --tag newsletter --reason 'wrong text'")]
    Cancel(TaskSelectionArgs),
    /// End tasks without waiting for their processors.
    #[command(after_help = "\
Examples:
  longhaul task kill tasks@12:3:-1
  longhaul task kill tasks --status running --changed-before '2h ago' --yes")]
    Kill(TaskSelectionArgs),
    /// Start waiting tasks now, delay them, or hold them.
    Reschedule(acting::TaskRescheduleArgs),
    /// Run tasks that failed for good again; with --waiting, restart waiting tasks.
    Retry(retrying::TaskRetryArgs),
    /// Close unfinished tasks, whether they wait or run.
    #[command(
        visible_alias = "rm",
        after_help = "\
Examples:
  longhaul task delete tasks@12:3:-1 --reason 'wrong customer'
  longhaul task delete tasks --type report --created-before '1 day ago'

`longhaul queue purge` deletes all unfinished tasks that match a filter, and prints only their \
number."
    )]
    Delete(TaskSelectionArgs),
    /// Close a hanging task as failed for good.
    #[command(after_help = "\
Examples:
  longhaul task force-fail tasks@12:3:-1 --epoch 2 --reason 'its worker hangs'
  longhaul task force-fail tasks@12:3:-1

`longhaul task list -o json` shows epochs. If the task is in another epoch than --epoch, the \
command changes nothing and exits with code 4.")]
    ForceFail(acting::TaskEpochArgs),
    /// Take a task from a worker that hangs.
    #[command(after_help = "\
Examples:
  longhaul task force-release tasks@12:3:-1 --epoch 2
  longhaul task force-release tasks@12:3:-1 --reason 'its worker hangs'

Another worker runs the task after two heartbeat intervals, or the same one when its processor \
has stopped. The attempt counts; if it was the last one, the task fails.")]
    ForceRelease(acting::TaskEpochArgs),
    /// Print the result of a task, byte for byte.
    #[command(after_help = "\
Examples:
  longhaul task result tasks@12:3:-1
  longhaul task result tasks@12:3:-1 --wait > report.pdf")]
    Result {
        /// Name of the task, as QUEUE@ID.
        #[arg(value_parser = parse_task)]
        task: TaskRef,
        /// Wait until the task is over.
        #[arg(long)]
        wait: bool,
    },
    /// Print the payload of a task, byte for byte.
    #[command(after_help = "\
Examples:
  longhaul task payload tasks@12:3:-1
  longhaul task payload tasks@12:3:-1 --properties -o json")]
    Payload {
        /// Name of the task, as QUEUE@ID.
        #[arg(value_parser = parse_task)]
        task: TaskRef,
        /// Show the properties of the task's message instead.
        #[arg(long)]
        properties: bool,
    },
}

/// # Errors
/// When the command fails.
pub(crate) async fn run(command: TaskCommand, context: &CommandContext) -> anyhow::Result<()> {
    Box::pin(run_on(&context.service().await?, command, context)).await
}

async fn run_on(
    service: &GatewayClient,
    command: TaskCommand,
    context: &CommandContext,
) -> anyhow::Result<()> {
    match command {
        TaskCommand::Submit(it) => submitting::run(service, *it, context).await,
        TaskCommand::Get { tasks } => get(service, &tasks, context).await,
        TaskCommand::List(it) => listing::list(service, it, context).await,
        TaskCommand::Count(it) => listing::count(service, it, context).await,
        TaskCommand::Wait(it) => following::wait(service, &it, context).await,
        TaskCommand::Watch(it) => following::watch(service, &it, context).await,
        TaskCommand::History { task, log_lines } => {
            history(service, &task, log_lines, context).await
        }
        TaskCommand::Why { task } => why(service, &task, context).await,
        TaskCommand::Cancel(it) => {
            acting::act_on_all(service, it, TaskAction::Cancel, context).await
        }
        TaskCommand::Kill(it) => acting::act_on_all(service, it, TaskAction::Kill, context).await,
        TaskCommand::Delete(it) => {
            acting::act_on_all(service, it, TaskAction::Delete, context).await
        }
        TaskCommand::Reschedule(it) => acting::reschedule(service, it, context).await,
        TaskCommand::Retry(it) => retrying::retry(service, it, context).await,
        TaskCommand::ForceFail(it) => {
            acting::force(service, it, TaskAction::ForceFail, context).await
        }
        TaskCommand::ForceRelease(it) => {
            acting::force(service, it, TaskAction::ForceRelease, context).await
        }
        TaskCommand::Result { task, wait } => result(service, &task, wait, context).await,
        TaskCommand::Payload { task, properties } => {
            payload(service, &task, properties, context).await
        }
    }
}

async fn get(
    service: &GatewayClient,
    tasks: &[TaskRef],
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut missing = None;
    for task in tasks {
        match service.task(task).await? {
            Some(found) => context.output.one(&found, &found.fields())?,
            None => missing = missing.or(Some(task)),
        }
    }
    missing.map_or(Ok(()), |task| Err(no_task(task).into()))
}

async fn history(
    service: &GatewayClient,
    task: &TaskRef,
    has_log: bool,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let history = service.history(task).await?;
    if history.entries.is_empty() {
        let what = format!("the log has no entry about {}", named(task));
        return Err(CommandFailure::not_found(what)
            .help(
                "check the task with `longhaul task get`: it was not claimed yet, or its \
                entries were removed (after a day by default)",
            )
            .into());
    }
    if !history.is_whole {
        context.output.note(
            "note: the first entries of the task were removed, so it is unknown \
            which of the others counted",
        );
    }
    let rows = history_rows(&history, has_log);
    if !context.output.is_for_people() {
        return Ok(context.output.one(&history, &[])?);
    }
    Ok(context.output.list(&rows)?)
}

async fn why(
    service: &GatewayClient,
    task: &TaskRef,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let reason = service.why(task).await?.ok_or_else(|| no_task(task))?;
    let TaskLimitsBody { max_attempts, max_duration, max_total_duration, expires_at } =
        reason.limits;
    let limits = [
        max_attempts.map(attempts_in_words),
        max_duration.map(|it| format!("{} for each", times::human(it.0))),
        max_total_duration.map(|it| format!("{} in all", times::human(it.0))),
        expires_at.map(|at| format!("none begins after {}", times::iso(at))),
    ];
    let fields = [
        ("task", reason.task.clone()),
        ("status", reason.status.to_string()),
        ("why", reason.sentence.clone()),
        ("limits", limits.into_iter().flatten().collect::<Vec<_>>().join(", ")),
    ];
    Ok(context.output.one(&reason, &fields)?)
}

async fn result(
    service: &GatewayClient,
    task: &TaskRef,
    wait: bool,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let task = if wait {
        service.ended(task).await?
    } else {
        service.task(task).await?.ok_or_else(|| no_task(task))?
    };
    following::print_result(&task, context)
}

async fn payload(
    service: &GatewayClient,
    task: &TaskRef,
    properties: bool,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let gone = || {
        let what = format!("the message of {} is no longer stored on the task topic", named(task));
        let help = "if the task failed for good, `longhaul dead show` has its payload";
        CommandFailure::not_found(what).help(help)
    };
    if !properties {
        let payload = service.payload(task).await?.ok_or_else(gone)?;
        return Ok(context.output.bytes(&payload)?);
    }
    let properties = service.properties(task).await?.ok_or_else(gone)?;
    let fields: Vec<_> = properties.iter().map(|(name, it)| (name.as_str(), it.clone())).collect();
    Ok(context.output.one(&properties, &fields)?)
}
