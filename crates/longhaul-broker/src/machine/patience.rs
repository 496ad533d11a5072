//! The clock by which the machine waits for answers of clients.

/// Longest time that counts between two reports of the time, in ms.
const STEP_MS: u64 = 1000;

/// Counts the time in which answers of clients are read. An answer may be there, unread, after a
/// long turn or a pause of the process, and while the driver takes no requests because the disk
/// hangs. Such times do not count, or count as one step.
#[derive(Debug, Default)]
pub(super) struct HeardClock {
    ms: u64,
    is_stopped: bool,
}

impl HeardClock {
    /// The time in ms. It never goes back.
    pub(super) const fn ms(&self) -> u64 {
        self.ms
    }

    /// Notes that this many ms have passed.
    pub(super) fn pass(&mut self, ms: u64) {
        if !self.is_stopped {
            self.ms += ms.min(STEP_MS);
        }
    }

    /// Stops the clock, or lets it continue.
    pub(super) const fn set_stopped(&mut self, is_stopped: bool) {
        self.is_stopped = is_stopped;
    }

    /// When a wait of this many ms ends that begins now. One step is added, because it may pass
    /// before the first answer is read.
    pub(super) const fn deadline(&self, patience_ms: u64) -> u64 {
        self.ms.saturating_add(patience_ms).saturating_add(STEP_MS)
    }

    /// Time in ms until a deadline; `None` while the clock is stopped.
    pub(super) fn until(&self, deadline: u64) -> Option<u64> {
        (!self.is_stopped).then(|| deadline.saturating_sub(self.ms))
    }
}
