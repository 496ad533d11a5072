//! `longhaul task list` and `longhaul task count`.

use crate::context::CommandContext;
use crate::service::gateway::GatewayClient;
use crate::service::queues::ListedQueue;
use crate::service::tasks::{
    TaskListOrder, TaskListRequest, count_fields, retain_counts, statuses,
};
use crate::times;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use longhaul_api::queue::PurgeBody;
use longhaul_api::values::Instant;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task list tasks --status running,retrying
  longhaul task list tasks --status ready,waiting --why
  longhaul task list tasks --at '30m ago' --tag newsletter -o jsonl
  longhaul task list tasks --status failed --changed-after 2026-11-20T07:00Z --all -q")]
pub(crate) struct TaskListArgs {
    /// Name of the queue (its task topic).
    queue: String,
    /// List the tasks as they were at this instant, such as `30m ago`.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant_ms, allow_hyphen_values = true)]
    at: Option<u64>,
    /// List the tasks in this order.
    #[arg(long, value_enum, default_value_t = TaskListOrder::Newest)]
    order: TaskListOrder,
    /// List at most this many tasks.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
    /// Continue a list that was cut off after this id.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    after: Option<String>,
    /// List all tasks, without a limit.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Show why each waiting task does not run. This reads the message of each of them.
    #[arg(long, conflicts_with = "at")]
    why: bool,
    // Last: later options would appear in its group of the help.
    #[command(flatten)]
    filter: TaskFilterArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul task count tasks --status ready,running
  longhaul task count tasks --at '1h ago' -o json")]
pub(crate) struct TaskCountArgs {
    /// Name of the queue (its task topic).
    queue: String,
    /// Count only tasks with one of these statuses, separated by commas.
    #[arg(short, long, value_name = "STATUSES", value_delimiter = ',', value_parser = status)]
    status: Vec<&'static str>,
    /// Count the tasks as they were at this instant, such as `30m ago`.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant_ms, allow_hyphen_values = true)]
    at: Option<u64>,
}

/// Selects tasks.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which tasks")]
pub(crate) struct TaskFilterArgs {
    /// Select tasks with one of these statuses, separated by commas: scheduled, ready, waiting,
    /// claimed, running, retrying, completed, failed, cancelled, expired, ended.
    #[arg(short, long, value_name = "STATUSES", value_delimiter = ',', value_parser = status)]
    status: Vec<&'static str>,
    /// Select tasks with this tag. Repeat the option to require several tags.
    #[arg(long, value_name = "WORD", value_parser = NonEmptyStringValueParser::new())]
    tag: Vec<String>,
    /// Select tasks of this type.
    #[arg(long = "type", value_name = "TYPE", value_parser = NonEmptyStringValueParser::new())]
    task_type: Option<String>,
    /// Select tasks with this key.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// Select tasks with each of these words in their id, key, type, tags or failure reason.
    #[arg(long, value_name = "WORDS", value_parser = NonEmptyStringValueParser::new())]
    text: Option<String>,
    /// Select tasks submitted at this instant or later.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant, allow_hyphen_values = true)]
    created_after: Option<Instant>,
    /// Select tasks submitted at this instant or earlier.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant, allow_hyphen_values = true)]
    created_before: Option<Instant>,
    /// Select tasks that changed at this instant or later.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant, allow_hyphen_values = true)]
    changed_after: Option<Instant>,
    /// Select tasks that have not changed since this instant.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant, allow_hyphen_values = true)]
    changed_before: Option<Instant>,
}

impl TaskFilterArgs {
    /// As the API takes it.
    pub(crate) fn filter(self) -> PurgeBody {
        PurgeBody {
            status: self.status.into_iter().map(str::to_owned).collect(),
            tag: self.tag,
            task_type: self.task_type,
            key: self.key,
            text: self.text,
            created_from: self.created_after,
            created_to: self.created_before,
            changed_from: self.changed_after,
            changed_to: self.changed_before,
            ..PurgeBody::default()
        }
    }
}

pub(super) fn status(text: &str) -> Result<&'static str, String> {
    let words: Vec<_> = statuses().collect();
    let found = statuses().find(|word| *word == text);
    found.ok_or_else(|| format!("expected one of {}", words.join(", ")))
}

/// # Errors
/// When the queue cannot be read.
pub(crate) async fn list(
    service: &GatewayClient,
    it: TaskListArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let limit = if it.all { usize::MAX } else { it.limit };
    let (filter, why) = (it.filter.filter(), it.why);
    let query =
        TaskListRequest { filter, order: it.order, at_ms: it.at, after: it.after, limit, why };
    let (tasks, next) = service.list(&it.queue, query).await?;
    context.output.list(&tasks)?;
    if let Some(next) = next {
        context
            .output
            .note(&format!("there are more: continue with --after {next}, or list all with --all"));
    }
    Ok(())
}

/// # Errors
/// When the queue cannot be read.
pub(crate) async fn count(
    service: &GatewayClient,
    it: TaskCountArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut counts = service.counts(&it.queue, it.at).await?;
    if !it.status.is_empty() {
        retain_counts(&mut counts, &it.status);
    }
    let fields = count_fields(&counts);
    Ok(context.output.one(&ListedQueue { queue: it.queue, counts: Some(counts) }, &fields)?)
}
