//! `longhaul topic` and `longhaul verify`: the topics of a queue, and their content.

use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::service::topics::{
    self, CompactionProgress, FAILED, RUNNING, TopicSetupReport, finding_body, finding_fields,
};
use crate::times;
use clap::{Args, Subcommand};
use longhaul::Queue;
use longhaul::topics::{HistoryRetention, Severity, TopicSettings};
use std::time::Duration;

/// How often a wait checks the progress of a compaction.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Create or correct the topics of a queue for the task protocol; needs the admin API.
    #[command(after_help = "\
Examples:
  longhaul topic setup tasks --admin-url http://localhost:8080
  longhaul topic setup tasks --partitions 4 --history-retention 30d --dry-run")]
    Setup(TopicSetupArgs),
    /// List deviations of the topics, and exit with code 1 if one is an error; needs the admin API.
    #[command(after_help = "\
Examples:
  longhaul topic check tasks --admin-url http://localhost:8080
  longhaul topic check tasks -o json")]
    Check(TopicCheckArgs),
    /// Compact the topics of a queue now; needs the admin API
    ///
    /// The broker also compacts topics by itself as they grow.
    #[command(after_help = "\
Examples:
  longhaul topic compact tasks --admin-url http://localhost:8080
  longhaul topic compact tasks --wait --timeout 10m -o json")]
    Compact(Compact),
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// Name of the queue (its task topic).
    queue: String,
    /// Wait until the compaction is done. Exit with code 1 if it has failed.
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopicCheckArgs {
    /// Name of the queue (its task topic).
    queue: String,
    #[command(flatten)]
    kept: RetentionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TopicSetupArgs {
    /// Name of the queue (its task topic).
    queue: String,
    #[command(flatten)]
    kept: RetentionArgs,
    /// Create topics with this many partitions. Without it, existing topics stay as they are, and
    /// new ones have none.
    #[arg(long, value_name = "COUNT")]
    partitions: Option<u32>,
    /// Set up the topics of the levels high and low as well: tasks with a --priority need them.
    #[arg(long, conflicts_with = "dry_run")]
    levels: bool,
    /// Create a lost subscription at the earliest message, so that all tasks left on the topic are
    /// delivered again.
    #[arg(long)]
    replay: bool,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// The retention times.
#[derive(Debug, Args)]
struct RetentionArgs {
    /// Retention of finished tasks in the ledger.
    #[arg(long, value_name = "TIME", value_parser = times::duration, default_value = "1h")]
    ledger_retention: Duration,
    /// Retention of the log: at least four times --ledger-retention, or `unlimited`. Default: a
    /// day, or four times --ledger-retention if that is longer.
    #[arg(long, value_name = "TIME|unlimited", value_parser = history)]
    history_retention: Option<HistoryRetention>,
}

impl RetentionArgs {
    fn settings(&self) -> TopicSettings {
        TopicSettings {
            ledger_retention: self.ledger_retention,
            history_retention: self.history_retention.unwrap_or_default(),
            ..TopicSettings::default()
        }
    }
}

fn history(text: &str) -> Result<HistoryRetention, String> {
    if text == "unlimited" {
        return Ok(HistoryRetention::Unlimited);
    }
    times::duration(text).map(HistoryRetention::For)
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul verify tasks
  longhaul verify tasks --timeout 10m -o json

Workers may run meanwhile. The command exits with code 1 if an entry breaks an invariant, or if \
it may miss entries because the topics of the queue do not fit together.")]
pub(crate) struct Verify {
    /// Name of the queue (its task topic).
    queue: String,
}

/// # Errors
/// When the command fails.
pub(crate) async fn run(command: TopicCommand, context: &CommandContext) -> anyhow::Result<()> {
    context.needs_broker("the set-up of topics")?;
    let client = context.client().await?;
    match command {
        TopicCommand::Setup(it) => setup(&client.queue(&it.queue), &it, context).await,
        TopicCommand::Check(it) => check(&client.queue(&it.queue), &it, context).await,
        TopicCommand::Compact(it) => compact(&client.queue(&it.queue), &it, context).await,
    }
}

/// Creates or corrects the topics of a queue; on a dry run, shows the changes only.
async fn setup(queue: &Queue, it: &TopicSetupArgs, context: &CommandContext) -> anyhow::Result<()> {
    let settings =
        TopicSettings { partitions: it.partitions, replay: it.replay, ..it.kept.settings() };
    let (steps, findings) = if it.dry_run {
        (queue.plan_topics(settings).await?, Vec::new())
    } else if it.levels {
        let report = queue.setup_levels(settings).await?;
        (report.steps, report.findings)
    } else {
        let report = queue.setup_topics(settings).await?;
        (report.steps, report.findings)
    };
    let report = TopicSetupReport {
        steps: steps.iter().map(ToString::to_string).collect(),
        findings: findings.into_iter().map(finding_body).collect(),
        dry_run: it.dry_run,
    };
    let label = if report.dry_run { "would" } else { "done" };
    let mut fields: Vec<_> = report.steps.iter().map(|step| (label, step.clone())).collect();
    fields.extend(report.findings.iter().flat_map(finding_fields));
    context.output.one(&report, &fields)?;
    if report.steps.is_empty() && context.output.is_for_people() {
        context.output.note("all topics are correct");
    }
    Ok(())
}

/// Shows the differences from the required settings.
async fn check(queue: &Queue, it: &TopicCheckArgs, context: &CommandContext) -> anyhow::Result<()> {
    let found = queue.check_topics(it.kept.settings()).await?.findings;
    let errors = found.iter().filter(|it| it.severity == Severity::Error).count();
    let found: Vec<_> = found.into_iter().map(finding_body).collect();
    if context.output.is_for_people() {
        for finding in &found {
            context.output.one(finding, &finding_fields(finding))?;
        }
        if found.is_empty() {
            context.output.note("all topics are correct");
        }
    } else {
        context.output.one(&found, &[])?;
    }
    if errors == 0 {
        return Ok(());
    }
    let what = format!("{errors} of {} findings are errors", found.len());
    let help = format!("`longhaul topic setup {}` corrects what it can", it.queue);
    Err(CommandFailure::new(Code::Failed, what).help(help).into())
}

/// The progress of compaction, by partition.
async fn compactions(queue: &Queue) -> anyhow::Result<Vec<CompactionProgress>> {
    Ok(queue.compactions().await?.into_iter().map(CompactionProgress::of).collect())
}

async fn compact(queue: &Queue, it: &Compact, context: &CommandContext) -> anyhow::Result<()> {
    queue.compact_topics().await?;
    let mut states = compactions(queue).await?;
    while it.wait && states.iter().any(|it| it.state == RUNNING) {
        tokio::time::sleep(LOOKS_EVERY).await;
        states = compactions(queue).await?;
    }
    if states.is_empty() {
        let help = format!("create them with `longhaul topic setup {}`", it.queue);
        let what = format!("the queue `{}` does not exist: it has no topics", it.queue);
        return Err(CommandFailure::not_found(what).help(help).into());
    }
    context.output.list(&states)?;
    match states.iter().filter(|it| it.state == FAILED).count() {
        0 => Ok(()),
        count => {
            let what = format!("compaction failed on {count} of {} partitions", states.len());
            Err(CommandFailure::new(Code::Failed, what).into())
        }
    }
}

/// # Errors
/// When the logs cannot be read, or an entry breaks an invariant.
pub(crate) async fn verify(it: &Verify, context: &CommandContext) -> anyhow::Result<()> {
    context.needs_broker("a verification")?;
    let verdict = topics::verify(&context.client().await?, &it.queue).await?;
    let sound = match (verdict.broken, verdict.unread.is_empty()) {
        (0, true) => "yes",
        (0, false) => "as far as it was read",
        (_, _) => "no",
    };
    let fields = [
        ("sound", sound.to_owned()),
        ("tasks", verdict.tasks.to_string()),
        ("ledger entries", verdict.ledger_entries.to_string()),
        ("metadata entries", verdict.metadata_entries.to_string()),
        ("malformed", verdict.malformed.to_string()),
        ("late", verdict.late.to_string()),
        ("broken", verdict.broken.to_string()),
        ("not read", verdict.unread.join("\n")),
    ];
    context.output.one(&verdict, &fields)?;
    if verdict.sound {
        return Ok(());
    }
    if verdict.broken == 0 {
        let help =
            format!("`longhaul topic check {}` shows what is wrong with its topics", it.queue);
        return Err(CommandFailure::new(
            Code::Failed,
            "not all entries of the queue could be checked",
        )
        .help(help)
        .into());
    }
    if context.output.is_for_people() {
        context.output.list(&verdict.findings)?;
    }
    let what = format!("{} entries break an invariant", verdict.broken);
    let help = "docs/register.md lists the invariants; `longhaul task history` shows the entries of a task";
    Err(CommandFailure::new(Code::Failed, what).help(help).into())
}
