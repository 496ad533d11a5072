//! Outcomes of the log's work, one piece of work at a time. The place for the outcome exists before
//! the work begins, so no outcome is lost for lack of room, whatever else is reported.

use crate::log::{WriteCallback, WriteError};
use tokio::sync::oneshot;

/// The place for an outcome.
#[derive(Debug, Default)]
pub(super) struct PendingOutcome {
    waiting: Option<oneshot::Receiver<Result<(), WriteError>>>,
}

impl PendingOutcome {
    /// The callback for the log.
    pub(super) fn expect(&mut self) -> WriteCallback {
        let (sender, receiver) = oneshot::channel();
        self.waiting = Some(receiver);
        // Ignored if the driver has ended.
        Box::new(move |result| drop(sender.send(result)))
    }

    /// Whether an outcome is pending.
    pub(super) const fn is_expected(&self) -> bool {
        self.waiting.is_some()
    }

    /// Waits for the outcome, for ever if none is pending. Cancel safe. If the log ends without an
    /// outcome, it counts as closed.
    pub(super) async fn comes(&mut self) -> Result<(), WriteError> {
        let Some(waiting) = &mut self.waiting else { return std::future::pending().await };
        let result = waiting.await.unwrap_or(Err(WriteError::Closed));
        self.waiting = None;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome, if the log has already reported it.
    async fn reported(outcome: &mut PendingOutcome) -> Option<Result<(), WriteError>> {
        tokio::select! {
            biased;
            result = outcome.comes() => Some(result),
            () = std::future::ready(()) => None,
        }
    }

    /// Outcomes went into a channel that reads and compactions also used. If it was full, the
    /// outcome was dropped, and the broker waited for ever.
    #[tokio::test]
    async fn an_outcome_comes_once() {
        let mut outcome = PendingOutcome::default();
        assert_eq!(reported(&mut outcome).await, None);
        for result in [Ok(()), Err(WriteError::Busy)] {
            let done = outcome.expect();
            assert_eq!(reported(&mut outcome).await, None);
            assert!(outcome.is_expected());
            done(result.clone());
            assert_eq!(reported(&mut outcome).await, Some(result));
            assert_eq!(reported(&mut outcome).await, None);
            assert!(!outcome.is_expected());
        }
    }

    /// After a panic of the writer, the broker waited for ever.
    #[tokio::test]
    async fn a_log_that_ends_without_a_word_has_closed() {
        let mut outcome = PendingOutcome::default();
        drop(outcome.expect());
        assert_eq!(reported(&mut outcome).await, Some(Err(WriteError::Closed)));
    }
}
