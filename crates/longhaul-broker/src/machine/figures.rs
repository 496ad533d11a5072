//! Counters of the machine.

use crate::policies::Policies;
use crate::state::BrokerTopic;
use crate::state::cursor::Cursor;
use crate::state::entries::EntrySlot;
use std::collections::BTreeMap;
use std::time::Duration;

/// A time, in µs of a monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MachineTime {
    /// Time of the current event.
    pub(super) now: u64,
    /// Time when the current requests were received.
    pub(super) received: u64,
}

impl MachineTime {
    /// Time since `then`.
    pub(super) const fn since(self, then: u64) -> Duration {
        Duration::from_micros(self.now.saturating_sub(then))
    }
}

/// Counters of a topic, since it was loaded.
#[derive(Debug, Default)]
pub(super) struct TopicCounters {
    pub(super) entries_in: u64,
    pub(super) messages_in: u64,
    pub(super) bytes_in: u64,
    /// Unreadable entries that were set aside.
    pub(super) unreadable: u64,
    subscriptions: BTreeMap<u32, SubscriptionFigures>,
    /// Messages and bytes of removed subscriptions: counters never decrease.
    gone: (u64, u64),
    pub(super) rate_in: ThroughputRate,
    pub(super) rate_out: ThroughputRate,
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

impl TopicCounters {
    pub(super) fn published(&mut self, messages: u32, bytes: usize) {
        self.entries_in += 1;
        self.messages_in += u64::from(messages);
        self.bytes_in += bytes as u64;
    }

    pub(super) fn subscription(&mut self, id: u32) -> &mut SubscriptionFigures {
        self.subscriptions.entry(id).or_default()
    }

    /// Removes a subscription, but keeps its share of the topic's counters.
    pub(super) fn forget(&mut self, id: u32) {
        if let Some(gone) = self.subscriptions.remove(&id) {
            self.gone.0 += gone.messages_out;
            self.gone.1 += gone.bytes_out;
        }
    }

    pub(super) fn of(&self, id: u32) -> SubscriptionFigures {
        self.subscriptions.get(&id).copied().unwrap_or_default()
    }

    pub(super) fn out(&self) -> (u64, u64) {
        self.subscriptions.values().fold(self.gone, |(messages, bytes), figures| {
            (messages + figures.messages_out, bytes + figures.bytes_out)
        })
    }

    /// Samples the counters for the rates. Call it about once a second.
    pub(super) fn sample(&mut self, now: u64) {
        self.rate_in.sample(now, self.messages_in, self.bytes_in);
        let (messages, bytes) = self.out();
        self.rate_out.sample(now, messages, bytes);
    }
}

/// Messages and bytes per second over the last minute.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThroughputRate {
    /// The current minute: its start, and the counters then.
    began: Option<(u64, u64, u64)>,
    /// Rates of the last complete minute.
    messages: f64,
    bytes: f64,
}

impl ThroughputRate {
    const WINDOW_MS: u64 = 60_000;

    #[expect(clippy::cast_precision_loss, reason = "a rate is for people")]
    fn sample(&mut self, now: u64, messages: u64, bytes: u64) {
        if let Some((since, from_messages, from_bytes)) = self.began {
            let elapsed = now.saturating_sub(since);
            if elapsed < Self::WINDOW_MS {
                return;
            }
            let seconds = elapsed as f64 / 1000.0;
            self.messages = messages.saturating_sub(from_messages) as f64 / seconds;
            self.bytes = bytes.saturating_sub(from_bytes) as f64 / seconds;
        }
        self.began = Some((now, messages, bytes));
    }

    pub(super) const fn get(&self) -> (f64, f64) {
        (self.messages, self.bytes)
    }
}

/// Approximate bytes of the entries from the ordinal on, by their share of all entries: summing up
/// a million of them takes too long.
pub(super) fn bytes_from(topic: &BrokerTopic, mark: u64, end: u64) -> u64 {
    let all = end.saturating_sub(topic.entries.first());
    let open = end.saturating_sub(mark.max(topic.entries.first()));
    let share = u128::from(topic.bytes) * u128::from(open);
    share
        .checked_div(u128::from(all))
        .and_then(|bytes| u64::try_from(bytes).ok())
        .unwrap_or_default()
}

