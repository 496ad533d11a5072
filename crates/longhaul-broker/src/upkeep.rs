//! Scrubs while the broker runs. A scrub reads the data directory at the lowest priority, and finds
//! damaged files.

use crate::backup::BackupProgress;
use crate::clock;
use crate::compaction::run::in_background;
use crate::config::BrokerConfig;
use crate::error::with_causes;
use crate::metrics::UpkeepFigures;
use crate::rescue;
use jiff::Timestamp;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Pause before a failed scrub is tried again.
const RETRY: Duration = Duration::from_secs(3600);
/// Longest wait until the wall clock, which may be set, is looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Bytes per second that a scrub reads: a disk has more, and the broker needs them.
const SCRUB_BYTES_PER_S: u64 = 20 * 1024 * 1024;
/// The file whose time is that of the last scrub that found no damage.
const SCRUBBED: &str = "scrubbed";

/// The scrubs of a broker.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    scrub_every: Option<Duration>,
    directory: PathBuf,
    known: Mutex<ScrubState>,
}

#[derive(Debug, Default)]
struct ScrubState {
    /// Time of the last scrub, in ms since 1970.
    scrubbed_at: Option<u64>,
    damaged_files: Option<usize>,
}

impl Upkeep {
    pub(crate) fn new(broker: &BrokerConfig, directory: PathBuf) -> Self {
        Self { scrub_every: broker.scrub_every, directory, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ScrubState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metrics of the scrubs and of this backup.
    pub(crate) fn figures(&self, backup: Option<&BackupProgress>) -> UpkeepFigures {
        let now = clock::wall_ms();
        let age = |since: Option<u64>| Some(Duration::from_millis(now.saturating_sub(since?)));
        let known = self.lock();
        UpkeepFigures {
            backup_age: age(backup.map(BackupProgress::behind_since)),
            scrub_age: age(known.scrubbed_at),
            damaged_files: known.damaged_files,
        }
    }

    /// Scrubs whenever it is due, until the stop.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let Some(every) = self.scrub_every.map(millis) else { return };
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
