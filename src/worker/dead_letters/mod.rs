//! Which tasks get a dead letter, and how many letters are kept for how long.

mod keeping;
mod ring;

pub(super) use keeping::{LetterKeeping, keep};

use longhaul_core::protocol::dead_letters::DeadLetterKinds;
use longhaul_core::settings::DeadLetterSettings;
use std::time::Duration;

/// What becomes of the dead letters of a queue. All workers of a queue should say the same.
///
/// By default a task that failed for good gets a dead letter, one that expired gets none, and
/// letters are kept until somebody has handled them.
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
    /// Whether there are dead letters at all. Without them what a failed task leaves is its entry
    /// on the metadata topic, for its retention.
    pub enabled: bool,
    /// Whether a task that expired gets one, too.
    pub expired: bool,
    /// How many letters are kept: the oldest go when there are more. Default: as many as there are.
    pub max_size: Option<usize>,
    /// How long a letter is kept. Default: until somebody has handled it.
    pub retention: Option<Duration>,
}

impl Default for DeadLetterPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl DeadLetterPolicy {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self { enabled: true, expired: false, max_size: None, retention: None }
    }

    /// No dead letters.
    #[must_use]
    pub const fn off() -> Self {
        Self { enabled: false, ..Self::new() }
    }

    /// Whether a task that expired gets one, too.
    #[must_use]
    pub const fn expired(mut self, expired: bool) -> Self {
        self.expired = expired;
        self
    }

    /// How many letters are kept, at least one.
    #[must_use]
    pub const fn max_size(mut self, letters: usize) -> Self {
        self.max_size = Some(if letters == 0 { 1 } else { letters });
        self
    }

    /// How long a letter is kept.
    #[must_use]
    pub const fn retention(mut self, time: Duration) -> Self {
        self.retention = Some(time);
        self
    }

    /// What the settings of a queue make of it: what they say applies before what the worker says.
    pub(super) fn within(&self, queue: &DeadLetterSettings) -> Self {
        let size = queue.max_size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        Self {
            enabled: queue.enabled.unwrap_or(self.enabled),
            expired: queue.expired.unwrap_or(self.expired),
            max_size: size.or(self.max_size),
            retention: queue.retention.or(self.retention),
        }
    }

    /// Which ends get one.
    pub(crate) const fn letters(&self) -> DeadLetterKinds {
        DeadLetterKinds { failed: self.enabled, expired: self.enabled && self.expired }
    }

    /// Whether letters go by themselves.
    pub(super) const fn has_limits(&self) -> bool {
        self.enabled && (self.max_size.is_some() || self.retention.is_some())
    }
}
