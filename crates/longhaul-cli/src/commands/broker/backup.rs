//! `longhaul broker restore` and `longhaul broker backup`: the backup of a data directory.

use super::{RestoreOrigin, verdict};
use crate::clock;
use crate::connect;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure, with_causes};
use crate::output::TableRow;
use crate::times;
use clap::Subcommand;
use longhaul::topics::{AdminError, AdminErrorKind};
use longhaul_backup::{BackupError, Restored, StoredBackup};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often `backup now` looks whether the pass has ended.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// How long `backup now` waits for a broker that does not answer: it may be starting again.
const RESTART_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Ask the running broker to store what its backup lacks, and wait until it is stored; needs the
    /// admin API
    ///
    /// The broker also lists the store, and stores again what is missing there. The command prints
    /// the time before which everything that was confirmed is stored. With tokens, it needs the
    /// token of a superuser. If the broker restarts meanwhile, the command asks it again.
    #[command(after_help = "\
Examples:
  longhaul broker backup now
  longhaul broker backup now --admin-url http://broker:8080 --token-file admin.token --timeout 10m

Exit codes: 0 everything is stored, 1 the store has refused, or the broker has no backup, 5 the \
broker does not answer.")]
    Now,
    /// List the backups in a store, one for each data directory, with the times to which each can be
    /// restored
    ///
    /// `oldest` and `newest` are the earliest and the latest time for `--at`. No `newest` means that
    /// the newest state is incomplete or damaged, and no `oldest` that nothing can be restored.
    #[command(after_help = "\
Examples:
  longhaul broker backup list /backup/longhaul
  longhaul broker backup list s3://bucket/longhaul -o json

For S3, set the keys, the region and the endpoint in the environment, as for `longhaul broker \
restore`.

Exit codes: 0 all backups are listed, 1 the store cannot be read, or another version wrote one of \
them, 2 there is no such store, or it has no backup.")]
    List {
        /// The directory of `--broker-backup`, or s3://BUCKET/FOLDER.
        #[arg(value_name = "STORE")]
        store: String,
    },
    /// Restore a backup into an empty directory, and check that directory
    ///
    /// The directory stays: delete it, or start a broker on it.
    #[command(after_help = "\
Examples:
  longhaul broker backup check /backup/longhaul --dir /tmp/restored
  longhaul broker backup check s3://bucket/longhaul --dir restored --at '1h ago'

For S3, set the keys, the region and the endpoint in the environment, as for `longhaul broker \
restore`.

Exit codes: 0 the backup is sound, 1 it is incomplete, damaged or unreadable, 2 there is no such \
backup, or the directory cannot be created.")]
    Check {
        /// The directory of `--broker-backup`, or s3://BUCKET/FOLDER.
        #[arg(value_name = "STORE")]
        store: String,
        /// Directory to restore into. It must be empty or not exist.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Restore the state at this time, such as 2026-11-20T07:00Z or `15m ago`. Default: the
        /// newest.
        #[arg(long, value_name = "INSTANT", value_parser = times::instant_ms)]
        at: Option<u64>,
    },
}

/// What `backup now` has stored.
#[derive(Debug, Serialize)]
struct StoredNow {
    stored_to: String,
}

/// The backup of a data directory.
#[derive(Debug, Serialize)]
struct BackupRow {
    backup: String,
    oldest: Option<String>,
    newest: Option<String>,
    checkpoints: usize,
    bytes: u64,
}

impl BackupRow {
    fn new(stored: StoredBackup) -> Self {
        let StoredBackup { folder, oldest, newest, checkpoints, bytes, error: _ } = stored;
        let (oldest, newest) = (oldest.map(times::iso), newest.map(times::iso));
        Self { backup: folder, oldest, newest, checkpoints, bytes }
    }
}

impl TableRow for BackupRow {
    const HEADS: &'static [&'static str] = &["backup", "oldest", "newest", "checkpoints", "bytes"];

    fn cells(&self) -> Vec<String> {
        let Self { backup, oldest, newest, checkpoints, bytes } = self;
        let [oldest, newest] = [oldest, newest].map(|at| at.as_deref().unwrap_or("-").to_owned());
        vec![backup.clone(), oldest, newest, checkpoints.to_string(), bytes.to_string()]
    }
}

/// # Errors
/// When the backup cannot be read, is damaged, or is not stored.
pub(super) async fn run(command: BackupCommand, context: &CommandContext) -> anyhow::Result<()> {
    match command {
        BackupCommand::Now => now(context).await,
        BackupCommand::List { store } => {
            let stored = longhaul_backup::list(&store).await.map_err(failure)?;
            let told = |it: &StoredBackup| {
                Some(format!("{}: {}", it.folder, with_causes(it.error.as_ref()?)))
            };
            let errors: Vec<_> = stored.iter().filter_map(told).collect();
            let rows: Vec<_> = stored.into_iter().map(BackupRow::new).collect();
            context.output.list(&rows)?;
            if errors.is_empty() {
                return Ok(());
            }
            Err(CommandFailure::new(Code::Failed, errors.join("; ")).into())
        }
        BackupCommand::Check { store, dir, at } => restore(&store, at, &dir, context).await,
    }
}

