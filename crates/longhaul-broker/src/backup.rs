//! Progress of a data directory's backup. The backup itself is not part of the broker.

use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};
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
        let known = BackupPasses { started_at: now_ms, ..BackupPasses::default() };
        Self { known: Mutex::new(known), asked: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BackupPasses> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a pass begins. Returns whether the admin API has asked for it.
    pub fn begin_pass(&self) -> bool {
        let mut known = self.lock();
        known.begun += 1;
        std::mem::take(&mut known.is_asked)
    }

    /// Notes that the pass has stored everything that was confirmed before this time, in ms since
    /// 1970.
    pub fn pass_stored(&self, to_ms: u64) {
        let mut known = self.lock();
        (known.stored_pass, known.stored_to) = (known.begun, Some(to_ms));
        (known.failed_pass, known.last_error) = (0, String::new());
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

    /// The time since which the backup may lack something, in ms since 1970.
    pub(crate) fn behind_since(&self) -> u64 {
        let known = self.lock();
        known.stored_to.unwrap_or(known.started_at)
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
