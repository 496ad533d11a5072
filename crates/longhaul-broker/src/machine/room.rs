//! Checks the room for publishes: on the disk, and in the backlog quota of a topic.

use super::BrokerMachine;
use super::effect::RequestRefusal;
use super::figures::bytes_from;
use crate::policies::{BacklogAction, BacklogQuota, Retention};
use crate::state::BrokerTopic;
use longhaul_wire::messages::ServerError;

/// How long a topic gets no producer after an entry had no room, as long as an entry of this size
/// does not fit. Clients give up a message after 30 s by default, and restart that timer with each
/// new producer.
const REFUSED_MS: u64 = 60_000;

/// An entry that had no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedEntry {
    bytes: usize,
    /// When its size no longer counts, in ms since the start: the entry may be too large for this
    /// disk at any time.
    until: u64,
}

impl BrokerMachine {
    /// Checks that there is room for another entry of this many bytes.
    pub(super) fn check_room(&mut self, topic: u32, bytes: usize) -> Result<(), RequestRefusal> {
        if let Err(refusal) = self.check_disk(bytes) {
            let refused = RefusedEntry { bytes, until: self.up.saturating_add(REFUSED_MS) };
            if let Some(live) = self.live.get_mut(&topic) {
                live.refused = Some(refused);
            }
            self.space.refused(self.up, bytes, &refusal.text);
            return Err(refusal);
        }
        self.check_quota(topic)
    }

    /// Checks that a topic may have another producer. Without room, its first entry would end it,
    /// and a client would send that entry with each new producer, at once and for ever.
    pub(super) fn check_room_to_begin(&mut self, topic: u32) -> Result<(), RequestRefusal> {
        let refused = self.live.get(&topic).and_then(|live| live.refused);
        let refused = refused.filter(|refused| self.up < refused.until);
        let bytes = refused.map_or(0, |refused| refused.bytes);
        if let Err(refusal) = self.check_disk(bytes) {
            self.space.refused(self.up, bytes, &refusal.text);
            return Err(refusal);
        }
        if let Some(live) = self.live.get_mut(&topic) {
            live.refused = None;
        }
        self.check_quota(topic)
    }

    /// Checks that the topic's backlog is within its quota, unless the quota's action is eviction.
    /// As on Pulsar, new producers and further messages are refused; by the code, a client holds a
    /// message or gives it up.
    pub(super) fn check_quota(&self, topic: u32) -> Result<(), RequestRefusal> {
        self.check_age(topic)?;
        let Some((quota, limit)) = self.quota(topic) else { return Ok(()) };
        // The backlog is a part of the stored bytes, so it need not be counted for each message.
        if self.state.topic(topic).is_none_or(|kept| kept.bytes < limit) {
            return Ok(());
        }
        let Some(code) = blocks(quota.policy) else { return Ok(()) };
        let is_default = self.own_quota(topic).is_none();
        let backlog = if is_default { self.open_bytes(topic) } else { self.backlog(topic) };
        let Some((kept, backlog)) = backlog.filter(|found| found.1 >= limit) else { return Ok(()) };
        let name = &kept.name;
        let (what, remedy) = if self.keeps_for_ever(topic) {
            ("keeps for ever", "give it a retention by time or size, delete it")
        } else if kept.durable().next().is_none() {
            (
                "has no subscription and keeps",
                "subscribe and consume, give it a retention by size, delete it",
            )
        } else {
            ("has a backlog of", "consume, skip or delete")
        };
        let text = if is_default {
            format!(
                "{name} {what} about {backlog} bytes, and without a quota its limit is half of the disk, {limit} bytes: {remedy}, or set a backlog quota, -1 for none"
            )
        } else {
            format!("{name} has a backlog of about {backlog} bytes, its quota is {limit}")
        };
        Err(RequestRefusal::new(code, text))
    }

    /// Whether the retention is unlimited.
    fn keeps_for_ever(&self, topic: u32) -> bool {
        let retention = self.live.get(&topic).and_then(|live| live.policies.retention);
        retention.is_some_and(Retention::is_endless)
    }

    /// Checks that the oldest message of the topic's backlog is young enough, by its publish time.
    fn check_age(&self, topic: u32) -> Result<(), RequestRefusal> {
        let Some((action, limit_s)) = self.age_quota(topic) else { return Ok(()) };
        let both = self.state.topic(topic).zip(self.live.get(&topic));
        let (Some(code), Some((kept, live))) = (blocks(action), both) else { return Ok(()) };
        let oldest = kept.lowest_mark().filter(|&mark| mark < live.readable);
        let oldest = oldest.and_then(|ordinal| kept.entries.get(ordinal));
        let age_s = oldest.map_or(0, |slot| self.now.saturating_sub(slot.publish_time) / 1000);
        if age_s <= limit_s {
            return Ok(());
        }
        let name = &kept.name;
        let text = format!(
            "{name} has a message in its backlog that is {age_s} s old, its quota is {limit_s} s"
        );
        Err(RequestRefusal::new(code, text))
    }

    /// The quota by age: its action, and the maximum age in seconds.
    pub(super) fn age_quota(&self, topic: u32) -> Option<(BacklogAction, u64)> {
        let quota = self.live.get(&topic)?.policies.backlog_age?;
        let limit_s = u64::try_from(quota.limit_s).ok().filter(|&limit_s| limit_s > 0)?;
        Some((quota.policy, limit_s))
    }

    fn own_quota(&self, topic: u32) -> Option<BacklogQuota> {
        self.live.get(&topic)?.policies.backlog_quota
    }

    /// The quota of a topic in bytes, if it has one.
    pub(super) fn quota(&self, topic: u32) -> Option<(BacklogQuota, u64)> {
        let quota = self.own_quota(topic).or_else(|| self.default_quota())?;
        Some((quota, u64::try_from(quota.limit_bytes).ok()?))
    }

    /// Approximate number of unacknowledged bytes of the subscription with the largest backlog.
    /// Messages that a retention keeps for a limited time do not count. Without subscriptions, and
    /// with an unlimited retention, all stored messages count.
    fn open_bytes(&self, topic: u32) -> Option<(&BrokerTopic, u64)> {
        let (kept, live) = self.state.topic(topic).zip(self.live.get(&topic))?;
        let (first, all) = (kept.entries.first(), kept.entries.count().max(1));
        let open = kept
            .durable()
            .map(|subscription| subscription.cursor.open_between(first, live.readable))
            .max();
        let open = open.filter(|_| !self.keeps_for_ever(topic)).unwrap_or(all);
        let bytes = u128::from(kept.bytes) * u128::from(open.min(all)) / u128::from(all);
        Some((kept, u64::try_from(bytes).unwrap_or(u64::MAX)))
    }

    /// Approximate number of bytes that the slowest subscription has not read.
    pub(super) fn backlog(&self, topic: u32) -> Option<(&BrokerTopic, u64)> {
        let (kept, live) = self.state.topic(topic).zip(self.live.get(&topic))?;
        let backlog = kept.lowest_mark().map_or(0, |mark| bytes_from(kept, mark, live.readable));
        Some((kept, backlog))
    }
}

/// The error for producers if the quota's action blocks them.
const fn blocks(action: BacklogAction) -> Option<ServerError> {
    match action {
        BacklogAction::ConsumerBacklogEviction => None,
        BacklogAction::ProducerRequestHold => Some(ServerError::ProducerBlockedQuotaExceededError),
        BacklogAction::ProducerException => {
            Some(ServerError::ProducerBlockedQuotaExceededException)
        }
    }
}