/// The first unacknowledged entry of the cursor that exists and is on disk. Entries that were
/// removed before the cursor was created are never acknowledged.
pub(super) fn oldest_open(
    topic: &BrokerTopic,
    cursor: &Cursor,
    readable: u64,
) -> Option<EntrySlot> {
    let mut at = topic.entries.first();
    loop {
        let next = topic.entries.range(cursor.next_unacked(at), readable).next();
        let (ordinal, slot) = next?;
        if !cursor.is_acked(ordinal) {
            return Some(slot);
        }
        at = ordinal + 1;
    }
}

/// Publish time of the oldest entry that a durable subscription has not acknowledged.
pub(super) fn oldest_open_time(topic: &BrokerTopic, readable: u64) -> Option<u64> {
    let open = topic.durable().filter_map(|one| oldest_open(topic, &one.cursor, readable));
    open.map(|slot| slot.publish_time).min()
}

/// Seconds since the oldest open entry was published; 0 if there is none.
pub(super) fn open_for_s(published: Option<u64>, now: u64) -> u64 {
    published.map_or(0, |published| now.saturating_sub(published) / 1000)
}

/// Whether the topic has a compacted view, or will get one: entries that compaction has not
/// processed must then be kept.
pub(super) fn is_compacted(topic: &BrokerTopic, policies: &Policies) -> bool {
    policies.compaction_threshold_bytes.is_some_and(|threshold| threshold > 0)
        || topic.compacted.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    #[test]
    fn what_is_published_is_counted() {
        let mut figures = TopicCounters::default();
        figures.published(1, 10);
        figures.published(3, 20);
        assert_eq!((figures.entries_in, figures.messages_in, figures.bytes_in), (2, 4, 30));
    }

    #[test]
    fn each_subscription_has_its_counters() {
        let mut figures = TopicCounters::default();
        figures.subscription(1).delivered(3, 50, 0);
        figures.subscription(1).delivered(2, 70, 4);
        figures.subscription(2).delivered(1, 5, 0);
        figures.subscription(1).acked(2, 700);
        figures.subscription(1).acked(3, 800);
        let one = figures.of(1);
        assert_eq!((one.messages_out, one.bytes_out, one.redeliveries), (5, 120, 1));
        assert_eq!((one.acks, one.last_acked), (5, 800));
        assert_eq!(figures.of(3).messages_out, 0, "nobody knows it");
        assert_eq!(figures.out(), (6, 125));
        figures.forget(1);
        assert_eq!((figures.of(1).messages_out, figures.out()), (0, (6, 125)));
        figures.forget(1);
        figures.subscription(1).delivered(1, 1, 0);
        assert_eq!(figures.out(), (7, 126));
    }

    #[test]
    fn the_broker_counts_deliveries_and_groups() {
        let mut totals = crate::metrics::Totals::default();
        totals.delivered(0);
        totals.delivered(3);
        totals.delivered(1);
        assert_eq!((totals.deliveries, totals.redeliveries), (3, 2));
        totals.committed(100);
        totals.committed(50);
        assert_eq!((totals.groups, totals.bytes_logged), (2, 150));
    }

    /// A rate is that of the last complete minute, and zero before the first one.
    #[test]
    fn rates_are_those_of_the_last_minute() {
        let mut figures = TopicCounters::default();
        figures.published(600, 6000);
        figures.subscription(1).delivered(60, 600, 0);
        figures.sample(MINUTE);
        assert_eq!((figures.rate_in.get(), figures.rate_out.get()), ((0.0, 0.0), (0.0, 0.0)));
        figures.published(120, 1200);
        figures.subscription(1).delivered(30, 300, 0);
        figures.sample(2 * MINUTE - 1);
        assert_eq!(figures.rate_in.get(), (0.0, 0.0), "the minute is not over");
        figures.sample(2 * MINUTE);
        assert_eq!((figures.rate_in.get(), figures.rate_out.get()), ((2.0, 20.0), (0.5, 5.0)));
        figures.sample(2 * MINUTE + 1);
        assert_eq!(figures.rate_in.get(), (2.0, 20.0));
        figures.published(240, 480);
        figures.sample(4 * MINUTE);
        assert_eq!(figures.rate_in.get(), (2.0, 4.0), "of two minutes");
        assert_eq!(figures.rate_out.get(), (0.0, 0.0));
    }
}
