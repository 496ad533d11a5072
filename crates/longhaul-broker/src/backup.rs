//! Progress of a data directory's backup. The backup itself is not part of the broker.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Progress of the backup of a data directory. The backup's thread notes its passes here; the admin
/// interface shows them, and asks for one.
#[derive(Debug, Default)]
pub struct BackupProgress {
    known: Mutex<BackupPasses>,
    asked: Notify,
}

/// The passes of a backup since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackupPasses {
    /// How many have begun.
    begun: u64,
    /// Number of the last pass that has stored everything or failed.
    pub(crate) ended: u64,
    /// The time before which everything that was confirmed is stored, in ms since 1970. Before the
    /// first pass, it is the time of the start.
    pub(crate) stored_to: u64,
    /// Why that pass has failed; empty if it has not.
    pub(crate) error: String,
}

impl BackupProgress {
    fn lock(&self) -> MutexGuard<'_, BackupPasses> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the start of the backup, at this time in ms since 1970.
    pub fn start(&self, now_ms: u64) {
        self.lock().stored_to = now_ms;
    }

    /// Notes that a pass begins.
    pub fn begin_pass(&self) {
        self.lock().begun += 1;
    }

    /// Notes that the pass has stored everything that was confirmed before this time, in ms since
    /// 1970.
    pub fn pass_stored(&self, to_ms: u64) {
        let mut known = self.lock();
        (known.ended, known.stored_to) = (known.begun, to_ms);
        known.error.clear();
    }

    /// Notes that the pass has failed.
    pub fn pass_failed(&self, error: String) {
        let mut known = self.lock();
        (known.ended, known.error) = (known.begun, error);
    }

    /// Waits until a pass is asked for.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// The time before which everything that was confirmed is stored, in ms since 1970; 0 before the
    /// start.
    #[must_use]
    pub fn stored_to(&self) -> u64 {
        self.lock().stored_to
    }

    /// Asks for a pass. Returns the number of the first one that begins after this call.
    pub(crate) fn ask(&self) -> u64 {
        let next = self.lock().begun + 1;
        self.asked.notify_one();
        next
    }

    pub(crate) fn passes(&self) -> BackupPasses {
        self.lock().clone()
    }
}
