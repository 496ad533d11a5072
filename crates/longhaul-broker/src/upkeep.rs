//! Work on the data directory while the broker runs: snapshots, by a schedule or by an admin call,
//! and scrubs, which read what rests on the disk. Both run at the lowest priority.

use crate::admin::values::{AdminCallError, RunState, SnapshotRunStatus};
use crate::clock;
use crate::compaction::run::in_background;
use crate::config::{BrokerConfig, UpkeepConfig};
use crate::error::with_causes;
use crate::metrics::UpkeepFigures;
use crate::rescue;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

/// Names of snapshots: their times, which sort like the names.
const NAME: &str = "%Y-%m-%dT%H%M%S%.3fZ";
/// What a snapshot's name ends with until it is complete.
const UNFINISHED: &str = ".unfinished";
/// What the name of a damaged one ends with. One is kept, and it takes the place of no sound one.
const DAMAGED: &str = ".damaged";
/// Pause before a failed snapshot or scrub is tried again.
const RETRY: Duration = Duration::from_secs(3600);
/// Longest wait until the wall clock, which may be set, is looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Bytes per second that a scrub reads: a disk has more, and the broker needs them.
const SCRUB_BYTES_PER_S: u64 = 20 * 1024 * 1024;
/// The file whose time is that of the last scrub that found no damage.
const SCRUBBED: &str = "scrubbed";

/// What is known of a broker's snapshots and scrubs, and what was asked for.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    config: UpkeepConfig,
    directory: PathBuf,
    backed_up: Option<Arc<AtomicU64>>,
    asked: Notify,
    known: Mutex<UpkeepState>,
}

#[derive(Debug, Default)]
struct UpkeepState {
    /// Whether a snapshot is being taken, or was asked for.
    is_taking: bool,
    /// The last snapshot of this process, or why there is none.
    taken: Option<Result<PathBuf, String>>,
    /// Times of the last snapshot and the last scrub, in ms since 1970.
    taken_at: Option<u64>,
    scrubbed_at: Option<u64>,
    damaged_files: Option<usize>,
}

impl Upkeep {
    pub(crate) fn new(broker: &BrokerConfig, directory: PathBuf) -> Self {
        let (config, backed_up) = (broker.upkeep.clone(), broker.backed_up.clone());
        let taken_at = config
            .snapshots
            .as_deref()
            .and_then(|folder| named(folder, "").ok()?.last_key_value().map(|(&at, _)| at));
        let known = Mutex::new(UpkeepState { taken_at, ..UpkeepState::default() });
        Self { config, directory, backed_up, asked: Notify::new(), known }
    }

    fn lock(&self) -> MutexGuard<'_, UpkeepState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a snapshot.
    ///
    /// # Errors
    /// There is no folder for it, or one is being taken.
    pub(crate) fn ask_snapshot(&self) -> Result<(), AdminCallError> {
        if self.config.snapshots.is_none() {
            let text = "this broker has no folder for snapshots: start it with --broker-snapshots";
            return Err(AdminCallError::PreconditionFailed(text.to_owned()));
        }
        let mut known = self.lock();
        if std::mem::replace(&mut known.is_taking, true) {
            return Err(AdminCallError::Conflict("a snapshot is being taken".to_owned()));
        }
        drop(known);
        self.asked.notify_one();
        Ok(())
    }

    pub(crate) fn snapshot_status(&self) -> SnapshotRunStatus {
        let known = self.lock();
        let status = match &known.taken {
            _ if known.is_taking => RunState::Running,
            None => RunState::NotRun,
            Some(Ok(_)) => RunState::Success,
            Some(Err(_)) => RunState::Error,
        };
        let taken = known.taken.clone();
        let last_error = taken.clone().and_then(Result::err).unwrap_or_default();
        SnapshotRunStatus { status, last_error, path: taken.and_then(Result::ok) }
    }

