//! Which tasks get a dead letter, how many letters are kept, and for how long.

mod keeping;
mod ring;

pub(super) use keeping::{LetterKeeping, keep};

use longhaul_core::protocol::dead_letters::DeadLetterKinds;
use longhaul_core::settings::DeadLetterSettings;
use std::time::Duration;

/// The policy for the dead letters of a queue. Use the same one for all workers of a queue.
///
/// By default a task that failed for good gets a dead letter, an expired one gets none, and letters
/// are kept until a person has handled them.
///
/// ```
/// use longhaul::DeadLetterPolicy;
/// use std::time::Duration;
///
/// let month = Duration::from_secs(30 * 24 * 3600);
/// let policy = DeadLetterPolicy::new().expired(true).max_size(10_000).retention(month);
/// assert_eq!(policy.max_size, Some(10_000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterPolicy {
    /// Whether there are dead letters at all. Without them only the metadata entry of a failed task
    /// remains, for its retention.
    pub enabled: bool,
    /// Whether an expired task gets one, too.
    pub expired: bool,
    /// Maximum number of letters: beyond it the oldest are removed. Default: no limit.
    pub max_size: Option<usize>,
    /// How long a letter is kept. Default: until a person has handled it.
    pub retention: Option<Duration>,
}

impl Default for DeadLetterPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl DeadLetterPolicy {
    /// The default policy.
    #[must_use]
    pub const fn new() -> Self {
        Self { enabled: true, expired: false, max_size: None, retention: None }
    }

    /// A policy without dead letters.
    #[must_use]
    pub const fn off() -> Self {
        Self { enabled: false, ..Self::new() }
    }

    /// Sets whether an expired task gets one, too.
    #[must_use]
    pub const fn expired(mut self, expired: bool) -> Self {
        self.expired = expired;
        self
    }

    /// Sets the maximum number of letters, at least one.
    #[must_use]
    pub const fn max_size(mut self, letters: usize) -> Self {
        self.max_size = Some(if letters == 0 { 1 } else { letters });
        self
    }

    /// Sets how long a letter is kept.
    #[must_use]
    pub const fn retention(mut self, time: Duration) -> Self {
        self.retention = Some(time);
        self
    }

    /// Merges the settings of a queue into the policy; they take precedence.
    pub(super) fn within(&self, queue: &DeadLetterSettings) -> Self {
        let size = queue.max_size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        Self {
            enabled: queue.enabled.unwrap_or(self.enabled),
            expired: queue.expired.unwrap_or(self.expired),
            max_size: size.or(self.max_size),
            retention: queue.retention.or(self.retention),
        }
    }

    /// The outcomes that get a dead letter.
    pub(crate) const fn letters(&self) -> DeadLetterKinds {
        DeadLetterKinds { failed: self.enabled, expired: self.enabled && self.expired }
    }

    /// Whether letters are removed automatically.
    pub(super) const fn has_limits(&self) -> bool {
        self.enabled && (self.max_size.is_some() || self.retention.is_some())
    }
}