async fn now(context: &CommandContext) -> anyhow::Result<()> {
    let admin = connect::builder(&context.settings)?.admin()?;
    let admin = admin.ok_or_else(|| {
        let what = "the broker is asked through its admin API, whose URL is not set";
        CommandFailure::usage(what).help("set --admin-url")
    })?;
    let mut asked = admin.back_up().await.map_err(unanswered)?;
    let mut silent_since = None;
    let stored_to = loop {
        tokio::time::sleep(LOOKS_EVERY).await;
        let looked = async {
            let status = admin.backup().await?;
            if status.started_at != asked.started_at {
                asked = admin.back_up().await?;
            }
            Ok(status)
        };
        let status = match looked.await {
            Ok(status) => status,
            Err(error) => {
                let now = clock::monotonic();
                let since = *silent_since.get_or_insert(now);
                if !is_silence(&error) || now.duration_since(since) >= RESTART_MAX {
                    return Err(unanswered(error));
                }
                continue;
            }
        };
        silent_since = None;
        // The broker has restarted between these two calls: the numbers are of another start.
        if status.started_at != asked.started_at {
            continue;
        }
        if let Some(stored_to) = status.stored_to.filter(|_| status.stored_pass >= asked.pass) {
            break stored_to;
        }
        if status.failed_pass >= asked.pass {
            let what = format!("the backup has failed: {}", status.last_error);
            let help = "the broker tries again by itself: see its log";
            return Err(CommandFailure::new(Code::Failed, what).help(help).into());
        }
    };
    let stored = StoredNow { stored_to: times::iso(stored_to) };
    Ok(context.output.one(&stored, &[("stored-to", stored.stored_to.clone())])?)
}

/// Whether no broker answers: none is there, or it starts or stops.
fn is_silence(error: &AdminError) -> bool {
    matches!(error.kind, AdminErrorKind::Unreachable | AdminErrorKind::Unavailable)
}

/// The broker's own sentence if it has refused, without the status code.
fn unanswered(error: AdminError) -> anyhow::Error {
    match error.reason.split_once(": ") {
        Some((_, text)) if error.kind == AdminErrorKind::Other => {
            CommandFailure::new(Code::Failed, text).into()
        }
        _ => error.into(),
    }
}

/// Restores a backup, and prints what the new directory has, where it comes from, and up to which
/// time it is complete.
///
/// # Errors
/// When there is no such backup, it is damaged, or the directory cannot be created.
pub(super) async fn restore(
    from: &str,
    at: Option<u64>,
    new: &Path,
    context: &CommandContext,
) -> anyhow::Result<()> {
    // The clock of the broker may be a little ahead.
    if at.is_some_and(|at| at > clock::wall_ms() + 60_000) {
        return Err(CommandFailure::usage("the time of --at is in the future").into());
    }
    let restored = longhaul_backup::restore(from, at, new).await.map_err(failure)?;
    let Restored { as_of, report, earlier, folder, others } = restored;
    let as_of = as_of.filter(|_| report.is_sound()).map(times::iso);
    let completeness = match &as_of {
        _ if !report.is_sound() => String::new(),
        Some(at) => format!("It has everything that was confirmed before {at}."),
        None => "The backup was never complete: it is unknown what is missing.".to_owned(),
    };
    if !others.is_empty() {
        let others = others.join(", ");
        context.output.note(&format!("took {folder}; the store also has {others}"));
    }
    let earlier = earlier.map_or_else(|| "INSTANT".to_owned(), times::iso);
    let help = format!(
        "delete it, and restore an earlier time: --at {earlier}; or salvage what is readable: \
         longhaul broker salvage {} NEW",
        new.display()
    );
    let what = "the restored directory is damaged, and brokers refuse it";
    let damaged = CommandFailure::new(Code::Failed, what).help(help);
    let text = format!("Restored from {folder}.\n{completeness}");
    verdict(&report, Some(RestoreOrigin { folder, as_of, text }), damaged, context)
}

fn failure(error: BackupError) -> CommandFailure {
    let is_usage = matches!(
        error,
        BackupError::Place { .. } | BackupError::Nothing { .. } | BackupError::New(_)
    );
    let code = if is_usage { Code::Usage } else { Code::Failed };
    CommandFailure::new(code, format!("{:#}", anyhow::Error::from(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::code_of;
    use longhaul_broker::rescue::RescueError;

    /// A store that refuses was a wrong command line.
    #[test]
    fn only_what_the_caller_can_correct_is_a_usage_error() {
        let (text, path) = (String::new, PathBuf::new);
        for (error, code) in [
            (BackupError::Place { url: text(), reason: text() }, Code::Usage),
            (BackupError::Nothing { place: text(), at: None }, Code::Usage),
            (BackupError::New(RescueError::Exists { path: path() }), Code::Usage),
            (BackupError::Store { what: text(), reason: text() }, Code::Failed),
            (BackupError::Rescue(RescueError::NoLog { path: path() }), Code::Failed),
            (BackupError::Incomplete { missing: Vec::new(), earlier: None }, Code::Failed),
        ] {
            let told = format!("{error:?}");
            assert_eq!(code_of(&failure(error).into()), code, "{told}");
        }
    }
}
