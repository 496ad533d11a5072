//! How something went that the log was given to do, one thing at a time. There is a place for each
//! outcome before the log begins, so that none is dropped for want of room, however much else is
//! reported.

use crate::log::{WriteCallback, WriteError};
use tokio::sync::oneshot;

/// The place for an outcome.
#[derive(Debug, Default)]
pub(super) struct OutcomeSlot {
    waiting: Option<oneshot::Receiver<Result<(), WriteError>>>,
}

impl OutcomeSlot {
    /// What the log is to call in the end.
    pub(super) fn expect(&mut self) -> WriteCallback {
        let (sender, receiver) = oneshot::channel();
        self.waiting = Some(receiver);
        // Nobody waits for it any more if the driver has ended.
        Box::new(move |result| drop(sender.send(result)))
    }

    /// Whether one is yet to come.
    pub(super) const fn is_expected(&self) -> bool {
        self.waiting.is_some()
    }

    /// Waits for it, for ever if none is expected. May be dropped. A log that ended without a word
    /// has closed.
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

    /// What the log reports next, if it has reported anything yet.
    async fn reported(outcome: &mut OutcomeSlot) -> Option<Result<(), WriteError>> {
        tokio::select! {
            biased;
            result = outcome.comes() => Some(result),
            () = std::future::ready(()) => None,
        }
    }

    /// It went into a channel that reads and compactions use as well. Where that was full the
    /// report was dropped, and the broker waited for it for ever.
    #[tokio::test]
    async fn an_outcome_comes_once() {
        let mut outcome = OutcomeSlot::default();
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

    /// A writer that panicked left the broker waiting.
    #[tokio::test]
    async fn a_log_that_ends_without_a_word_has_closed() {
        let mut outcome = OutcomeSlot::default();
        drop(outcome.expect());
        assert_eq!(reported(&mut outcome).await, Some(Err(WriteError::Closed)));
    }
}
