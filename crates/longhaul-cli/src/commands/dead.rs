//! `longhaul dead`: tasks that failed for good.

use super::bulk::BulkOutcomes;
use super::one_of;
use super::task::submitting::{PayloadArgs, with_payload};
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::service::gateway::{GatewayClient, early_end};
use crate::service::letters::letter_fields;
use crate::service::tasks::{named, parse_task};
use crate::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use longhaul::TaskRef;
use longhaul_api::Priority;
use longhaul_api::dead::{DeadSelection, ReplayBody, ReplayChangesBody};
use longhaul_api::new_task::NewTaskBody;
use longhaul_api::values::{Instant, Length};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List the dead letters of a queue, oldest first.
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  longhaul dead list tasks
  longhaul dead list tasks --contains 'status 503' --failed-after '1h ago' -o json"
    )]
    List {
        /// Name of the queue (its task topic).
        queue: String,
        /// List at most this many dead letters.
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        filter: DeadLetterFilterArgs,
    },
    /// Show the dead letter of a task, with its payload.
    #[command(after_help = "\
Examples:
  longhaul dead show tasks@12:3:-1
  longhaul dead show tasks@12:3:-1 --payload > payload.json")]
    Show {
        /// Name of the task, as QUEUE@ID.
        #[arg(value_parser = parse_task)]
        task: TaskRef,
        /// Print only the payload, byte for byte.
        #[arg(long)]
        payload: bool,
    },
    /// Run tasks that failed for good again: those named, or all of a queue that match a filter.
    #[command(after_help = "\
Examples:
  longhaul dead replay tasks@12:3:-1
  longhaul dead replay tasks --all --contains 'status 503' --reason 'the service is back' --yes
  longhaul dead replay tasks --all --contains 'longest duration' --max-duration 2h
  longhaul dead replay tasks@12:3:-1 --file payload.json --reason 'spelt right'")]
    Replay {
        #[command(flatten)]
        many: Many,
        #[command(flatten)]
        changes: ReplayChangeArgs,
    },
    /// Mark dead letters as handled: those of named tasks, or all of a queue that match a filter.
    #[command(after_help = "\
Examples:
  longhaul dead purge tasks@12:3:-1 --reason 'nobody wants it'
  longhaul dead purge tasks --all --failed-before '30 days ago' --yes")]
    Purge(Many),
}

/// Tasks by name, or all that match a filter.
#[derive(Debug, Args)]
pub(crate) struct Many {
    /// Names of tasks, as QUEUE@ID; or, with --all, names of queues.
    #[arg(required = true, value_name = "TASK|QUEUE")]
    what: Vec<String>,
    /// Select all dead letters of the queues that match the filter.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: DeadLetterFilterArgs,
}

impl Many {
    /// The named tasks. All names are parsed before anything changes.
    fn tasks(&self) -> Result<Vec<TaskRef>, CommandFailure> {
        if !self.filter.is_empty() {
            let what = "filters need --all; they do not apply to named tasks";
            return Err(CommandFailure::usage(what));
        }
        let help = "name tasks as QUEUE@ID, or select those of a queue with --all";
        let read =
            |text: &String| parse_task(text).map_err(|it| CommandFailure::usage(it).help(help));
        self.what.iter().map(read).collect()
    }
}

/// Changes to a task that runs again.
#[derive(Debug, Args)]
#[command(next_help_heading = "Changes to the new task")]
pub(crate) struct ReplayChangeArgs {
    /// Use this payload. Only for a single named task.
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    payload: Option<String>,
    /// Read the payload from this file; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Submit the task to this level of the queue.
    #[arg(long, value_parser = one_of::<Priority>(["high", "normal", "low"]))]
    priority: Option<Priority>,
    /// Do not start the task before this time has passed.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    delay: Option<Duration>,
    /// Allow this many attempts.
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// Limit each attempt to this time.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    max_duration: Option<Duration>,
    /// Limit all attempts together to this time.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    max_total_duration: Option<Duration>,
}

