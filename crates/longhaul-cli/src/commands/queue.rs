//! `longhaul queue`: queues, their limits and their settings.

mod settings;

use super::bulk::BulkOutcomes;
use super::task::listing::TaskFilterArgs;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure, code_of};
use crate::service::gateway::{GatewayClient, early_end};
use crate::service::queues::ListedQueue;
use crate::times;
use clap::{Args, Subcommand};
use futures::{StreamExt, TryStreamExt, stream};
use longhaul_api::queue::{NewQueue, PurgeBody};
use longhaul_api::values::Length;
use serde_json::json;
use settings::{QueueLimitsCommand, SettingsCommand};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List the queues of a namespace with their task counts; needs the admin API.
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  longhaul queue list
  longhaul queue list acme/production --admin-url http://localhost:8080"
    )]
    List {
        /// Tenant and namespace of the queues.
        // Its name is not that of the setting `namespace`, which it would set.
        #[arg(value_name = "NAMESPACE", default_value = "public/default")]
        within: String,
    },
    /// Create a queue, or correct its topics; needs the admin API.
    #[command(after_help = "\
Examples:
  longhaul queue create tasks
  longhaul queue create tasks --levels --partitions 4")]
    Create(QueueCreateArgs),
    /// Delete a queue with all its tasks and their history; needs the admin API.
    #[command(
        visible_alias = "rm",
        after_help = "\
Examples:
  longhaul queue delete tasks --reason 'moved to another cluster'
  longhaul queue delete tasks --yes"
    )]
    Delete {
        /// Name of the queue (its task topic).
        queue: String,
    },
    /// Show the state of a queue: tasks by status, workers, dead letters.
    #[command(after_help = "\
Examples:
  longhaul queue stats tasks
  longhaul queue stats tasks -o json")]
    Stats {
        /// Name of the queue (its task topic).
        queue: String,
    },
    /// Pause a queue: no task starts, and running tasks continue.
    #[command(after_help = "\
Examples:
  longhaul queue pause tasks
  longhaul queue pause tasks -o json")]
    Pause {
        /// Name of the queue (its task topic).
        queue: String,
    },
    /// Resume a paused queue: tasks start again.
    #[command(after_help = "\
Examples:
  longhaul queue resume tasks
  longhaul queue resume tasks -o json")]
    Resume {
        /// Name of the queue (its task topic).
        queue: String,
    },
    /// Show or set limits over all workers: tasks at once, and tasks started per time.
    #[command(subcommand)]
    Limits(QueueLimitsCommand),
    /// Show or change the settings of a queue, such as the defaults of its tasks.
    #[command(subcommand)]
    Settings(SettingsCommand),
    /// Delete all unfinished tasks that match a filter.
    #[command(after_help = "\
Examples:
  longhaul queue purge tasks --tag test --reason 'load test is over' --yes
  longhaul queue purge tasks --status ready --created-before '1 day ago'")]
    Purge {
        /// Name of the queue (its task topic).
        queue: String,
        /// Delete all unfinished tasks, if no filter is given.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        filter: TaskFilterArgs,
    },
    /// Show the actions of operators: who did what, when and why.
    #[command(after_help = "\
Examples:
  longhaul queue actions tasks
  longhaul queue actions tasks --limit 1000 -o jsonl")]
    Actions {
        /// Name of the queue (its task topic).
        queue: String,
        /// Show at most this many actions, the newest ones.
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
}

#[derive(Debug, Args)]
pub(crate) struct QueueCreateArgs {
    /// Name of the queue (its task topic).
    queue: String,
    /// Create topics with this many partitions. The number can be raised later. Default: none for a
    /// new queue.
    #[arg(long, value_name = "COUNT")]
    partitions: Option<u32>,
    /// Create topics for tasks of high and of low priority as well.
    #[arg(long)]
    levels: bool,
    /// Keep a finished task in the ledger for this time. Default: 1h.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    ledger_retention: Option<Duration>,
}

