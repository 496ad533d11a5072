//! The running compaction. The receiver of the report exists before the compaction begins: if the
//! thread panics, or does not start, the dropped sender is the report.

use super::messages::Messages;
use crate::compaction::CompactionJob;
use crate::compaction::run::{in_background, run};
use crate::log::{CompactedFile, Storage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;

/// The end of a compaction.
type CompactionResult = Result<CompactedFile, String>;

/// The current compaction. The machine requests one at a time.
#[derive(Debug, Default)]
pub(super) struct Compactions {
    current: Option<(CompactionJob, oneshot::Receiver<CompactionResult>)>,
    /// Tells the current compaction to give up.
    is_ending: Arc<AtomicBool>,
}

impl Compactions {
    pub(super) fn begin(
        &mut self,
        job: CompactionJob,
        messages: &Messages,
        storage: &Arc<dyn Storage>,
    ) {
        let previous = job.previous.as_deref().and_then(|name| messages.file(name));
        let (reader, storage) = (messages.reader().clone(), Arc::clone(storage));
        let given_up = Arc::clone(&self.is_ending);
        let (sender, receiver) = oneshot::channel();
        self.current = Some((job.clone(), receiver));
        in_background("longhaul-compaction", move || {
            let result = run(&job, previous.as_ref(), &reader, storage, Some(&given_up));
            // Ignored if the driver has ended.
            drop(sender.send(result));
        });
    }

    /// Waits for the end of the current compaction, for ever if there is none. Cancel safe.
    pub(super) async fn comes(&mut self) -> (CompactionJob, CompactionResult) {
        let Some((job, receiver)) = &mut self.current else {
            return std::future::pending().await;
        };
        let ended = |_| Err("its thread did not start, or panicked".to_owned());
        let result = receiver.await.unwrap_or_else(ended);
        let job = job.clone();
        self.current = None;
        (job, result)
    }

    /// Makes the current compaction give up.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }
}
