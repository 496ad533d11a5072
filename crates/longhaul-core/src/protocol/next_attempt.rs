//! The time and reason of the next attempt of an unfinished task.

use super::offer::{Offer, TaskType};

/// The next attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NextAttempt {
    /// Wall-clock time in ms since the epoch, for displays and for workers that start later. Zero:
    /// at once.
    pub at_ms: u64,
    /// The delay in ms, for workers that read the entry live and use their own clock.
    pub delay_ms: u64,
    /// The event that it follows.
    pub after: AttemptCause,
}

/// The event that a next attempt follows, where it matters to the claimer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttemptCause {
    /// Anything else: a failure, a snooze, an attempt that never began.
    #[default]
    Other,
    /// An attempt that had begun and that its worker gave back because it was stopped: the next one
    /// continues it.
    Drain,
    /// The end of other tasks: it is due when those are over, not at a time (`waits.rs`).
    Others,
    /// An offer of a task of this type: the worker with the delivery had no request for it, and any
    /// worker may begin it.
    Offer(TaskType),
}

impl AttemptCause {
    /// Its word on the ledger.
    pub(super) const fn mark(self) -> Option<&'static str> {
        match self {
            Self::Other | Self::Offer(_) => None,
            Self::Drain => Some("drain"),
            Self::Others => Some("park"),
        }
    }

    /// Parses the word. Words of other versions have no meaning to this one.
    pub(super) fn of_mark(mark: Option<&str>) -> Self {
        let mut all = [Self::Drain, Self::Others].into_iter();
        all.find(|after| mark.is_some() && after.mark() == mark).unwrap_or_default()
    }
}

impl NextAttempt {
    /// At once; continues an attempt that a drain gave back.
    pub const AFTER_DRAIN: Self = Self { at_ms: 0, delay_ms: 0, after: AttemptCause::Drain };

    /// When the tasks that the entry's body names are over.
    pub const PARKED: Self = Self { at_ms: 0, delay_ms: 0, after: AttemptCause::Others };

    /// At once, in the order in which tasks became ready.
    #[must_use]
    pub const fn offered(offer: Offer) -> Self {
        Self { at_ms: offer.ready_ms, delay_ms: 0, after: AttemptCause::Offer(offer.task_type) }
    }

    /// Whether it is due at a time, and not when something else happens.
    #[must_use]
    pub const fn is_timed(&self) -> bool {
        matches!(self.after, AttemptCause::Other)
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
