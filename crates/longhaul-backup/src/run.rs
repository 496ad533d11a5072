//! A thread that keeps a copy of a data directory.

use crate::clock;
use crate::complaint::{Complaint, causes};
use crate::error::BackupError;
use crate::pass::BackupPass;
use crate::store::BackupFolder;
use longhaul_broker::BackupProgress;
use longhaul_broker::rescue::segments;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The pause between passes. With the time that a pass takes, a backup is a second behind.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause while the store refuses: it doubles with each pass.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// Passes between looks for what is too old.
const EXPIRE_EVERY: u32 = 120;
/// Passes between looks at what the store has: an hour.
const LIST_EVERY: u32 = 7200;
/// How long the end of the process waits for the store.
const LAST_PASS: Duration = Duration::from_secs(10);
/// The file with the name of a directory's folder in the store.
const NAME_FILE: &str = "backup";

/// What is stored where.
#[derive(Clone, Debug)]
pub struct BackupSettings {
    /// The data directory of a broker.
    pub directory: PathBuf,
    /// A directory, or `s3://bucket/folder`.
    pub place: String,
    /// A restore is possible to each time within the last of this.
    pub keep: Duration,
    /// The passes, for [`longhaul_broker::BrokerConfig::backup`].
    pub progress: Arc<BackupProgress>,
    newest_at_start: u32,
}

impl BackupSettings {
    /// Call this before the broker starts. The broker may continue the newest segment behind an end
    /// that was stored, so the backup stores that segment anew.
    #[must_use]
    pub fn new(directory: PathBuf, place: String, keep: Duration) -> Self {
        // If nothing can be read, nothing is taken for stored.
        let numbers = segments(&directory).unwrap_or_default();
        let newest_at_start = numbers.last().copied().unwrap_or_default();
        let progress = Arc::new(BackupProgress::new(clock::wall_ms()));
        Self { directory, place, keep, progress, newest_at_start }
    }
}

/// A thread that keeps a copy of a data directory, at most about a second behind. Dropping it stops
/// it.
#[derive(Debug)]
pub struct Backup {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Backup {
    /// Begins. The directory must exist. A store that does not answer is tried again and again.
    ///
    /// # Errors
    /// The place is none, or the directory cannot be written.
    pub fn start(settings: BackupSettings) -> Result<Self, BackupError> {
        let what = |source| BackupError::Io { what: "start the backup's thread".into(), source };
        let stop = CancellationToken::new();
        let BackupSettings { directory, place, keep, progress, newest_at_start } = settings;
        let folder = BackupFolder::open(&place, true)?;
        apart(&folder, &directory)?;
        let folder = folder.within(&name_of(&directory)?);
        // Last: it cannot be dropped within another one.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(what)?;
        let ends = stop.clone();
        let pass = move || {
            let (directory, folder) = (directory.clone(), folder.clone());
            BackupPass::new(directory, folder, keep, newest_at_start)
        };
        let body = move || {
            let _end = BackupEndGuard(&progress);
            let last = async {
                ends.cancelled().await;
                tokio::time::sleep(LAST_PASS).await;
            };
            runtime.block_on(async {
                tokio::select! {
                    () = run(pass, &ends, &progress) => {}
                    () = last => tracing::warn!("the last messages are not in the backup: storing \
                        them took too long"),
                }
            });
            // A file system that hangs does not hold up the end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("longhaul-backup".to_owned()).spawn(body);
        Ok(Self { stop, thread: Some(thread.map_err(what)?) })
    }

    /// Stores what is left, and ends. What cannot be stored at once is not.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("backup thread panicked");
        }
    }
}

/// Notes the end of the thread, also if it panics.
struct BackupEndGuard<'a>(&'a BackupProgress);

impl Drop for BackupEndGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Makes passes until the stop, and one more.
async fn run<Opening>(
    open: impl Fn() -> Opening,
    stop: &CancellationToken,
    progress: &BackupProgress,
) where
    Opening: Future<Output = Result<BackupPass, BackupError>>,
{
    let mut complaint = Complaint::default();
    let mut opened = None;
    let mut passes: u32 = 0;
    let mut pause = PAUSE;
    loop {
        let is_last = stop.is_cancelled();
        let is_asked = progress.begin_pass();
        let made = async {
            let pass = match &mut opened {
                Some(pass) => pass,
                none => {
                    let opened = open().await;
                    none.insert(opened.inspect_err(|error| progress.pass_failed(causes(error)))?)
                }
            };
            pass.is_listed = pass.is_listed && !is_asked;
            step(pass, passes, is_last, progress).await
        };
        match made.await {
            Ok(true) => complaint.succeeds(),
            Ok(false) => {}
            Err(error) => complaint.fails(&error),
        }
        if is_last {
            return;
        }
        passes = passes.wrapping_add(1);
        let is_refused = opened.as_ref().is_some_and(|pass| pass.is_refused);
        pause = if is_refused { pause.saturating_mul(2).min(PAUSE_MAX) } else { PAUSE };
        tokio::select! {
            () = stop.cancelled() => {}
            () = progress.asked() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Makes a pass, and removes what has expired. That goes on while the store takes nothing more: it
/// may be full. If the data directory cannot be read, nothing expires. Returns whether all is well.
pub(crate) async fn step(
    pass: &mut BackupPass,
    passes: u32,
    is_last: bool,
    progress: &BackupProgress,
) -> Result<bool, BackupError> {
    let began = clock::wall_ms();
    if passes % LIST_EVERY == LIST_EVERY - 1 {
        pass.is_listed = false;
    }
    pass.is_last = is_last;
    let stored = pass.run().await;
    match &stored {
        Ok(true) => progress.pass_stored(began),
        // The broker has removed a segment meanwhile: the next pass may store everything.
        Ok(false) => {}
        Err(error) => progress.pass_failed(causes(error)),
    }
    let is_refused = stored.as_ref().is_err_and(BackupError::is_of_store);
    if is_last || (stored.is_err() && !is_refused) {
        return stored;
    }
    if is_refused || passes.is_multiple_of(EXPIRE_EVERY) {
        pass.find_expired();
    }
    let tidied = pass.tidy().await;
    let is_all = stored?;
    tidied.map(|()| is_all)
}

/// The name of the directory's folder in the store, which the directory keeps in a file. A copy
/// that was restored has none yet, and so does not write into the folder that it came from.
fn name_of(directory: &Path) -> Result<String, BackupError> {
    let path = directory.join(NAME_FILE);
    let failed =
        |what: &str, source| BackupError::Io { what: format!("{what} {}", path.display()), source };
    match fs::read_to_string(&path) {
        Ok(name) if is_name(name.trim()) => return Ok(name.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("read", error));
        }
        _ => {}
    }
    let name = format!("{:013}-{:08x}", clock::wall_ms(), fastrand::u32(..));
    let unfinished = path.with_extension("tmp");
    let written = fs::write(&unfinished, format!("{name}\n"))
        .and_then(|()| fs::File::open(&unfinished)?.sync_all())
        .and_then(|()| fs::rename(&unfinished, &path));
    written.map_err(|source| failed("write", source))?;
    Ok(name)
}

/// Refuses a place in the directory itself, whose loss would be that of the backup.
fn apart(folder: &BackupFolder, directory: &Path) -> Result<(), BackupError> {
    let place = folder.directory.as_ref().and_then(|place| fs::canonicalize(place).ok());
    if place.zip(fs::canonicalize(directory).ok()).is_some_and(|(it, of)| it.starts_with(of)) {
        let reason = "it is inside the data directory".to_owned();
        return Err(BackupError::Place { url: folder.place.clone(), reason });
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}
