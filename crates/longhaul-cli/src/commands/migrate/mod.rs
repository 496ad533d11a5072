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
use longhaul::Priority;
use longhaul::ops::DeadLetterFilter;
use longhaul::topics::TopicSettings;
use reading::{Level, MigrationEnd, runs};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Mutex;
use std::time::Duration;
use steps::{Migration, MigrationState};

/// The letters of a page.
const PAGE: usize = 10_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul migrate tasks --to-context production
  longhaul migrate tasks --to-service-url pulsar://broker:6650 \
    --to-admin-url http://broker:8080 --setup --partitions 4
  longhaul migrate tasks --to-context production --back

The command pauses the source and the target, and waits until no task runs at the source. It \
submits each open task to the target and closes it at the source, where it ends as cancelled. Then \
it resumes the target. The source stays paused. Attempts begin anew, from the last checkpoint. \
Finished tasks, their keys and dead letters stay at the source.

If the command is interrupted, run it again: it continues. With --back, it resumes the source with \
the tasks that are still there. At the end, point producers and workers at the target. Run the \
command again to move tasks that were submitted at the source meanwhile.")]
pub(crate) struct Migrate {
    /// Name of the queue (its task topic).
    queue: String,
    #[command(flatten)]
    to: TargetArgs,
    /// Use this name for the queue at the target. Default: the same name.
    #[arg(long, value_name = "QUEUE")]
    to_queue: Option<String>,
    /// Create the topics at the target first, or correct them; needs its admin API.
    #[arg(long)]
    setup: bool,
    /// With --setup: create this many partitions.
    #[arg(long, value_name = "COUNT", requires = "setup")]
    partitions: Option<u32>,
    /// Wait up to this time until running tasks are over.
    #[arg(long, value_name = "TIME", value_parser = times::duration, default_value = "10m")]
    wait: Duration,
    /// Resume the source with the tasks that are still there. Moved tasks stay at the target.
    #[arg(long, conflicts_with_all = ["setup", "wait"])]
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
    /// Use the target's admin API at http://HOST:PORT.
    #[arg(long, value_name = "URL", requires = "to_service_url")]
    to_admin_url: Option<String>,
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
            ("admin-url", &self.to_admin_url),
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
    let settings = it.to.settings(&context.settings.file)?;
    let url = |settings: &CliSettings| settings.text("service-url").unwrap_or_default().to_owned();
    let source = MigrationEnd { client: context.client().await?, queue: it.queue.clone() };
    let client = connect::builder(&settings)?.connect().await.context("the target")?;
    let target =
        MigrationEnd { client, queue: it.to_queue.clone().unwrap_or_else(|| it.queue.clone()) };
    let migration = Migration {
        to: format!("{} at {}", target.queue, url(&settings)),
        source,
        target,
        wait: it.wait,
        output: context.output,
        done: Mutex::default(),
    };
    let Migration { source, target, to, .. } = &migration;
    if !source.queue().exists().await.context("the source")? {
        return Err(CommandFailure::not_found(format!("there is no queue {}", it.queue)).into());
    }
    let exists = target.queue().exists().await.context("the target")?;
    if exists && source.queue().identity().await? == target.queue().identity().await? {
        let what = "the source and the target are the same queue, or one is a copy of the other";
        return Err(CommandFailure::usage(what).into());
    }
    if !it.back {
        let levels = source.levels().await.context("the source")?;
        check_target(it, &migration, &levels).await?;
        let from = format!("{} at {}", it.queue, url(&context.settings));
        let open = survey(&migration, &levels, &from, context).await?;
        context.confirm(&format!("move {open} open tasks to {to}?"))?;
        set_up(it, target, &levels).await?;
    }
    let mut signals = ShutdownSignals::new()?;
    let mut standing = Standing { migration: &migration, is_over: false };
    let running = async { if it.back { migration.back().await } else { migration.run().await } };
    tokio::select! {
        ended = running => ended?,
        () = signals.next() => {
            return Err(CommandFailure::new(Code::Failed, "interrupted").into());
        }
    }
    standing.is_over = true;
    finish(&migration.done().clone(), it, to, context)
}

/// Refuses a target that lacks topics, before anything is changed.
async fn check_target(it: &Migrate, to: &Migration, levels: &[Level]) -> anyhow::Result<()> {
    let existing = to.target.existing().await.context("the target")?;
    let missing = |level: &&Level| !existing.iter().any(|(there, _)| *there == level.level);
    let what = match levels.iter().find(missing).map(|missing| missing.level) {
        None => return Ok(()),
        Some(_) if it.setup => return Ok(()),
        Some(Priority::Normal) => format!("there is no {}", to.to),
        Some(level) => format!("{} has no topics for tasks of {level} priority", to.to),
    };
    let help = "add --setup, which needs the target's admin API (--to-admin-url)";
    Err(CommandFailure::not_found(what).help(help).into())
}

