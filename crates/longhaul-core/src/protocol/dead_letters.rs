//! Which outcomes of tasks get a dead letter.

use super::fold::Phase;

/// The outcomes that get a dead letter. This is a setting of the queue, the same for all of its
/// workers. No fold depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeadLetterKinds {
    /// Tasks that failed for good.
    pub failed: bool,
    /// Tasks that expired.
    pub expired: bool,
}

impl Default for DeadLetterKinds {
    fn default() -> Self {
        Self { failed: true, expired: false }
    }
}

impl DeadLetterKinds {
    /// Whether a task with this outcome gets a dead letter.
    #[must_use]
    pub const fn wants(self, end: Phase) -> bool {
        match end {
            Phase::Final => self.failed,
            Phase::Expired => self.expired,
            Phase::New
            | Phase::Running
            | Phase::Retry
            | Phase::Completed
            | Phase::Cancelled
            | Phase::Sealed => false,
        }
    }
}
