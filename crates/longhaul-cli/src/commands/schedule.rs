//! `longhaul schedule`: tasks by cron expressions, intervals and instants.

use super::task::submitting::{PayloadArgs, TermArgs};
use crate::context::CommandContext;
use crate::exit::CommandFailure;
use crate::service::gateway::GatewayClient;
use crate::service::schedules::ScheduleAction;
use crate::service::tasks::TaskSubmission;
use crate::times;
use clap::{Args, Subcommand, ValueEnum};
use longhaul::{Overlap, Schedule as Times};
use serde_json::json;
use std::time::{Duration, SystemTime};

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Make a schedule.
    Create(Box<ScheduleCreateArgs>),
    /// List the schedules of a queue.
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  longhaul schedule list reports
  longhaul schedule list reports -o json"
    )]
    List {
        /// The queue, by the name of its task topic.
        queue: String,
    },
    /// Show a schedule: when it fires, what it submits, its last task.
    #[command(after_help = "\
Examples:
  longhaul schedule show reports nightly
  longhaul schedule show reports nightly -o json")]
    Show(ScheduleNameArgs),
    /// Fire no more, except by hand.
    #[command(after_help = "\
Examples:
  longhaul schedule pause reports nightly
  longhaul schedule pause reports nightly -q")]
    Pause(ScheduleNameArgs),
    /// Fire again; what has passed meanwhile is not made up for.
    #[command(after_help = "\
Examples:
  longhaul schedule resume reports nightly
  longhaul schedule resume reports nightly -q")]
    Resume(ScheduleNameArgs),
    /// Fire now, paused or not.
    #[command(after_help = "\
Examples:
  longhaul schedule trigger reports nightly
  longhaul schedule trigger reports nightly -q")]
    Trigger(ScheduleNameArgs),
    /// Delete a schedule; its tasks go on.
    #[command(
        visible_alias = "rm",
        after_help = "\
Examples:
  longhaul schedule delete reports nightly
  longhaul schedule delete reports nightly -q"
    )]
    Delete(ScheduleNameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleNameArgs {
    /// The queue, by the name of its task topic.
    queue: String,
    /// The name of the schedule.
    name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul schedule create reports nightly 'report' --cron '30 2 * * *' --time-zone Europe/Berlin
  longhaul schedule create reports pulse 'ping' --every 15m --overlap cancel-other --max-duration 10m
  longhaul schedule create reports once --file report.json --at 2030-01-01T00:00Z")]
pub(crate) struct ScheduleCreateArgs {
    /// The queue, by the name of its task topic.
    queue: String,
    /// The name of the schedule.
    name: String,
    #[command(flatten)]
    payload: PayloadArgs,
    #[command(flatten)]
    when: When,
    /// The time zone of the cron expression, such as Europe/Berlin; UTC without it.
    #[arg(long, value_name = "ZONE", requires = "cron")]
    time_zone: Option<String>,
    /// Moves the instants of an interval.
    #[arg(long, value_name = "TIME", value_parser = times::duration, requires = "every")]
    offset: Option<Duration>,
    /// What happens at an instant while the task before is not over.
    #[arg(long, value_enum, default_value_t = Overlaps::Skip)]
    overlap: Overlaps,
    /// How far back it is made up for instants that were missed.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    catch_up_window: Option<Duration>,
    /// Makes it paused.
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    terms: TermArgs,
}

/// When it fires.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct When {
    /// A cron expression of five fields, six (seconds first) or seven (years last).
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    /// At this distance, a second at least.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    every: Option<Duration>,
    /// Once.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant)]
    at: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Overlaps {
    /// Nothing is submitted.
    Skip,
    /// One task waits for the one before.
    BufferOne,
    /// The task before is cancelled.
    CancelOther,
    /// Tasks run beside each other.
    AllowAll,
}

/// # Errors
/// When the command fails.
pub(crate) async fn run(command: ScheduleCommand, context: &CommandContext) -> anyhow::Result<()> {
    run_on(&context.service().await?, command, context).await
}

async fn run_on(
    service: &GatewayClient,
    command: ScheduleCommand,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let act = match command {
        ScheduleCommand::Create(it) => return create(service, *it, context).await,
        ScheduleCommand::List { queue } => {
            return Ok(context.output.list(&service.schedules(&queue).await?)?);
        }
        ScheduleCommand::Show(it) => return show(service, &it, context).await,
        ScheduleCommand::Pause(it) => (it, ScheduleAction::Pause, "paused"),
        ScheduleCommand::Resume(it) => (it, ScheduleAction::Resume, "resumed"),
        ScheduleCommand::Trigger(it) => (it, ScheduleAction::Trigger, "triggered"),
        ScheduleCommand::Delete(it) => (it, ScheduleAction::Delete, "deleted"),
    };
    let (ScheduleNameArgs { queue, name }, act, done) = act;
    service.act_on_schedule(&queue, &name, act, context.reason()).await?;
    let record = json!({ "queue": queue, "name": name, "outcome": done });
    Ok(context.output.one(&record, &[(done, name)])?)
}

async fn create(
    service: &GatewayClient,
    it: ScheduleCreateArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut times = match (it.when.cron, it.when.every, it.when.at) {
        (Some(cron), _, _) => Times::cron(cron),
        (None, Some(every), _) => Times::every(every),
        (None, None, Some(at)) => Times::at(at),
        (None, None, None) => {
            return Err(CommandFailure::usage("it is not said when the schedule fires").into());
        }
    };
    times = times.overlap(match it.overlap {
        Overlaps::Skip => Overlap::Skip,
        Overlaps::BufferOne => Overlap::BufferOne,
        Overlaps::CancelOther => Overlap::CancelOther,
        Overlaps::AllowAll => Overlap::AllowAll,
    });
    if let Some(zone) = it.time_zone {
        times = times.time_zone(zone);
    }
    if let Some(offset) = it.offset {
        times = times.offset(offset);
    }
    if let Some(window) = it.catch_up_window {
        times = times.catch_up_window(window);
    }
    if it.paused {
        times = times.paused();
    }
    let (queue, payload) = (it.queue.clone(), it.payload.read()?);
    let task = TaskSubmission { queue, payload, terms: it.terms.terms() };
    let version = service.create_schedule(&it.name, times, task, context.reason()).await?;
    let record = json!({ "queue": it.queue, "name": it.name, "version": version });
    Ok(context.output.one(&record, &[("created", it.name)])?)
}

async fn show(
    service: &GatewayClient,
    it: &ScheduleNameArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let Some(found) = service.schedule(&it.queue, &it.name).await? else {
        let what = format!("{} has no schedule `{}`", it.queue, it.name);
        let help = format!("`longhaul schedule list {}` lists them", it.queue);
        return Err(CommandFailure::not_found(what).help(help).into());
    };
    Ok(context.output.one(&found, &found.fields())?)
}
