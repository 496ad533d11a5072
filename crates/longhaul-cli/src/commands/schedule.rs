//! `longhaul schedule`: tasks by cron expressions, intervals and instants.

use super::one_of;
use super::task::submitting::{PayloadArgs, TermArgs};
use crate::context::CommandContext;
use crate::exit::CommandFailure;
use crate::service::gateway::GatewayClient;
use crate::service::schedules::schedule_fields;
use crate::times;
use clap::builder::PossibleValue;
use clap::{Args, Subcommand};
use longhaul_api::schedule::{NewSchedule, OverlapBody, TimesBody};
use longhaul_api::values::{Instant, Length};
use serde_json::json;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Create a schedule.
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
        /// Name of the queue (its task topic).
        queue: String,
    },
    /// Show when a schedule fires, what it submits, and its last task.
    #[command(after_help = "\
Examples:
  longhaul schedule show reports nightly
  longhaul schedule show reports nightly -o json")]
    Show(ScheduleNameArgs),
    /// Pause a schedule, so that only `trigger` fires it.
    #[command(after_help = "\
Examples:
  longhaul schedule pause reports nightly
  longhaul schedule pause reports nightly -q")]
    Pause(ScheduleNameArgs),
    /// Resume a schedule, without the firings that it missed.
    #[command(after_help = "\
Examples:
  longhaul schedule resume reports nightly
  longhaul schedule resume reports nightly -q")]
    Resume(ScheduleNameArgs),
    /// Fire a schedule now, even if it is paused.
    #[command(after_help = "\
Examples:
  longhaul schedule trigger reports nightly
  longhaul schedule trigger reports nightly -q")]
    Trigger(ScheduleNameArgs),
    /// Delete a schedule; its tasks continue.
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
    /// Name of the queue (its task topic).
    queue: String,
    /// Name of the schedule.
    name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul schedule create reports nightly 'report' --cron '30 2 * * *' --time-zone Europe/Berlin
  longhaul schedule create reports pulse 'ping' --every 15m --overlap cancel-other \
    --max-duration 10m
  longhaul schedule create reports once --file report.json --at 2030-01-01T00:00Z")]
pub(crate) struct ScheduleCreateArgs {
    /// Name of the queue (its task topic).
    queue: String,
    /// Name of the schedule.
    name: String,
    #[command(flatten)]
    payload: PayloadArgs,
    #[command(flatten)]
    when: When,
    /// Use this time zone for the cron expression, such as Europe/Berlin. Default: UTC.
    #[arg(long, value_name = "ZONE", requires = "cron")]
    time_zone: Option<String>,
    /// Move the firings of --every by this time.
    #[arg(long, value_name = "TIME", value_parser = times::duration, requires = "every")]
    offset: Option<Duration>,
    /// Decide what happens when the schedule fires while its previous task is not over.
    #[arg(long, default_value = "skip", value_parser = one_of::<OverlapBody>([
        PossibleValue::new("skip").help("Nothing is submitted"),
        PossibleValue::new("buffer-one").help("One task waits for the previous one"),
        PossibleValue::new("cancel-other").help("The previous task is cancelled"),
        PossibleValue::new("allow-all").help("Tasks run in parallel"),
    ]))]
    overlap: OverlapBody,
    /// Make up for missed firings this far back, at least 10s. Default: a year.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    catch_up_window: Option<Duration>,
    /// Create the schedule paused.
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    terms: TermArgs,
}

/// The times of a schedule.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct When {
    /// Fire by this cron expression of five fields, six (seconds first) or seven (years last).
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    /// Fire at this interval, at least 1s.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    every: Option<Duration>,
    /// Fire once, at this instant.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant)]
    at: Option<Instant>,
}

/// # Errors
/// When the command fails.
pub(crate) async fn run(command: ScheduleCommand, context: &CommandContext) -> anyhow::Result<()> {
    let service = &context.service().await?;
    let (ScheduleNameArgs { queue, name }, verb, done) = match command {
        ScheduleCommand::Create(it) => return create(service, *it, context).await,
        ScheduleCommand::List { queue } => {
            return Ok(context.output.list(&service.schedules(&queue).await?)?);
        }
        ScheduleCommand::Show(it) => return show(service, &it, context).await,
        ScheduleCommand::Pause(it) => (it, "pause", "paused"),
        ScheduleCommand::Resume(it) => (it, "resume", "resumed"),
        ScheduleCommand::Trigger(it) => (it, "trigger", "triggered"),
        ScheduleCommand::Delete(it) => (it, "delete", "deleted"),
    };
    service.act_on_schedule(&queue, &name, verb, context.reason()).await?;
    let record = json!({ "queue": queue, "name": name, "outcome": done });
    Ok(context.output.one(&record, &[(done, name)])?)
}

async fn create(
    service: &GatewayClient,
    it: ScheduleCreateArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let times = TimesBody {
        cron: it.when.cron,
        time_zone: it.time_zone,
        every: it.when.every.map(Length),
        offset: it.offset.map(Length),
        at: it.when.at,
        overlap: it.overlap,
        catch_up_window: it.catch_up_window.map(Length),
        paused: it.paused,
    };
    let task = it.terms.task(&it.queue, &it.payload.read()?)?;
    let schedule = NewSchedule { schedule: times, task, reason: context.reason().to_owned() };
    let version = service.create_schedule(&it.queue, &it.name, schedule).await?;
    let record = json!({ "queue": it.queue, "name": it.name, "version": version });
    Ok(context.output.one(&record, &[("created", it.name)])?)
}

async fn show(
    service: &GatewayClient,
    it: &ScheduleNameArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let Some(found) = service.schedule(&it.queue, &it.name).await? else {
        let what = format!("the queue {} has no schedule `{}`", it.queue, it.name);
        let help = format!("`longhaul schedule list {}` lists its schedules", it.queue);
        return Err(CommandFailure::not_found(what).help(help).into());
    };
    Ok(context.output.one(&found, &schedule_fields(&found))?)
}
