//! When a task that has not ended is tried again.

use super::offer::{Offer, TaskType};

/// When the next attempt is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NextAttempt {
    /// Wall-clock time in ms since the epoch, for displays and for whoever starts later. Zero: at
    /// once.
    pub at_ms: u64,
    /// The delay in ms, for whoever reads the entry live and counts on its own clock.
    pub delay_ms: u64,
    /// What the next attempt follows.
    pub after: AttemptCause,
}

/// What a next attempt follows, where that matters to whoever claims it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttemptCause {
    /// Anything else: a failure, a snooze, an attempt that never began.
    #[default]
    Other,
    /// An attempt that had begun, and that its worker gave back because it was stopped: the next
    /// one goes on with it.
    Drain,
    /// The end of other tasks: it is due when those are over, which no time says (`waits.rs`).
    Others,
    /// An offer of a task of this type: nobody asked for it where it was delivered, and whoever
    /// wants it may begin.
    Offer(TaskType),
}

impl AttemptCause {
    /// What stands for it on the ledger.
    pub(super) const fn mark(self) -> Option<&'static str> {
        match self {
            Self::Other | Self::Offer(_) => None,
            Self::Drain => Some("drain"),
            Self::Others => Some("park"),
        }
    }

    /// What a mark stands for. Other marks are of other versions, and mean nothing to this one.
    pub(super) fn of_mark(mark: Option<&str>) -> Self {
        let mut all = [Self::Drain, Self::Others].into_iter();
        all.find(|after| mark.is_some() && after.mark() == mark).unwrap_or_default()
    }
}

impl NextAttempt {
    /// At once; it goes on with an attempt that a drain gave back.
    pub const AFTER_DRAIN: Self = Self { at_ms: 0, delay_ms: 0, after: AttemptCause::Drain };

    /// When the tasks are over that the entry's body names.
    pub const PARKED: Self = Self { at_ms: 0, delay_ms: 0, after: AttemptCause::Others };

    /// At once, in the order of when the task became ready.
    #[must_use]
    pub const fn offered(offer: Offer) -> Self {
        Self { at_ms: offer.ready_ms, delay_ms: 0, after: AttemptCause::Offer(offer.task_type) }
    }

    /// Whether it follows an offer.
    #[must_use]
    pub const fn is_offered(&self) -> bool {
        matches!(self.after, AttemptCause::Offer(_))
    }

    /// Whether it follows the end of other tasks.
    #[must_use]
    pub const fn is_parked(&self) -> bool {
        matches!(self.after, AttemptCause::Others)
    }

    /// At this wall-clock time, or after this delay, both in ms.
    #[must_use]
    pub const fn new(at_ms: u64, delay_ms: u64) -> Self {
        Self { at_ms, delay_ms, after: AttemptCause::Other }
    }
}
