//! Whether there is room for what is published: on the disk, and within the quota of a topic's
//! backlog.

use super::BrokerMachine;
use super::effect::RequestRefusal;
use super::figures::bytes_from;
use crate::admin::policies::{BacklogAction, BacklogQuota, Retention};
use crate::state::BrokerTopic;
use longhaul_wire::messages::ServerError;

/// How long a topic gets no producer after an entry had no room, as long as there is none for an
/// entry of this size. Clients give a message up after 30 s by default, and begin to count anew
/// with each producer that they are given.
const REFUSED_MS: u64 = 60_000;

/// An entry that had no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedEntry {
    bytes: usize,
    /// When its size does not count any more, in ms since the start: it may have been too large for
    /// this disk at any time.
    until: u64,
}

impl BrokerMachine {
    /// Whether there is room for another entry, of so many bytes.
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

    /// Whether a topic may have another producer: it would be ended with its first entry where
    /// there is no room. A client sends that again with each new producer, at once, for ever.
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

    /// Whether the topic's backlog is within its quota, unless that takes from the backlog. As
    /// Pulsar does: producers are refused, and what an older one sends; a client holds it or gives
    /// it up by the code.
    pub(super) fn check_quota(&self, topic: u32) -> Result<(), RequestRefusal> {
        self.check_age(topic)?;
        let Some((quota, limit)) = self.quota(topic) else { return Ok(()) };
        // A backlog is a part of what is kept, and is not counted for each message.
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
                "keeps, though no subscription is there to read them,",
                "subscribe and consume, give it a retention by size, delete it",
            )
        } else {
            ("has a backlog of", "consume, skip or delete")
        };
        let text = if is_default {
            format!(
                "{name} {what} about {backlog} bytes, and may take half of the disk, {limit} bytes, as long as no quota is set for it: {remedy}, or set a backlog quota, -1 for none"
            )
        } else {
            format!("{name} has a backlog of about {backlog} bytes, its quota is {limit}")
        };
        Err(RequestRefusal::new(code, text))
    }

    /// Whether a retention keeps everything until somebody takes it away.
    fn keeps_for_ever(&self, topic: u32) -> bool {
        let retention = self.live.get(&topic).and_then(|live| live.policies.retention);
        retention.is_some_and(Retention::is_endless)
    }

    /// Whether the oldest message of the topic's backlog is young enough, by the time at which its
    /// producer says that it was published.
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

    /// How old the oldest message of a backlog may become, in seconds, and what happens then, if
    /// there is a quota on it.
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

    /// About how many bytes the subscription with most to do has not acknowledged: what a retention
    /// keeps for a time does not count, as it goes by itself. Where there is no subscription nobody
    /// consumes, and all counts that is kept, for whatever reason. So it does where a retention
    /// keeps it for ever.
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

    /// About how many bytes the slowest subscription of a topic has to read.
    pub(super) fn backlog(&self, topic: u32) -> Option<(&BrokerTopic, u64)> {
        let (kept, live) = self.state.topic(topic).zip(self.live.get(&topic))?;
        let backlog = kept.lowest_mark().map_or(0, |mark| bytes_from(kept, mark, live.readable));
        Some((kept, backlog))
    }
}

/// What producers are refused with by a quota that does so.
const fn blocks(action: BacklogAction) -> Option<ServerError> {
    match action {
        BacklogAction::ConsumerBacklogEviction => None,
        BacklogAction::ProducerRequestHold => Some(ServerError::ProducerBlockedQuotaExceededError),
        BacklogAction::ProducerException => {
            Some(ServerError::ProducerBlockedQuotaExceededException)
        }
    }
}
