//! Limits on the rate of publishes to a topic: a client that sends more is not read from for a while.

use super::BrokerMachine;
use crate::policies::PublishRate;

/// What a topic takes at once after a silence: as much as its rate in this time.
const BURST_US: u64 = 1_000_000;
/// Maximum pause. A client closes a connection that does not answer its ping within 30 s.
const PAUSE_US_MAX: u64 = 10_000_000;

/// When a topic would have taken everything that was published, if it came at the topic's rate.
#[derive(Debug, Default)]
pub(super) struct PublishPace {
    /// In microseconds since the start.
    taken_at: u64,
}

impl PublishPace {
    /// Counts a publish, and returns for how many ms its client must pause.
    pub(super) fn take(
        &mut self,
        rate: PublishRate,
        up_ms: u64,
        messages: u32,
        bytes: usize,
    ) -> u64 {
        let now = up_ms.saturating_mul(1000);
        let takes = |count: u64, rate: i64| {
            let rate = u64::try_from(rate).unwrap_or_default();
            count.saturating_mul(1_000_000).checked_div(rate).unwrap_or_default()
        };
        let takes = takes(messages.into(), rate.messages).max(takes(bytes as u64, rate.bytes));
        let taken_at = self.taken_at.max(now).saturating_add(takes);
        // What a client has sent before its pause is taken nevertheless. It is not held against it
        // for longer than the pause.
        self.taken_at = taken_at.min(now.saturating_add(BURST_US + PAUSE_US_MAX));
        self.taken_at.saturating_sub(now.saturating_add(BURST_US)).div_ceil(1000)
    }
}

impl BrokerMachine {
    /// For how many ms nothing may be read from the client whose requests were the last.
    pub fn take_pause(&mut self) -> u64 {
        std::mem::take(&mut self.pause_ms)
    }
}
