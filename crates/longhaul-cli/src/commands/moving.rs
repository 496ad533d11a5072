//! `longhaul export`, `import` and `migrate`: a queue to a file, and to another cluster.

use crate::connect;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::settings::CliSettings;
use crate::times;
use anyhow::Context as _;
use clap::Args;
use longhaul::ops::{Closed, Export as Reader, ExportRecord, Exported, Imported, MoveError};
use longhaul::topics::TopicSettings;
use longhaul::{Client, TransportError, TransportErrorKind};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most rounds of a move. Each one moves tasks submitted at the source during the previous one.
const ROUNDS_MAX: u32 = 20;

/// How often the target is checked for outstanding tasks.
const LOOKS_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul export tasks tasks.jsonl
  longhaul export tasks tasks.jsonl --pause --wait 30m

The file has one JSON record per line: settings, tasks with their attempts, checkpoints, keys and \
results, dead letters, and schedules. Without --pause, workers continue, and a task that ends \
meanwhile may be in the file as unfinished. With --pause, the queue stays paused.")]
pub(crate) struct ExportArgs {
    /// Name of the queue (its task topic).
    queue: String,
    /// File to write. An existing file is replaced when the export is complete.
    file: PathBuf,
    /// Pause the queue first, and wait until no task runs.
    #[arg(long)]
    pause: bool,
    #[command(flatten)]
    running: RunningTaskArgs,
}

/// The options for running tasks.
#[derive(Debug, Args)]
struct RunningTaskArgs {
    /// Wait up to this time until running tasks are over.
    #[arg(long, value_name = "TIME", value_parser = times::duration, default_value = "10m")]
    wait: Duration,
    /// Take running tasks from their workers. Their attempts count as used, and the next ones
    /// continue from their checkpoints.
    #[arg(long)]
    take_running: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul import tasks tasks.jsonl --context production
  longhaul import tasks tasks.jsonl --service-url pulsar://broker:6650

Set up the queue first (`longhaul topic setup`). The import pauses the queue, and it stays \
paused. Close the tasks at the source, or make sure that no worker runs them there, then resume \
the queue. A second import of the same file changes nothing.")]
pub(crate) struct ImportArgs {
    /// Name of the queue to write to (its task topic).
    queue: String,
    /// File that `longhaul export` has written.
    file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul migrate tasks --to-context production
  longhaul migrate tasks --to-service-url pulsar://broker:6650 \
    --to-admin-url http://broker:8080 --setup --partitions 4
  longhaul migrate tasks --to-context production --follow

The command pauses the queue at the source and at the destination, and waits until no task runs \
at the source. It copies each task to the destination once: a finished task with its result, an \
unfinished one with its attempts and its checkpoint. Then it closes unfinished tasks at the \
source, and resumes the queue at the destination. The queue at the source stays paused.

If the command is interrupted, run it again: it continues. When it has ended, point producers and \
workers at the destination; --follow moves what is still submitted at the source until Ctrl-C. \
`longhaul task moved` finds a task by its old id.")]
pub(crate) struct Migrate {
    /// Name of the queue (its task topic).
    queue: String,
    /// Move the queue to the cluster of this context (see `longhaul context`).
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "to_service_url",
        required_unless_present = "to_service_url"
    )]
    to_context: Option<String>,
    /// Move the queue to the brokers at pulsar://HOST:PORT or pulsar+ssl://HOST:PORT.
    #[arg(long, value_name = "URL")]
    to_service_url: Option<String>,
    /// Use the admin API of the destination at this URL.
    #[arg(long, value_name = "URL", requires = "to_service_url")]
    to_admin_url: Option<String>,
    /// Use this name for the queue at the destination. Default: the same name.
    #[arg(long, value_name = "QUEUE")]
    to_queue: Option<String>,
    /// Set up the topics at the destination first; needs its admin API.
    #[arg(long)]
    setup: bool,
    /// With --setup: create this many partitions.
    #[arg(long, value_name = "COUNT", requires = "setup")]
    partitions: Option<u32>,
    /// With --setup: create the topics of the levels high and low as well.
    #[arg(long, requires = "setup")]
    levels: bool,
    /// Leave the queue at the destination paused.
    #[arg(long)]
    stay_paused: bool,
    /// Continue to move tasks that are submitted at the source, until Ctrl-C.
    #[arg(long, conflicts_with = "stay_paused")]
    follow: bool,
    #[command(flatten)]
    running: RunningTaskArgs,
}

/// The totals of a move.
#[derive(Debug, Default, Serialize)]
struct QueueMoveReport {
    /// Unfinished tasks.
    open: u64,
    /// Finished tasks.
    over: u64,
    /// Tasks that had been copied before.
    known: u64,
    /// Tasks copied again, since they had changed at the source.
    again: u64,
    /// Tasks whose keys belong to tasks started at the target before.
    merged: u64,
    dead_letters: u64,
    schedules: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept_schedules: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ended_meanwhile: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_moved: Vec<NotMoved>,
    unreadable: u64,
}

