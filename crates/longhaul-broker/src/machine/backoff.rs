//! Growing pauses between the attempts at something that fails. Pure.

/// Minimum interval of warnings that may concern very many entries.
const SAY_PAUSE_MS: u64 = 60_000;

/// Whether a warning may be logged now, at intervals.
pub(super) fn may_warn(next: &mut u64, up: u64) -> bool {
    let is_due = up >= *next;
    if is_due {
        *next = up + SAY_PAUSE_MS;
    }
    is_due
}

/// When something that failed is tried again. The pause doubles with each failure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryBackoff {
    /// The current pause.
    pub(super) pause_ms: u64,
    /// Time of the next attempt, by the monotonic clock.
    pub(super) retry_at: u64,
}

impl RetryBackoff {
    /// Notes a failure at this time. `least` is the first pause, and `most` the longest.
    pub(super) fn fail(&mut self, up: u64, (least, most): (u64, u64)) {
        self.pause_ms = (2 * self.pause_ms).clamp(least, most);
        self.retry_at = up + self.pause_ms;
    }

    /// Whether the next attempt may begin.
    pub(super) const fn is_due(&self, up: u64) -> bool {
        up >= self.retry_at
    }
}
