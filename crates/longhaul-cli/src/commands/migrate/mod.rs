//! `longhaul migrate`: moves the open tasks of a queue, its settings and its schedules to another
//! cluster.

mod closing;
mod ends;
mod plan;
mod steps;
#[cfg(test)]
mod tests;

use crate::connect;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure, code_of, with_causes};
use crate::settings::CliSettings;
use crate::settings::file::File;
use crate::signals::ShutdownSignals;
use crate::times;
use clap::Args;
use ends::{EndState, Level, MigrationEnd, runs};
use longhaul::Client;
use longhaul::ops::{DeadLetterFilter, QueueSettings, TaskStatus};
use longhaul::topics::DEFAULT_SUBSCRIPTION;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use steps::{Migration, MigrationState};

/// The most dead letters that are counted.
const DEAD_LETTERS_MAX: usize = 10_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul migrate tasks --to-context production
  longhaul migrate tasks --to-service-url pulsar://broker:6650 --to-token-file token

The command pauses the source, and waits until no task runs there. It pauses the target, submits a \
copy of each open task to it, and closes the tasks at the source, where they end as cancelled. Then \
it resumes the target. The source stays paused. Attempts begin anew, from the last checkpoint. \
Finished tasks, their keys and dead letters stay at the source.

If the command is interrupted, run it again: it continues. Until all tasks are copied, --back deletes \
the copies and resumes both queues. At the end, point producers and workers at the target. To move \
the tasks that were submitted at the source meanwhile, run the command again.")]
pub(crate) struct Migrate {
    /// Name of the queue (its task topic).
    queue: String,
    #[command(flatten)]
    to: TargetArgs,
    /// Use this name for the queue at the target. Default: the same name.
    #[arg(long, value_name = "QUEUE")]
    to_queue: Option<String>,
    /// Wait up to this time until running tasks are over.
    #[arg(long, value_name = "TIME", value_parser = times::duration, default_value = "10m")]
    wait: Duration,
    /// Delete the copies of an interrupted migration, and resume both queues.
    #[arg(long, conflicts_with = "wait")]
    back: bool,
}

