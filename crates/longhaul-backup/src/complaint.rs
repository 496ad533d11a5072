//! Lines of the log about what does not work.

use crate::clock;
use crate::error::BackupError;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Pause between two lines.
const PAUSE: Duration = Duration::from_secs(60);

/// Says once a minute that something does not work, and that it works again. Clones share what was
/// said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Complaint {
    said: Rc<Cell<Option<Instant>>>,
}

impl Complaint {
    /// It does not work, and is tried again.
    pub(crate) fn fails(&self, error: &BackupError) {
        let now = clock::monotonic();
        if self.said.get().is_none_or(|said| now.duration_since(said) >= PAUSE) {
            tracing::warn!(error = causes(error), "backup is behind; retrying");
            self.said.set(Some(now));
        }
    }

    /// It works.
    pub(crate) fn succeeds(&self) {
        if self.said.take().is_some() {
            tracing::info!("backup is up to date again");
        }
    }
}

/// An error with its causes.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