    pub(crate) fn figures(&self) -> UpkeepFigures {
        let now = clock::wall_ms();
        let age = |since: Option<u64>| Some(Duration::from_millis(now.saturating_sub(since?)));
        // The backup begins after the broker.
        let backed_up = self.backed_up.as_ref().map(|at| at.load(Ordering::Relaxed));
        let known = self.lock();
        UpkeepFigures {
            backup_age: age(backed_up.filter(|&at| at > 0)),
            snapshot_age: age(known.taken_at),
            scrub_age: age(known.scrubbed_at),
            damaged_files: known.damaged_files,
        }
    }

    /// Does what is due until the stop.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::join!(Arc::clone(&self).take_snapshots(stop.clone()), self.scrub_regularly(stop));
    }

    async fn take_snapshots(self: Arc<Self>, stop: CancellationToken) {
        let Some(folder) = self.config.snapshots.clone() else { return };
        let every = self.config.snapshot_every.map(millis);
        let mut due = every.map(|every| self.lock().taken_at.map_or(0, |at| at + every));
        loop {
            tokio::select! {
                // One that is due is also the one that was asked for.
                biased;
                () = stop.cancelled() => return,
                () = self.asked.notified() => {}
                () = tokio::time::sleep(due.map_or(LOOK_EVERY, until)) => {
                    if due.is_none_or(|due| due > clock::wall_ms()) {
                        continue;
                    }
                }
            }
            self.lock().is_taking = true;
            let (upkeep, folder) = (Arc::clone(&self), folder.clone());
            let taken = aside(&stop, "longhaul-snapshot", move || upkeep.take_snapshot(&folder));
            let Some(taken) = taken.await.map(Result::flatten) else { return };
            if let Err(error) = &taken {
                tracing::error!(error, "no snapshot was taken");
            }
            let now = clock::wall_ms();
            let next =
                |every: u64| now + if taken.is_ok() { every } else { every.min(millis(RETRY)) };
            due = every.map(next);
            let mut known = self.lock();
            known.taken_at = if taken.is_ok() { Some(now) } else { known.taken_at };
            (known.is_taking, known.taken) = (false, Some(taken));
        }
    }

    /// Takes a snapshot, and removes older ones that are too many. Blocks.
    fn take_snapshot(&self, folder: &Path) -> Result<PathBuf, String> {
        let failed = |what: &str, path: &Path, error: io::Error| {
            format!("could not {what} {}: {error}", path.display())
        };
        let read = |error| failed("read", folder, error);
        fs::create_dir_all(folder).map_err(|error| failed("make", folder, error))?;
        // They were left by a process that was killed.
        remove(named(folder, UNFINISHED).map_err(read)?.into_values());
        let name = i64::try_from(clock::wall_ms()).ok();
        let name = name.and_then(|now| Timestamp::from_millisecond(now).ok()).unwrap_or_default();
        let path = folder.join(name.strftime(NAME).to_string());
        let with = |ending| PathBuf::from(format!("{}{ending}", path.display()));
        let begun = with(UNFINISHED);
        let report = rescue::snapshot(&self.directory, &begun);
        let report = report.map_err(|error| {
            remove([begun.clone()]);
            with_causes(&error)
        })?;
        let made = if report.is_sound() { path.clone() } else { with(DAMAGED) };
        fs::rename(&begun, &made).map_err(|error| failed("rename", &begun, error))?;
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| failed("sync", folder, error))?;
        let damaged = named(folder, DAMAGED).map_err(read)?;
        remove(damaged.into_values().rev().skip(1));
        if !report.is_sound() {
            return Err(format!("{report}"));
        }
        tracing::info!(path = %path.display(), messages = report.messages(), "took a snapshot");
        let all = named(folder, "").map_err(read)?;
        remove(all.into_values().rev().skip(self.config.snapshots_kept.max(1)));
        Ok(path)
    }

    async fn scrub_regularly(self: Arc<Self>, stop: CancellationToken) {
        let Some(every) = self.config.scrub_every.map(millis) else { return };
        let mark = self.directory.join(SCRUBBED);
        let last = fs::metadata(&mark).and_then(|about| about.modified()).ok();
        let last = last.and_then(|at| Timestamp::try_from(at).ok());
        let last = last.and_then(|at| u64::try_from(at.as_millisecond()).ok());
        self.lock().scrubbed_at = last;
        let mut due = match last {
            Some(at) => at + every,
            // The period begins, and goes on after a restart.
            None => {
                File::create(&mark).ok();
                clock::wall_ms() + every
            }
        };
        loop {
            if due > clock::wall_ms() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(until(due)) => {}
                }
                continue;
            }
            let (directory, ends) = (self.directory.clone(), stop.clone());
            let scrub = move || {
                let scrubbed = rescue::scrub(&directory, |bytes| pace(bytes, &ends));
                scrubbed.map_err(|error| with_causes(&error))
            };
            let Some(scrubbed) = aside(&stop, "longhaul-scrub", scrub).await else { return };
            due =
                clock::wall_ms() + if scrubbed.is_ok() { every } else { every.min(millis(RETRY)) };
            match scrubbed.flatten() {
                Ok(damaged) => self.scrubbed(&mark, &damaged),
                Err(error) => tracing::warn!(error, "the scrub has failed"),
            }
        }
    }

    fn scrubbed(&self, mark: &Path, damaged: &[PathBuf]) {
        for path in damaged {
            tracing::error!(
                file = %path.display(),
                "a file does not match its checksums: `longhaul broker check` tells what is lost"
            );
        }
        // Where something is damaged, the next process scrubs at once, and reports it again.
        if damaged.is_empty() {
            File::create(mark).ok();
        }
        let mut known = self.lock();
        (known.damaged_files, known.scrubbed_at) = (Some(damaged.len()), Some(clock::wall_ms()));
    }
}

