//! What the machine counts.

use std::collections::BTreeMap;

/// Counters of the whole broker, since it was started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) connections_accepted: u64,
    pub(super) connections_refused: u64,
    pub(super) publishes: u64,
    pub(super) publish_errors: u64,
    pub(super) publishes_deduplicated: u64,
    pub(super) deliveries: u64,
    pub(super) redeliveries: u64,
    pub(super) acks: u64,
    pub(super) compactions: u64,
    pub(super) compactions_failed: u64,
    pub(super) bytes_out: u64,
    pub(super) groups: u64,
    pub(super) records: u64,
    pub(super) bytes_logged: u64,
}

impl Totals {
    pub(super) fn committed(&mut self, bytes: usize) {
        self.groups += 1;
        self.bytes_logged += bytes as u64;
    }

    pub(super) fn delivered(&mut self, redeliveries: u32) {
        self.deliveries += 1;
        self.redeliveries += u64::from(redeliveries > 0);
    }
}

/// Counters of a topic, since it was loaded.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) entries_in: u64,
    pub(super) messages_in: u64,
    pub(super) bytes_in: u64,
    subscriptions: BTreeMap<u32, SubscriptionFigures>,
    pub(super) rate_in: Rate,
    pub(super) rate_out: Rate,
}

/// Counters of a subscription, since its topic was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SubscriptionFigures {
    pub(super) messages_out: u64,
    pub(super) bytes_out: u64,
    pub(super) redeliveries: u64,
    pub(super) acks: u64,
    /// Wall clock, in ms since the epoch.
    pub(super) last_acked: u64,
}

impl SubscriptionFigures {
    pub(super) fn delivered(&mut self, messages: u32, bytes: u32, redeliveries: u32) {
        self.messages_out += u64::from(messages);
        self.bytes_out += u64::from(bytes);
        self.redeliveries += u64::from(redeliveries > 0);
    }

    pub(super) fn acked(&mut self, entries: u64, now: u64) {
        self.acks += entries;
        self.last_acked = now;
    }
}

impl Figures {
    pub(super) fn published(&mut self, messages: u32, bytes: usize) {
        self.entries_in += 1;
        self.messages_in += u64::from(messages);
        self.bytes_in += bytes as u64;
    }

    pub(super) fn subscription(&mut self, id: u32) -> &mut SubscriptionFigures {
        self.subscriptions.entry(id).or_default()
    }

    /// Forgets a subscription that is gone.
    pub(super) fn forget(&mut self, id: u32) {
        self.subscriptions.remove(&id);
    }

    pub(super) fn of(&self, id: u32) -> SubscriptionFigures {
        self.subscriptions.get(&id).copied().unwrap_or_default()
    }

    pub(super) fn out(&self) -> (u64, u64) {
        let sum =
            |field: fn(&SubscriptionFigures) -> u64| self.subscriptions.values().map(field).sum();
        (sum(|it| it.messages_out), sum(|it| it.bytes_out))
    }

    /// Notes how far the counters are, for the rates. To be called about once a second.
    pub(super) fn sample(&mut self, now: u64) {
        self.rate_in.sample(now, self.messages_in, self.bytes_in);
        let (messages, bytes) = self.out();
        self.rate_out.sample(now, messages, bytes);
    }
}

/// Messages and bytes per second over the last minute.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// The minute that is under way: when it began, and the counters then.
    began: (u64, u64, u64),
    /// Of the last whole minute.
    messages: f64,
    bytes: f64,
}

impl Rate {
    const WINDOW_MS: u64 = 60_000;

    #[expect(clippy::cast_precision_loss, reason = "a rate is for people")]
    fn sample(&mut self, now: u64, messages: u64, bytes: u64) {
        let (since, from_messages, from_bytes) = self.began;
        let elapsed = now.saturating_sub(since);
        if elapsed < Self::WINDOW_MS {
            return;
        }
        let seconds = elapsed as f64 / 1000.0;
        if since > 0 {
            self.messages = messages.saturating_sub(from_messages) as f64 / seconds;
            self.bytes = bytes.saturating_sub(from_bytes) as f64 / seconds;
        }
        self.began = (now, messages, bytes);
    }

    pub(super) const fn get(&self) -> (f64, f64) {
        (self.messages, self.bytes)
    }
}