#[derive(Debug, Serialize)]
struct NotMoved {
    task: String,
    cause: String,
}

impl QueueMoveReport {
    fn add(&mut self, imported: Imported) {
        self.open += imported.open;
        self.over += imported.over;
        self.merged += imported.merged;
        self.again += imported.again;
        // In later rounds, the known tasks include those that this run wrote in earlier rounds.
        self.known = imported.known.saturating_sub(self.open + self.over + self.merged);
        self.dead_letters += imported.letters;
        self.schedules += imported.schedules;
        self.kept_schedules = imported.kept_schedules;
        let unmoved = imported.unmoved.into_iter();
        self.not_moved = unmoved.map(|it| NotMoved { task: it.task, cause: it.cause }).collect();
    }

    fn add_closed(&mut self, closed: &Closed) {
        *self.closed.get_or_insert_default() += closed.closed;
        self.ended_meanwhile.extend(closed.ended.iter().map(ToString::to_string));
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("to be run", self.open.to_string()),
            ("over", self.over.to_string()),
            ("there already", self.known.to_string()),
            ("copied again", self.again.to_string()),
            ("merged", self.merged.to_string()),
            ("dead letters", self.dead_letters.to_string()),
            ("schedules", self.schedules.to_string()),
        ];
        fields.extend(self.closed.map(|closed| ("closed here", closed.to_string())));
        if !self.ended_meanwhile.is_empty() {
            fields.push(("ended here meanwhile", self.ended_meanwhile.join(", ")));
        }
        fields
    }

    /// # Errors
    /// When something was left out.
    fn finish(&self, context: &CommandContext) -> anyhow::Result<()> {
        context.output.one(self, &self.fields())?;
        for NotMoved { task, cause } in &self.not_moved {
            context.output.note(&format!("{task} was not moved: {cause}"));
        }
        if self.not_moved.is_empty() && self.unreadable == 0 {
            return Ok(());
        }
        let (tasks, unreadable) = (self.not_moved.len(), self.unreadable);
        let what =
            format!("{tasks} tasks were not moved, and {unreadable} messages cannot be read");
        Err(CommandFailure::new(Code::Failed, what).into())
    }
}

/// # Errors
/// When the command fails.
pub(crate) async fn export(it: &ExportArgs, context: &CommandContext) -> anyhow::Result<()> {
    context.needs_broker("an export")?;
    let client = context.client().await?;
    let mut reader = if it.pause {
        paused(&client, &it.queue, &it.running, context).await?
    } else {
        client.queue(&it.queue).export().await?
    };
    let exported = write(&mut reader, &it.file).await?;
    let report = QueueMoveReport {
        open: exported.open,
        over: exported.over,
        dead_letters: exported.letters,
        schedules: exported.schedules,
        unreadable: exported.unreadable,
        ..QueueMoveReport::default()
    };
    report.finish(context)
}

/// # Errors
/// When the command fails.
pub(crate) async fn import(it: &ImportArgs, context: &CommandContext) -> anyhow::Result<()> {
    context.needs_broker("an import")?;
    let client = context.client().await?;
    let mut report = QueueMoveReport::default();
    report.add(imported(&client, &it.queue, &it.file).await?);
    context
        .output
        .note(&format!("the queue is paused; resume it with `longhaul queue resume {}`", it.queue));
    report.finish(context)
}

/// # Errors
/// When the command fails.
pub(crate) async fn migrate(it: &Migrate, context: &CommandContext) -> anyhow::Result<()> {
    context.needs_broker("a migration")?;
    let source = context.client().await?;
    let target = connect::builder(&target(it)?)?.connect().await.context("the destination")?;
    let to = it.to_queue.as_deref().unwrap_or(&it.queue);
    if it.setup {
        setup(it, &target, to).await?;
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("export.jsonl");
    let (mut report, mut left, mut unmoved) = (QueueMoveReport::default(), 0, 0);
    for round in 1.. {
        let mut reader = paused(&source, &it.queue, &it.running, context).await?;
        let exported = write(&mut reader, &file).await?;
        drop(reader);
        report.unreadable = exported.unreadable;
        if round > 1 && left == 0 && exported.open <= unmoved {
            if !it.follow {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOKS_EVERY) => continue,
                _ = tokio::signal::ctrl_c() => break,
            }
        }
        let Exported { open, over, .. } = exported;
        context
            .output
            .note(&format!("round {round}: {open} unfinished tasks, {over} finished ones"));
        let imported = imported(&target, to, &file).await?;
        // Unmoved tasks appear again in the next round.
        unmoved = imported.unmoved.len() as u64;
        report.add(imported);
        let closed = source.queue(&it.queue).close_moved(&target.queue(to)).await?;
        report.add_closed(&closed);
        left = closed.left.len();
        if left > 0 {
            context.output.note(&format!("{left} tasks have changed since they were copied"));
        } else if !it.stay_paused {
            target.queue(to).resume().await?;
        }
        if round < ROUNDS_MAX || it.follow {
            continue;
        }
        if left > 0 {
            let what = format!("{left} tasks of {} changed again in each round", it.queue);
            let help = "make sure that nobody resumes the queue at the source, and run the \
                command again; both queues stay paused";
            return Err(CommandFailure::new(Code::Conflict, what).help(help).into());
        }
        context.output.note(
            "tasks are still submitted at the source: point producers at the \
            destination and run the command again, or use --follow",
        );
        break;
    }
    context.output.note(&format!("{} stays paused at the source", it.queue));
    report.finish(context)
}

