//! Scrubs while the broker runs. A scrub reads the data directory at the lowest priority, and finds
//! damaged files.

use crate::backup::BackupProgress;
use crate::clock;
use crate::compaction::run::in_background;
use crate::config::BrokerConfig;
use crate::error::with_causes;
use crate::metrics::UpkeepFigures;
use crate::rescue;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Pause before a failed scrub is tried again.
const RETRY: Duration = Duration::from_secs(3600);
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
    /// The age of the last scrub at a time of the monotonic clock: the wall clock may be set.
    scrubbed: Option<(Instant, Duration)>,
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
        let now = clock::monotonic();
        let known = self.lock();
        UpkeepFigures {
            backup_age: backup.map(BackupProgress::age),
            scrub_age: known.scrubbed.map(|(then, age)| age + now.duration_since(then)),
            damaged_files: known.damaged_files,
        }
    }

    /// Scrubs whenever it is due, until the stop.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let Some(every) = self.scrub_every else { return };
        let mark = self.directory.join(SCRUBBED);
        let marked = fs::metadata(&mark).and_then(|about| about.modified()).ok();
        let age = marked.and_then(clock::age);
        self.lock().scrubbed = age.map(|age| (clock::monotonic(), age));
        if marked.is_none() {
            // The period begins, and goes on after a restart.
            File::create(&mark).ok();
        }
        // A mark of the future tells nothing: the clock was wrong then, or is now.
        let unknown = if marked.is_some() { Duration::ZERO } else { every };
        let mut wait = age.map_or(unknown, |age| every.saturating_sub(age));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            let (directory, ends) = (self.directory.clone(), stop.clone());
            let scrub = move || {
                let scrubbed = rescue::scrub(&directory, |bytes| pace(bytes, &ends));
                scrubbed.map_err(|error| with_causes(&error))
            };
            let Some(scrubbed) = aside(&stop, "longhaul-scrub", scrub).await else { return };
            wait = if scrubbed.is_ok() { every } else { every.min(RETRY) };
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
                "a file is missing or damaged: `longhaul broker check` tells what is lost"
            );
        }
        // Where something is damaged, the next process scrubs at once, and reports it again.
        if damaged.is_empty() {
            File::create(mark).ok();
        }
        let mut known = self.lock();
        known.damaged_files = Some(damaged.len());
        known.scrubbed = Some((clock::monotonic(), Duration::ZERO));
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