impl ReplayChangeArgs {
    /// As the API takes them, for so many named tasks.
    ///
    /// # Errors
    /// When the file cannot be read, or there is a payload for several tasks.
    pub(crate) fn body(self, tasks: usize) -> anyhow::Result<Option<ReplayChangesBody>> {
        let has_payload = self.payload.is_some() || self.file.is_some();
        if has_payload && tasks != 1 {
            let what = "a payload can be changed only for a single task";
            return Err(CommandFailure::usage(what).help("name one task as QUEUE@ID").into());
        }
        let is_read = self.file.is_some();
        let payload = match has_payload {
            true => PayloadArgs { payload: self.payload, file: self.file }.read()?,
            false => Bytes::new(),
        };
        // The program before a pipe may have failed, and a letter is replayed once.
        if is_read && payload.is_empty() {
            let failure = CommandFailure::usage("the payload is empty; nothing was done");
            return Err(failure.help("use --payload '' for an empty payload").into());
        }
        let payload = if has_payload { with_payload(&payload) } else { NewTaskBody::default() };
        let body = ReplayChangesBody {
            payload: payload.payload,
            payload_base64: payload.payload_base64,
            priority: self.priority,
            delay: self.delay.map(Length),
            max_attempts: self.max_attempts,
            max_duration: self.max_duration.map(Length),
            max_total_duration: self.max_total_duration.map(Length),
        };
        Ok((body != ReplayChangesBody::default()).then_some(body))
    }
}

/// Selects dead letters.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which dead letters")]
pub(crate) struct DeadLetterFilterArgs {
    /// Select dead letters whose reason contains this text.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    contains: Option<String>,
    /// Select tasks with this tag. Repeat the option to require several tags.
    #[arg(long, value_name = "WORD", value_parser = NonEmptyStringValueParser::new())]
    tag: Vec<String>,
    /// Select tasks of this type.
    #[arg(long = "type", value_name = "TYPE", value_parser = NonEmptyStringValueParser::new())]
    task_type: Option<String>,
    /// Select tasks with this key.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// Select tasks that failed at this instant or later.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant, allow_hyphen_values = true)]
    failed_after: Option<Instant>,
    /// Select tasks that failed at this instant or earlier.
    #[arg(long, value_name = "INSTANT", value_parser = times::instant, allow_hyphen_values = true)]
    failed_before: Option<Instant>,
}

impl DeadLetterFilterArgs {
    /// Whether the filter matches all letters.
    fn is_empty(&self) -> bool {
        self.clone().selection() == DeadSelection::default()
    }

    /// As the API takes it.
    fn selection(self) -> DeadSelection {
        DeadSelection {
            failed_with: self.contains,
            tag: self.tag,
            task_type: self.task_type,
            key: self.key,
            failed_from: self.failed_after,
            failed_to: self.failed_before,
            ..DeadSelection::default()
        }
    }
}

/// # Errors
/// When the command fails.
pub(crate) async fn run(command: Dead, context: &CommandContext) -> anyhow::Result<()> {
    let service = &context.service().await?;
    match command {
        Dead::List { queue, filter, limit } => {
            list(service, &queue, &filter.selection(), limit, context).await
        }
        Dead::Show { task, payload } => show(service, &task, payload, context).await,
        Dead::Replay { many, changes } => replay(service, many, changes, context).await,
        Dead::Purge(it) => purge(service, it, context).await,
    }
}

async fn list(
    service: &GatewayClient,
    queue: &str,
    selection: &DeadSelection,
    limit: usize,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let (letters, has_more) = service.letters(queue, selection, limit).await?;
    context.output.list(&letters)?;
    if has_more {
        context.output.note("there are more: raise --limit to see them");
    }
    Ok(())
}

async fn show(
    service: &GatewayClient,
    task: &TaskRef,
    payload: bool,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let Some(letter) = service.letter(task).await? else {
        let what = format!("there is no dead letter of {}", named(task));
        return Err(CommandFailure::not_found(what)
            .help(
                "check the task with `longhaul task get`: it has not failed for good, or its \
                dead letter was handled",
            )
            .into());
    };
    if payload && letter.hidden {
        let what = "the gateway shows payloads only to tokens with the scope `admin`";
        return Err(CommandFailure::new(Code::Failed, what).into());
    }
    let bytes = letter.payload_base64.as_ref().map(|it| STANDARD.decode(it)).transpose()?;
    match &bytes {
        Some(bytes) if payload => Ok(context.output.bytes(bytes)?),
        _ => Ok(context.output.one(&letter, &letter_fields(&letter, bytes.as_deref()))?),
    }
}