/// Creates the topics at the target.
async fn set_up(it: &Migrate, target: &MigrationEnd, levels: &[Level]) -> anyhow::Result<()> {
    let settings = TopicSettings { partitions: it.partitions, ..TopicSettings::default() };
    let set_up = match (it.setup, levels.len()) {
        (false, _) => return Ok(()),
        (true, 1) => target.queue().setup_topics(settings).await,
        (true, _) => target.queue().setup_levels(settings).await,
    };
    set_up.map(drop).context("the topics of the target (its admin API is at --to-admin-url)")
}

/// Says what goes and what stays. Returns the number of open tasks.
async fn survey(
    migration: &Migration,
    levels: &[Level],
    from: &str,
    context: &CommandContext,
) -> anyhow::Result<usize> {
    let (mut open, mut running, mut over, mut counts) = (0, 0, 0, BTreeMap::new());
    for level in levels {
        let tasks = level.open()?;
        over += usize::try_from(level.view.counts()?.total())?.saturating_sub(tasks.len());
        open += tasks.len();
        running += tasks.iter().filter(|(_, info)| runs(info)).count();
        for (old, info) in tasks {
            *counts.entry((old.level, info.status)).or_insert(0) += 1;
        }
    }
    let counted = counts.iter().rev().map(|((level, status), count)| match level {
        Priority::Normal => format!("{count} {}", status.word()),
        level @ (Priority::High | Priority::Low) => {
            format!("{count} {} of {level} priority", status.word())
        }
    });
    let counted: Vec<String> = counted.collect();
    let queue = migration.source.queue();
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
    let wait = times::human(migration.wait);
    for line in [
        format!("from {from} to {}", migration.to),
        format!("  goes: open tasks: {open}{}", listed(&counted)),
        format!("  goes: schedules: {}{}", names.len(), listed(&names)),
        "  goes: settings and limits, unless the target has its own".to_owned(),
        format!("  stays: {over} finished tasks with their results, history and keys"),
        format!("  stays: {dead} dead letters"),
        format!("  the source is paused; {running} running tasks have {wait} to end"),
        "  the target is paused until the tasks are closed at the source".to_owned(),
    ] {
        context.output.note(&line);
    }
    Ok(open)
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// Says what is where, if the command ends early for any reason.
struct Standing<'a> {
    migration: &'a Migration,
    is_over: bool,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let Migration { source, to, .. } = self.migration;
        if !self.is_over {
            // Ignore a closed standard error.
            let told = standing(&self.migration.done(), &source.queue, to);
            writeln!(io::stderr().lock(), "{told}").ok();
        }
    }
}

fn standing(done: &MigrationState, from: &str, to: &str) -> String {
    let is = |paused: bool| if paused { "is paused" } else { "is not paused" };
    let MigrationState { source_paused, target_paused, copied, moved, .. } = *done;
    let mut told = format!(
        "not finished: {copied} tasks copied, {moved} closed at the source\n\
         the source, {from}, {}\nthe target, {to}, {}",
        is(source_paused),
        is(target_paused)
    );
    if source_paused {
        told.push_str(
            "\nrun the same command again to continue, or with --back to resume the source with the \
             tasks that are still there",
        );
    }
    if target_paused {
        told.push_str("\ndo not resume a queue by hand: there may be copies of open tasks");
    }
    told
}

fn finish(
    done: &MigrationState,
    it: &Migrate,
    to: &str,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let note = |text: String| context.output.note(&text);
    let queue = &it.queue;
    for (task, cause) in &done.staying {
        note(format!("{task} stays at the source: {cause}"));
    }
    if !done.kept_schedules.is_empty() {
        let names = done.kept_schedules.join(", ");
        note(format!("{names}: the target has another schedule of this name, so this one stays"));
    }
    if it.back {
        note(format!("{queue} is resumed at the source; what was moved before stays at {to}"));
        let open = [("at the source", done.open_at_source), ("at the target", done.open_at_target)];
        let fields = open.map(|(at, count)| (at, format!("{count} open tasks")));
        return Ok(context.output.one(done, &fields)?);
    }
    if done.open_at_source > 0 {
        let count = done.open_at_source;
        note(format!(
            "{count} tasks were submitted at the source meanwhile: run the command again"
        ));
    }
    note(format!("{queue} stays paused at the source: point producers and workers at {to}"));
    let schedules = format!("{}{}", done.schedules.len(), listed(&done.schedules));
    let fields = [
        ("moved", done.moved.to_string()),
        ("ended without a copy", done.ended_without_copy.to_string()),
        ("stay at the source", done.staying.len().to_string()),
        ("settings", done.settings.to_owned()),
        ("schedules", schedules),
    ];
    context.output.one(done, &fields)?;
    match done.staying.len() {
        0 => Ok(()),
        count => {
            let what = format!("{count} tasks stay at the source");
            Err(CommandFailure::new(Code::Failed, what).into())
        }
    }
}