/// Runs work on a thread of the lowest priority; `None` at the stop, which does not wait for it.
async fn aside<T: Send + 'static>(
    stop: &CancellationToken,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<Result<T, String>> {
    let (sender, done) = oneshot::channel();
    in_background(name, move || drop(sender.send(work())));
    tokio::select! {
        // Work that ends because of the stop is not complete.
        biased;
        () = stop.cancelled() => None,
        done = done => Some(done.map_err(|_| "its thread did not start, or panicked".to_owned())),
    }
}

/// Waits as long as reading these bytes is to take. Returns whether the scrub goes on.
#[expect(clippy::disallowed_methods, reason = "it is on a thread of its own, and awaits nothing")]
fn pace(bytes: u64, stop: &CancellationToken) -> bool {
    std::thread::sleep(Duration::from_micros(bytes * 1_000_000 / SCRUB_BYTES_PER_S));
    !stop.is_cancelled()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2)
}

fn until(due: u64) -> Duration {
    Duration::from_millis(due.saturating_sub(clock::wall_ms())).min(LOOK_EVERY)
}

fn time_of(name: &str) -> Option<u64> {
    let at = DateTime::strptime(NAME, name).ok()?.to_zoned(TimeZone::UTC).ok()?;
    u64::try_from(at.timestamp().as_millisecond()).ok()
}

/// Snapshots in a folder whose names have this ending, by time. What has a time to come is somebody
/// else's, or of a clock that was wrong: it is not the newest.
fn named(folder: &Path, ending: &str) -> io::Result<BTreeMap<u64, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let at = name.and_then(|name| time_of(name.strip_suffix(ending)?));
        if let Some(at) = at.filter(|&at| at <= clock::wall_ms()) {
            found.insert(at, path);
        }
    }
    Ok(found)
}

/// Removes snapshots. One that cannot be removed does not keep the others.
fn remove(snapshots: impl IntoIterator<Item = PathBuf>) {
    for path in snapshots {
        if let Err(error) = fs::remove_dir_all(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a snapshot");
        }
    }
}
