//! Progress of a data directory's backup. The backup itself is not part of the broker.

use crate::clock;
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Progress of the backup of a data directory. The backup's thread notes its passes here; the admin
/// interface shows them, and asks for one.
#[derive(Debug)]
pub struct BackupProgress {
    known: Mutex<BackupPasses>,
    asked: Notify,
}

/// The passes of a backup since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupPasses {
    /// The time of the start, in ms since 1970. The numbers of the passes begin anew with it.
    pub(crate) started_at: u64,
    /// Number of the last pass that has begun.
    #[serde(skip)]
    begun: u64,
    /// When it has begun, by the monotonic clock.
    #[serde(skip)]
    begun_at: Option<Instant>,
    /// When the last pass that has stored everything had begun; before it, the start. Unlike
    /// `stored_to`, it does not change with the wall clock.
    #[serde(skip)]
    behind_since: Option<Instant>,
    /// Whether the next pass was asked for.
    #[serde(skip)]
    is_asked: bool,
    /// Number of the last pass that has stored everything; 0 if none has.
    stored_pass: u64,
    /// The time before which everything that was confirmed is stored, in ms since 1970; `None` if
    /// no pass has stored everything.
    stored_to: Option<u64>,
    /// Number of the last pass that has failed since then; 0 if none has.
    failed_pass: u64,
    /// Error of that pass; empty if there is none.
    last_error: String,
    /// Whether the thread of the backup has ended.
    #[serde(skip)]
    pub(crate) has_ended: bool,
}

impl BackupProgress {
    /// The progress of a backup that starts at this time, in ms since 1970.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        let behind_since = Some(clock::monotonic());
        let known = BackupPasses { started_at: now_ms, behind_since, ..BackupPasses::default() };
        Self { known: Mutex::new(known), asked: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BackupPasses> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a pass begins. Returns whether the admin API has asked for it.
    pub fn begin_pass(&self) -> bool {
        let mut known = self.lock();
        known.begun += 1;
        known.begun_at = Some(clock::monotonic());
        std::mem::take(&mut known.is_asked)
    }

    /// Notes that the pass has stored everything that was confirmed before this time, in ms since
    /// 1970.
    pub fn pass_stored(&self, to_ms: u64) {
        let mut known = self.lock();
        (known.stored_pass, known.stored_to) = (known.begun, Some(to_ms));
        (known.failed_pass, known.last_error) = (0, String::new());
        known.behind_since = known.begun_at.or(known.behind_since);
    }

    /// Notes that the pass has failed.
    pub fn pass_failed(&self, error: String) {
        let mut known = self.lock();
        (known.failed_pass, known.last_error) = (known.begun, error);
    }

    /// Notes that the backup has ended: no pass begins or ends any more.
    pub fn end(&self) {
        self.lock().has_ended = true;
    }

    /// Waits until a pass is asked for.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// The time before which everything that was confirmed is stored, in ms since 1970; `None` if
    /// no pass has stored everything.
    #[must_use]
    pub fn stored_to(&self) -> Option<u64> {
        self.lock().stored_to
    }

    /// How long the backup may have lacked something.
    pub(crate) fn age(&self) -> Duration {
        let since = self.lock().behind_since;
        since.map_or(Duration::ZERO, |since| clock::monotonic().duration_since(since))
    }

    /// Asks for a pass. Returns the number of the first one that begins after this call.
    pub(crate) fn ask(&self) -> u64 {
        let mut known = self.lock();
        known.is_asked = true;
        self.asked.notify_one();
        known.begun + 1
    }

    pub(crate) fn passes(&self) -> BackupPasses {
        self.lock().clone()
    }
}

/// While the clock of a broker was wrong, the age of its backup was 0 until that date.
#[test]
fn the_age_of_a_backup_is_not_by_the_wall_clock() {
    let progress = BackupProgress::new(u64::MAX);
    while progress.age().is_zero() {
        std::hint::spin_loop();
    }
    progress.begin_pass();
    progress.pass_stored(u64::MAX);
    while progress.age().is_zero() {
        std::hint::spin_loop();
    }
}
