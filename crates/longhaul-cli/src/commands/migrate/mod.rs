//! `longhaul migrate`: moves the open tasks of a queue, its settings and its schedules to another
//! cluster.

mod plan;
mod reading;
mod steps;
#[cfg(test)]
mod tests;

use crate::connect;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::settings::CliSettings;
use crate::settings::file::File;
use crate::signals::ShutdownSignals;
use crate::times;
use anyhow::Context as _;
use clap::Args;
use longhaul::ops::{DeadLetterFilter, QueueSettings, TaskStatus};
use longhaul::topics::DEFAULT_SUBSCRIPTION;
use longhaul::{Client, Priority};
use reading::{EndState, Level, MigrationEnd, runs};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use steps::{Migration, MigrationState};

/// The letters of a page.
const PAGE: usize = 10_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul migrate tasks --to-context production
  longhaul migrate tasks --to-service-url pulsar://broker:6650 --to-token-file token
  longhaul migrate tasks --to-context production --back

The command pauses the queue at both ends, and waits until no task runs at the source. It submits \
each open task to the target and closes it at the source, where it ends as cancelled. Then it \
resumes the target. The source stays paused. Attempts begin anew, from the last checkpoint. Finished \
tasks, their keys and dead letters stay at the source.

If the command is interrupted, run it again: it continues. With --back, it resumes the source with \
the tasks that are still there. At the end, point producers and workers at the target. To move the \
tasks that were submitted at the source meanwhile, run the command again.")]
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
    /// Resume the source with the tasks that are still there. Moved tasks stay at the target.
    #[arg(long, conflicts_with = "wait")]
    back: bool,
}

/// The target. Its settings come from its own context, or from these options alone.
#[derive(Debug, Args)]
struct TargetArgs {
    /// Move to the cluster of this context (see `longhaul context`). No setting of the source
    /// applies there.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "to_service_url",
        required_unless_present = "to_service_url"
    )]
    to_context: Option<String>,
    /// Move to the brokers at pulsar://HOST:PORT or pulsar+ssl://HOST:PORT.
    #[arg(long, value_name = "URL")]
    to_service_url: Option<String>,
    /// Authenticate at the target with the token in this file. For other credentials, create a
    /// context.
    #[arg(long, value_name = "FILE", requires = "to_service_url")]
    to_token_file: Option<String>,
    /// At the target, trust the certificate authorities in this PEM file in addition to the system's.
    #[arg(long, value_name = "FILE", requires = "to_service_url")]
    to_tls_trust_certs_file: Option<String>,
}

