//! Limits on the rate of publishes to a topic: a client that publishes faster pauses after each
//! request.

use super::BrokerMachine;
use crate::policies::PublishRate;

/// What a topic takes at once after a silence: as much as its rate in this time.
const BURST_US: u64 = 1_000_000;
/// Maximum pause. A client must be heard within [`PATIENCE_MS`](super::probing::PATIENCE_MS).
const PAUSE_MS_MAX: u64 = 2_000;
/// What a client has sent before its first pause is taken, and held against the topic for this long
/// at most.
const DEBT_US_MAX: u64 = 60_000_000;

/// The pace of publishes to a topic.
#[derive(Debug, Default)]
pub(super) struct PublishPace {
    /// When the topic's rate would have allowed everything that was published, in us since the
    /// start.
    paid_at: u64,
}

impl PublishPace {
    /// Counts a publish, and returns the pause of its client in ms.
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
        let paid_at = self.paid_at.max(now).saturating_add(takes);
        self.paid_at = paid_at.min(now.saturating_add(BURST_US + DEBT_US_MAX));
        let ahead = self.paid_at.saturating_sub(now.saturating_add(BURST_US));
        ahead.div_ceil(1000).min(PAUSE_MS_MAX)
    }
}

impl BrokerMachine {
    /// The pause of the client whose requests were the last, in ms.
    pub fn take_pause(&mut self) -> u64 {
        std::mem::take(&mut self.pause_ms)
    }
}