/// # Errors
/// When the command fails.
pub(crate) async fn run(command: QueueCommand, context: &CommandContext) -> anyhow::Result<()> {
    let service = &context.service().await?;
    match command {
        QueueCommand::List { within } => list(service, &within, context).await,
        QueueCommand::Create(it) => create(service, it, context).await,
        QueueCommand::Delete { queue } => {
            context.confirm(&format!("delete the queue `{queue}` with all its tasks?"))?;
            service.delete_queue(&queue, context.reason()).await?;
            let record = json!({ "queue": queue, "outcome": "deleted" });
            Ok(context.output.one(&record, &[("deleted", queue)])?)
        }
        QueueCommand::Stats { queue } => {
            let stats = service.stats(&queue).await?;
            Ok(context.output.one(&stats, &stats.fields())?)
        }
        QueueCommand::Pause { queue } => {
            settings::told(service.set_paused(&queue, true, context.reason()).await?, context)
        }
        QueueCommand::Resume { queue } => {
            settings::told(service.set_paused(&queue, false, context.reason()).await?, context)
        }
        QueueCommand::Limits(it) => settings::run_limits(service, it, context).await,
        QueueCommand::Settings(it) => settings::run(service, it, context).await,
        QueueCommand::Purge { queue, filter, all } => {
            purge(service, &queue, filter, all, context).await
        }
        QueueCommand::Actions { queue, limit } => {
            Ok(context.output.list(&service.actions(&queue, limit).await?)?)
        }
    }
}

/// The most queues whose tasks are counted in a list.
const COUNTED_MAX: usize = 100;

/// How many queues are asked for their counts at once.
const AT_ONCE: usize = 8;

async fn list(
    service: &GatewayClient,
    namespace: &str,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut names = service.queues(namespace).await?;
    if names.len() > COUNTED_MAX || context.output.quiet {
        let row = |queue| ListedQueue { queue, counts: None };
        let many = names.len();
        context.output.list(&names.drain(..).map(row).collect::<Vec<_>>())?;
        context.output.note(&format!(
            "tasks are not counted: there are {many} queues, and the limit is {COUNTED_MAX}; \
             `longhaul queue stats QUEUE` counts those of one queue"
        ));
        return Ok(());
    }
    let row = async |queue: String| {
        let counted = async { service.counts_of(&service.levels(&queue).await?).await };
        match counted.await {
            Err(error) if code_of(&error) == Code::Unreachable => Err(error),
            // One that cannot be counted, or was deleted meanwhile, does not hide the others.
            Err(error) => {
                context.output.note(&format!("cannot count the tasks of `{queue}`: {error}"));
                Ok(ListedQueue { queue, counts: None })
            }
            Ok(counts) => Ok(ListedQueue { queue, counts: Some(counts) }),
        }
    };
    let rows: Vec<_> = stream::iter(names).map(row).buffered(AT_ONCE).try_collect().await?;
    Ok(context.output.list(&rows)?)
}

async fn create(
    service: &GatewayClient,
    it: QueueCreateArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let queue = NewQueue {
        partitions: it.partitions,
        levels: it.levels,
        ledger_retention: it.ledger_retention.map(Length),
        defaults: None,
    };
    let created = service.create_queue(&it.queue, &queue).await?;
    let done = if created.steps.is_empty() { "it existed already" } else { "it exists now" };
    let fields =
        [("queue", it.queue), ("created", done.to_owned()), ("steps", created.steps.join("\n"))];
    Ok(context.output.one(&created, &fields)?)
}

async fn purge(
    service: &GatewayClient,
    queue: &str,
    filter: TaskFilterArgs,
    all: bool,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let filter = filter.filter();
    if filter == PurgeBody::default() && !all {
        return Err(CommandFailure::usage("no filter selects the tasks to delete")
            .help("give one, such as --tag test, or --all")
            .into());
    }
    context.confirm(&format!("delete all matching unfinished tasks of the queue `{queue}`?"))?;
    let mut outcomes = BulkOutcomes::new(context);
    let purged = service.purge(queue, filter, context.reason()).await?;
    if purged.deleted > 0 {
        outcomes.done(format!("{} tasks", purged.deleted), "deleted", None)?;
    }
    if purged.failed > 0 {
        let error = anyhow::anyhow!("the gateway could not delete them");
        outcomes.failed(format!("{} tasks", purged.failed), error)?;
    }
    if let Some(why) = purged.stopped {
        outcomes.failed(queue.to_owned(), early_end(&why))?;
    }
    outcomes.finish()
}