impl TargetArgs {
    fn settings(&self, file: &File) -> Result<CliSettings, CommandFailure> {
        let named = [
            ("service-url", &self.to_service_url),
            ("token-file", &self.to_token_file),
            ("tls-trust-certs-file", &self.to_tls_trust_certs_file),
        ];
        let flags = named.into_iter().filter_map(|(name, text)| Some((name, text.clone()?)));
        let flags: Vec<_> = flags.collect();
        let settings = CliSettings::of_target(file, self.to_context.as_deref(), &flags)?;
        if settings.text("service-url").is_some() {
            return Ok(settings);
        }
        let name = self.to_context.as_deref().unwrap_or_default();
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
    let to_queue = it.to_queue.as_ref().unwrap_or(&it.queue);
    let mut standing = Standing::default();
    let source = standing.end("source", &it.queue, from, context.client().await)?;
    if !source.queue().exists().await.with_context(|| source.name.clone())? {
        return Err(CommandFailure::not_found(format!("there is no queue {}", it.queue)).into());
    }
    let own_settings = source.settings().await?;
    let client = connect::builder(&to)?.connect().await.map_err(Into::into);
    let target = standing.end("target", to_queue, &to, client)?;
    let (done, output) = (Arc::clone(&standing.done), context.output);
    let migration = Migration { source, target, wait: it.wait, output, done };
    let Migration { source, target, .. } = &migration;
    if target.queue().exists().await.with_context(|| target.name.clone())? {
        target.settings().await?;
        if source.queue().identity().await? == target.queue().identity().await? {
            let what =
                "the source and the target are the same queue, or one is a copy of the other";
            return Err(CommandFailure::usage(what).into());
        }
    }
    if it.back {
        context.confirm(&format!(
            "delete the copies at {} of tasks that are still open, and resume both queues?",
            target.place
        ))?;
    } else {
        let levels = source.levels().await?;
        check_target(it, target, &levels).await?;
        context.output.note(&format!("subscriptions: {own} at the source, {theirs} at the target"));
        let open = survey(&migration, &levels, &own_settings, context).await?;
        context.confirm(&format!("move {open} open tasks to {}?", target.place))?;
    }
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
    finish(&done, it, &target.place, context)
}

/// Refuses a target that lacks topics, before anything is changed.
async fn check_target(it: &Migrate, target: &MigrationEnd, levels: &[Level]) -> anyhow::Result<()> {
    let existing = target.existing().await?;
    let missing = |level: &&Level| !existing.iter().any(|(there, _)| *there == level.level);
    let what = match levels.iter().find(missing).map(|missing| missing.level) {
        None => return Ok(()),
        Some(Priority::Normal) => format!("there is no {}", target.place),
        Some(level) => format!("{} has no topics for tasks of {level} priority", target.place),
    };
    let at = match (&it.to.to_context, &it.to.to_service_url) {
        (Some(name), _) => format!("--context {name}"),
        (None, url) => {
            let url = url.as_deref().unwrap_or_default();
            format!("--service-url {url} --admin-url URL")
        }
    };
    let all = if levels.len() > 1 { " --levels" } else { "" };
    let help = format!("run `longhaul topic setup {}{all} --partitions 4 {at}`", target.queue);
    Err(CommandFailure::not_found(what).help(help).into())
}

/// Prints what moves and what stays. Returns the number of open tasks.
async fn survey(
    migration: &Migration,
    levels: &[Level],
    settings: &QueueSettings,
    context: &CommandContext,
) -> anyhow::Result<u64> {
    let mut counts = BTreeMap::<TaskStatus, u64>::new();
    for level in levels {
        for (status, count) in level.view.counts()?.by_status {
            *counts.entry(status).or_default() += count;
        }
    }
    let sum = |is: fn(TaskStatus) -> bool| -> u64 {
        counts.iter().filter(|(status, _)| is(**status)).map(|(_, count)| count).sum()
    };
    let over = sum(TaskStatus::is_terminal);
    let open = sum(|status| !status.is_terminal());
    let by_status = counts.iter().filter(|(status, _)| !status.is_terminal());
    let by_status = by_status.map(|(status, count)| format!("{count} {}", status.word()));
    let (source, target) = (&migration.source, &migration.target);
    let queue = source.queue();
    let names: Vec<_> = queue.schedules().list().await?.into_iter().map(|it| it.name).collect();
    let (letters, mut dead, mut after) = (queue.dead_letters().await?, 0, None);
    loop {
        let page = letters.list(&DeadLetterFilter::new(), after, PAGE).await?;
        dead += page.letters.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let settings_go = if migration.new_settings().await?.is_some() {
        "  moves: settings and limits"
    } else {
        "  stays: settings and limits, because the target has its own"
    };
    let (wait, running) = (times::human(migration.wait), sum(runs));
    let mut lines = vec![
        format!("from {} to {}", source.place, target.place),
        format!("  moves: open tasks: {open}{}", listed(&by_status.collect::<Vec<_>>())),
        format!("  moves: schedules: {}{}", names.len(), listed(&names)),
        settings_go.to_owned(),
        format!("  stays: {over} finished tasks with their results, history and keys"),
        format!("  stays: {dead} dead letters"),
        format!("  the source is paused; {running} running tasks have {wait} to end"),
        "  the target is paused until the tasks are closed at the source".to_owned(),
    ];
    if !settings.webhooks.is_empty() {
        let count = settings.webhooks.len();
        lines.push(format!(
            "  {count} webhooks of the source are called for each moved task: cancelled"
        ));
    }
    for end in [source, target] {
        if end.state().paused == Some(true) {
            lines.push(format!("  {} is already paused", end.name));
        }
    }
    for line in lines {
        context.output.note(&line);
    }
    Ok(open)
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// If the command ends early for any reason, prints which queues are paused.
#[derive(Default)]
struct Standing {
    ends: Vec<(String, Arc<Mutex<EndState>>)>,
    done: Arc<Mutex<MigrationState>>,
    is_over: bool,
}

impl Standing {
    fn end(
        &mut self,
        what: &str,
        queue: &str,
        settings: &CliSettings,
        client: anyhow::Result<Client>,
    ) -> anyhow::Result<MigrationEnd> {
        let place = format!("{queue} at {}", settings.text("service-url").unwrap_or_default());
        let (name, state) = (format!("the {what}, {place}"), Arc::default());
        self.ends.push((name.clone(), Arc::clone(&state)));
        let client = client.with_context(|| name.clone())?;
        Ok(MigrationEnd { name, place, client, queue: queue.to_owned(), state })
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let end = |(name, state): &(String, Arc<Mutex<EndState>>)| {
            (name.clone(), state.lock().unwrap_or_else(PoisonError::into_inner).paused)
        };
        let ends: Vec<_> = self.ends.iter().map(end).collect();
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let is_paused = ends.iter().any(|(_, paused)| *paused == Some(true));
        if self.is_over || !(done.has_begun || is_paused) {
            return;
        }
        let (copied, moved) = (done.copied, done.moved);
        let mut told = format!("not finished: {copied} tasks copied, {moved} closed at the source");
        for (name, paused) in ends {
            let is = match paused {
                Some(true) => "is paused",
                Some(false) => "is not paused",
                None => "may be paused",
            };
            told = format!("{told}\n{name} {is}");
        }
        if done.has_begun {
            told.push_str(
                "\nrun the same command again to continue, or with --back to resume the source with \
                 the tasks that are still there\ndo not resume a queue by hand: a task may be open \
                 at both ends",
            );
        }
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
    let open = done.open_at_source;
    if it.back {
        note(format!("{queue} is resumed at the source with {open} open tasks"));
        note(format!("tasks that were moved before stay at {to}"));
    } else {
        if open > 0 {
            note(format!(
                "{open} tasks were submitted at the source meanwhile: run the command again"
            ));
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
