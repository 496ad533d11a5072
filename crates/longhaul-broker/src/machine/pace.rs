//! Limits on the rate of publishes to a topic: a client that publishes faster is read later.

use super::BrokerMachine;
use crate::policies::PublishRate;

/// What a topic takes at once after a silence: as much as its rate in this time.
const BURST_US: u64 = 1_000_000;
/// What a client has sent before it is slowed down is taken, and held against the topic for this long
/// at most.
const AHEAD_US_MAX: u64 = 60_000_000;

/// The pace of publishes to a topic.
#[derive(Debug, Default)]
pub(super) struct PublishPace {
    /// When the topic's rate would have allowed everything that was published, in us since the
    /// start.
    paid_at: u64,
}

impl PublishPace {
    /// Counts a publish, and returns how far it is ahead of the rate, in ms.
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
        self.paid_at = paid_at.min(now.saturating_add(BURST_US + AHEAD_US_MAX));
        self.ahead_ms(up_ms)
    }

    /// How far what was published is ahead of the rate, in ms.
    pub(super) fn ahead_ms(&self, up_ms: u64) -> u64 {
        let now = up_ms.saturating_mul(1000);
        self.paid_at.saturating_sub(now.saturating_add(BURST_US)).div_ceil(1000)
    }
}

impl BrokerMachine {
    /// How far the client is ahead of a topic's rate whose requests were the last, in ms.
    pub fn take_ahead(&mut self) -> u64 {
        std::mem::take(&mut self.ahead_ms)
    }

    /// Notes that a publish is ahead of its topic's rate.
    pub(super) fn note_ahead(&mut self, conn: u64, ahead_ms: u64) {
        self.ahead_ms = self.ahead_ms.max(ahead_ms);
        let until = self.up.saturating_add(ahead_ms);
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.slowed_until = session.slowed_until.max(until);
        }
    }
}