async fn replay(
    service: &GatewayClient,
    many: Many,
    changes: ReplayChangeArgs,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut outcomes = BulkOutcomes::new(context);
    if !many.all {
        let tasks = many.tasks()?;
        let changes = changes.body(tasks.len())?;
        for task in tasks {
            let replayed = service.replay(&task, context.reason(), changes.clone()).await;
            outcomes.put(named(&task), replayed.and_then(restarted))?;
        }
        return outcomes.finish();
    }
    let (selection, changes) = (many.filter.selection(), changes.body(0)?);
    for queue in &many.what {
        context.confirm(&format!("replay all matching dead letters of the queue `{queue}`?"))?;
        let (selection, changes) = (selection.clone(), changes.clone());
        let replays = service.replay_all(queue, selection, context.reason(), changes).await?;
        for replayed in replays.outcomes {
            outcomes.put(replayed.task.clone(), restarted(replayed))?;
        }
        if let Some(why) = replays.stopped {
            return Err(early_end(&why));
        }
    }
    outcomes.finish()
}

async fn purge(service: &GatewayClient, it: Many, context: &CommandContext) -> anyhow::Result<()> {
    let mut outcomes = BulkOutcomes::new(context);
    if !it.all {
        for task in it.tasks()? {
            let purged = service.purge_letter(&task, context.reason()).await;
            let purged = purged.and_then(|was| was.then_some("purged").ok_or_else(no_letter));
            outcomes.put(named(&task), purged.map(|done| (done, None)))?;
        }
        return outcomes.finish();
    }
    let selection = it.filter.selection();
    for queue in &it.what {
        context.confirm(&format!("purge all matching dead letters of the queue `{queue}`?"))?;
        let purged = service.purge_letters(queue, selection.clone(), context.reason()).await?;
        if purged.purged > 0 {
            let many = if purged.purged == 1 { "" } else { "s" };
            outcomes.done(format!("{} dead letter{many}", purged.purged), "purged", None)?;
        }
        if let Some(why) = purged.stopped {
            return Err(early_end(&why));
        }
    }
    outcomes.finish()
}

fn no_letter() -> anyhow::Error {
    CommandFailure::not_found(
        "the task has no dead letter: it was handled, or the task has not failed for good",
    )
    .into()
}

/// The outcome of a replay, and the new task.
///
/// # Errors
/// When the task was not restarted.
pub(crate) fn restarted(it: ReplayBody) -> anyhow::Result<(&'static str, Option<String>)> {
    if it.outcome == "RESTARTED" { Ok(("restarted", it.other)) } else { Err(why_not(&it).into()) }
}

/// Why a task was not replayed.
fn why_not(replayed: &ReplayBody) -> CommandFailure {
    let other = replayed.other.as_deref().unwrap_or_default();
    match &*replayed.outcome {
        "NOT_FOUND" => CommandFailure::not_found(
            "the task has no dead letter: it was purged, or never existed",
        ),
        "NOT_DEAD" => {
            let failure = CommandFailure::new(Code::Conflict, "the task has not failed for good");
            failure.help("submit a new task; only failed tasks can be replayed")
        }
        "RESTARTED_BEFORE" => {
            let what = format!("the task was replayed before, as {other}; nothing was changed");
            CommandFailure::new(Code::Conflict, what)
        }
        "DEDUPE_CONFLICT" => {
            let what = format!("the unfinished task {other} holds the same dedupe key");
            CommandFailure::new(Code::Conflict, what)
        }
        "NO_PAYLOAD" => CommandFailure::not_found(
            "the dead letter has no payload: the payload was deleted before the task failed",
        ),
        _ => CommandFailure::new(
            Code::Failed,
            "the task was not replayed, for a reason that this version does not know",
        ),
    }
}
