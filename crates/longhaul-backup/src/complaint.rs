//! Lines of the log about what does not work.

use crate::clock;
use crate::error::BackupError;
use std::time::{Duration, Instant};

/// Pause between two lines.
const PAUSE: Duration = Duration::from_secs(60);

/// Says at most once a minute that the backup does not work, and then that it works again.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    /// The time of the last complaint.
    said: Option<Instant>,
    is_open: bool,
}

impl Complaint {
    /// It does not work, and is tried again.
    pub(crate) fn fails(&mut self, error: &BackupError) {
        let now = clock::monotonic();
        if self.said.is_none_or(|said| now.duration_since(said) >= PAUSE) {
            tracing::warn!(error = causes(error), "backup is behind; retrying");
            (self.said, self.is_open) = (Some(now), true);
        }
    }

    /// A pass has stored everything, and the store does what it is told.
    pub(crate) fn succeeds(&mut self) {
        if std::mem::take(&mut self.is_open) {
            tracing::info!("backup is up to date again");
        }
    }
}

/// An error with its causes.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full store takes an object whenever one has expired. The log said in turn that the backup
    /// was behind and that it was up to date again.
    #[test]
    fn one_complaint_a_minute_has_one_answer() {
        let mut complaint = Complaint::default();
        complaint.fails(&BackupError::Behind);
        assert!(complaint.is_open);
        complaint.succeeds();
        complaint.fails(&BackupError::Behind);
        assert!(!complaint.is_open, "it was said less than a minute ago");
    }
}