async fn setup(it: &Migrate, target: &Client, to: &str) -> anyhow::Result<()> {
    let settings = TopicSettings { partitions: it.partitions, ..TopicSettings::default() };
    target.queue(to).setup_topics(settings.clone()).await?;
    if it.levels {
        target.queue(to).setup_levels(settings).await?;
    }
    Ok(())
}

/// The settings of the target cluster: from its context, or only its addresses.
fn target(it: &Migrate) -> Result<CliSettings, CommandFailure> {
    let named = [
        ("context", &it.to_context),
        ("service-url", &it.to_service_url),
        ("admin-url", &it.to_admin_url),
    ];
    let flags = named.into_iter().filter_map(|(name, text)| Some((name, text.clone()?)));
    let flags: Vec<_> = flags.collect();
    // The environment's settings are those of the source.
    let kept = ["LONGHAUL_CONFIG", "HOME", "XDG_CONFIG_HOME"];
    let environment = |name: &str| kept.contains(&name).then(|| std::env::var(name).ok()).flatten();
    CliSettings::read(&flags, environment)
}

/// Pauses a queue, and waits until nothing runs.
async fn paused(
    client: &Client,
    queue: &str,
    running: &RunningTaskArgs,
    context: &CommandContext,
) -> anyhow::Result<Reader> {
    let mut reader = client.queue(queue).export_paused().await?;
    if running.take_running {
        let taken = reader.take_running().await?;
        if taken > 0 {
            context.output.note(&format!("{taken} tasks were taken from their workers"));
        }
    }
    if reader.running() == 0 {
        return Ok(reader);
    }
    let (count, wait) = (reader.running(), times::human(running.wait));
    context
        .output
        .note(&format!("{queue} is paused; waiting up to {wait} for {count} running tasks"));
    let left = reader.until_idle(running.wait).await?;
    if left == 0 {
        return Ok(reader);
    }
    let what = format!("{left} tasks of {queue} are still running");
    let help = "raise --wait, or use --take-running: their attempts count, and the next ones \
        continue from their checkpoints; the queue stays paused until `longhaul queue resume`";
    Err(CommandFailure::new(Code::Conflict, what).help(help).into())
}

/// Writes an export completely or not at all. A device or a pipe, such as `/dev/stdout`, is written
/// to as it is: a file in its place would replace it.
async fn write(reader: &mut Reader, path: &Path) -> anyhow::Result<Exported> {
    let failed = || format!("cannot write {}", path.display());
    if std::fs::metadata(path).is_ok_and(|it| !it.is_file()) {
        let file = File::options().write(true).open(path).with_context(failed)?;
        return Ok(records(reader, file).await?.0);
    }
    let folder =
        path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let unfinished = tempfile::NamedTempFile::new_in(folder).with_context(failed)?;
    let (exported, unfinished) = records(reader, unfinished).await?;
    unfinished.as_file().sync_all()?;
    unfinished.persist(path).with_context(failed)?;
    Ok(exported)
}

async fn records<F: Write + Send>(reader: &mut Reader, file: F) -> anyhow::Result<(Exported, F)> {
    let mut file = BufWriter::new(file);
    let put = |record: ExportRecord| {
        serde_json::to_writer(&mut file, &record)?;
        file.write_all(b"\n")
    };
    let exported = reader.records(put).await?;
    Ok((exported, file.into_inner().map_err(std::io::IntoInnerError::into_error)?))
}

async fn imported(client: &Client, queue: &str, file: &Path) -> anyhow::Result<Imported> {
    File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    client.queue(queue).import(file).await.map_err(|error| {
        let missing = |cause: &TransportError| cause.kind == TransportErrorKind::NotFound;
        if !matches!(&error, MoveError::Transport(cause) if missing(cause)) {
            return error.into();
        }
        let help = format!(
            "create its topics first: `longhaul topic setup {queue}`, or `migrate` with --setup"
        );
        let error = anyhow::Error::from(error);
        CommandFailure::not_found(format!("{error:#}")).help(help).into()
    })
}
