//! Which ends of tasks get a dead letter.

use super::fold::Phase;

/// A queue says which of its tasks get one, and all of its workers say the same. No fold depends on
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeadLetterKinds {
    /// Those that failed for good.
    pub failed: bool,
    /// Those that expired.
    pub expired: bool,
}

impl Default for DeadLetterKinds {
    fn default() -> Self {
        Self { failed: true, expired: false }
    }
}

impl DeadLetterKinds {
    /// Whether a task that has ended like this gets a dead letter.
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