/// The target. Its settings come from its own context, or from these options alone.
#[derive(Debug, Args)]
struct TargetArgs {
    #[command(flatten)]
    place: TargetPlace,
    /// Authenticate at the target with the token in this file. For other credentials, create a
    /// context.
    #[arg(long, value_name = "FILE", requires = "to_service_url")]
    to_token_file: Option<String>,
    /// At the target, trust the certificate authorities in this PEM file in addition to the system's.
    #[arg(long, value_name = "FILE", requires = "to_service_url")]
    to_tls_trust_certs_file: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct TargetPlace {
    /// Move to the cluster of this context (see `longhaul context`). No setting of the source
    /// applies there.
    #[arg(long, value_name = "NAME")]
    to_context: Option<String>,
    /// Move to the brokers at pulsar://HOST:PORT or pulsar+ssl://HOST:PORT.
    #[arg(long, value_name = "URL")]
    to_service_url: Option<String>,
}

impl TargetArgs {
    fn settings(&self, file: &File) -> Result<CliSettings, CommandFailure> {
        let named = [
            ("service-url", &self.place.to_service_url),
            ("token-file", &self.to_token_file),
            ("tls-trust-certs-file", &self.to_tls_trust_certs_file),
        ];
        let flags = named.into_iter().filter_map(|(name, text)| Some((name, text.clone()?)));
        let flags: Vec<_> = flags.collect();
        let settings = CliSettings::of_target(file, self.place.to_context.as_deref(), &flags)?;
        if settings.text("service-url").is_some() {
            return Ok(settings);
        }
        let name = self.place.to_context.as_deref().unwrap_or_default();
        let what = format!("the context `{name}` has no service URL, which a migration needs");
        Err(CommandFailure::usage(what))
    }
}

/// # Errors
/// When the command fails. Standard error then says which queues are paused.
pub(crate) async fn run(it: &Migrate, context: &CommandContext) -> anyhow::Result<()> {
    context.needs_broker("a migration")?;
    let (from, to) = (&context.settings, it.to.settings(&context.settings.file)?);
    let [own, theirs] =
        [from, &to].map(|it| it.text("subscription").unwrap_or(DEFAULT_SUBSCRIPTION).to_owned());
    if own != theirs && !(from.is_said("subscription") && to.is_said("subscription")) {
        let what = format!("the subscription of the source is {own}, that of the target {theirs}");
        let help = "use a context for the target, and set `subscription` there";
        return Err(CommandFailure::usage(what).help(help).into());
    }
    let client = context.client().await?;
    let source = end("source", &it.queue, from, client);
    if !source.exists().await? {
        return Err(CommandFailure::not_found(format!("there is no queue {}", it.queue)).into());
    }
    let to_queue = it.to_queue.as_ref().unwrap_or(&it.queue);
    let client = connect::builder(&to)?.connect().await.map_err(|error| {
        let error = anyhow::Error::from(error).context("the target cannot be used");
        let help = "check --to-service-url and --to-token-file, or the settings of --to-context";
        CommandFailure::new(code_of(&error), with_causes(&*error)).help(help)
    })?;
    let target = end("target", to_queue, &to, client);
    let is_there = target.exists().await?;
    if is_there && source.queue().identity().await? == target.queue().identity().await? {
        let what = "the source and the target are the same queue, or one is a copy of the other";
        return Err(CommandFailure::usage(what).into());
    }
    let (output, done) = (context.output, Arc::default());
    let migration = Migration { source, target, wait: it.wait, output, done };
    let place = &migration.target.place;
    if it.back {
        context.confirm(&format!("delete the copies at {place} and resume both queues"))?;
    } else {
        let levels = migration.source.levels().await?;
        check_target(&migration.target, &levels).await?;
        context.output.note(&format!("subscriptions: {own} at the source, {theirs} at the target"));
        let open = survey(&migration, &levels, context).await?;
        context.confirm(&format!("move {open} to {place}"))?;
    }
    let mut standing = Standing::new(&migration);
    let mut signals = ShutdownSignals::new()?;
    let running = async { if it.back { migration.back().await } else { migration.run().await } };
    tokio::select! {
        ended = running => ended?,
        () = signals.next() => {
            return Err(CommandFailure::new(Code::Failed, "interrupted").into());
        }
    }
    standing.is_over = true;
    let done = migration.done().clone();
    finish(&done, it, place, context)
}

fn end(what: &str, queue: &str, settings: &CliSettings, client: Client) -> MigrationEnd {
    let place = format!("{queue} at {}", settings.text("service-url").unwrap_or_default());
    let (name, state) = (format!("the {what}, {place}"), Arc::default());
    MigrationEnd { name, place, client, queue: queue.to_owned(), state }
}

/// Refuses a target that lacks topics, before anything is changed.
async fn check_target(target: &MigrationEnd, levels: &[Level]) -> anyhow::Result<()> {
    let there: Vec<_> = target.existing().await?.into_iter().map(|(level, _)| level).collect();
    let Some(missing) = levels.iter().find(|it| !there.contains(&it.level)) else { return Ok(()) };
    let what = format!("there are no topics for {} tasks of {}", missing.level, target.place);
    let all = if levels.len() > 1 { " --levels" } else { "" };
    let setup = format!("longhaul topic setup {}{all} --partitions 4", target.queue);
    let help = format!("run `{setup}` with the context or the addresses of the target");
    Err(CommandFailure::not_found(what).help(help).into())
}

/// Prints what moves and what stays. Returns the number of open tasks, with their name.
async fn survey(
    migration: &Migration,
    levels: &[Level],
    context: &CommandContext,
) -> anyhow::Result<String> {
    let mut counts = BTreeMap::<TaskStatus, u64>::new();
    for level in levels {
        for (status, count) in level.view.counts()?.by_status {
            *counts.entry(status).or_default() += count;
        }
    }
    let sum = |is: fn(TaskStatus) -> bool| -> u64 {
        counts.iter().filter(|(status, _)| is(**status)).map(|(_, count)| count).sum()
    };
    let open = counted(sum(|status| !status.is_terminal()), "open task");
    let by_status = counts.iter().filter(|(status, _)| !status.is_terminal());
    let by_status: Vec<_> =
        by_status.map(|(status, count)| format!("{count} {}", status.word())).collect();
    let (source, target) = (&migration.source, &migration.target);
    let (queue, settings) = (source.queue(), source.look().await?.0);
    let names: Vec<_> = queue.schedules().list().await?.into_iter().map(|it| it.name).collect();
    let letters = queue.dead_letters().await?;
    let dead = letters.list(&DeadLetterFilter::new(), None, DEAD_LETTERS_MAX).await?;
    let or_more = if dead.next.is_some() { " or more" } else { "" };
    let (theirs, default) = (target.look().await?.0, QueueSettings::default());
    let settings_go = if settings == default {
        "  there are no settings to move"
    } else if theirs == default || theirs == settings {
        "  moves: settings and limits"
    } else {
        "  stays: settings and limits, because the target has its own"
    };
    let (wait, running) = (times::human(migration.wait), counted(sum(runs), "running task"));
    let mut lines = vec![
        format!("from {} to {}", source.place, target.place),
        format!("  moves: {open}{}", listed(&by_status)),
        format!("  moves: {}{}", counted(names.len() as u64, "schedule"), listed(&names)),
        settings_go.to_owned(),
        format!(
            "  stays: {}, with results, history and keys",
            counted(sum(TaskStatus::is_terminal), "finished task")
        ),
        format!("  stays: {}{or_more}", counted(dead.letters.len() as u64, "dead letter")),
        format!("  the source is paused for good; {running} may take {wait} to end"),
        "  the target is paused until the tasks are closed at the source".to_owned(),
    ];
    if !settings.webhooks.is_empty() {
        let count = counted(settings.webhooks.len() as u64, "webhook");
        lines.push(format!("  {count} of the source: called for each moved task, as cancelled"));
    }
    for (end, later) in [(source, "stays paused"), (target, "is resumed at the end")] {
        if end.state().paused == Some(true) {
            lines.push(format!("  {}, is already paused, and {later}", end.name));
        }
    }
    for line in lines {
        context.output.note(&line);
    }
    Ok(open)
}

/// A number and what it counts: `1 task`, `2 tasks`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// If the command ends early for any reason, prints which queues are paused.
struct Standing {
    ends: [(String, Arc<Mutex<EndState>>); 2],
    done: Arc<Mutex<MigrationState>>,
    is_over: bool,
}

impl Standing {
    fn new(migration: &Migration) -> Self {
        let end = |end: &MigrationEnd| (end.name.clone(), Arc::clone(&end.state));
        let ends = [&migration.source, &migration.target].map(end);
        Self { ends, done: Arc::clone(&migration.done), is_over: false }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_over || !done.has_begun {
            return;
        }
        let (copied, moved) = (counted(done.copied, "task"), done.moved);
        let mut told = format!("not finished: {copied} copied, {moved} closed at the source\n");
        for (name, state) in &self.ends {
            let is = match state.lock().unwrap_or_else(PoisonError::into_inner).paused {
                Some(true) => "is paused",
                Some(false) => "is not paused",
                None => "may be paused",
            };
            told = format!("{told}{name}, {is}\n");
        }
        let back = if done.closes {
            ""
        } else {
            ", or with --back to delete the copies and resume both queues"
        };
        told = format!(
            "{told}run the same command again to continue{back}\n\
             do not resume a queue by hand: a task may be open at both ends"
        );
        // Ignore a closed standard error.
        writeln!(io::stderr().lock(), "{told}").ok();
    }
}

fn finish(
    done: &MigrationState,
    it: &Migrate,
    to: &str,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let note = |text: String| context.output.note(&text);
    let queue = &it.queue;
    if !done.kept_schedules.is_empty() {
        let names = done.kept_schedules.join(", ");
        note(format!("{names}: the target has another schedule of this name, so this one stays"));
    }
    let open = counted(done.open_at_source, "open task");
    if it.back {
        note(format!("{queue} is resumed at the source with {open}"));
    } else {
        if done.open_at_source > 0 {
            note(format!("{open} came to the source meanwhile: run the command again"));
        }
        note(format!("{queue} stays paused at the source: point producers and workers at {to}"));
    }
    let schedules = format!("{}{}", done.schedules.len(), listed(&done.schedules));
    let fields = [
        ("moved", done.moved.to_string()),
        ("settings", done.settings.to_owned()),
        ("schedules", schedules),
    ];
    Ok(context.output.one(done, &fields)?)
}
