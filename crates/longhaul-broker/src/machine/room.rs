//! Whether there is room for what is published: on the disk, and within the quota of a topic's backlog.

use super::Machine;
use super::effect::Refusal;
use super::figures::bytes_from;
use super::space::RESERVE_BYTES;
use crate::admin::policies::{BacklogAction, BacklogQuota};
use crate::state::Topic;
use longhaul_wire::messages::ServerError;

impl Machine {
    /// Whether there is room for another entry, of so many bytes.
    pub(super) fn check_room(&self, topic: u32, bytes: usize) -> Result<(), Refusal> {
        let refuse = |text: String| Err(Refusal::new(ServerError::PersistenceError, text));
        if self.log.is_stuck || !self.composer.has_room_for(bytes) {
            return refuse(
                "the log cannot go on for want of disk space or of file descriptors, as the broker's own log says: free some, the broker goes on by itself"
                    .to_owned(),
            );
        }
        let used = self.log.bytes();
        if let Some(limit) =
            self.settings.disk_bytes_max.filter(|limit| used + RESERVE_BYTES >= *limit)
        {
            return refuse(format!(
                "the log takes {used} bytes of the {limit} that it may: consume, or raise the limit"
            ));
        }
        self.check_quota(topic)
    }

    /// Whether the topic's backlog is within its quota, unless that takes from the backlog. As Pulsar does: producers are refused, and what
    /// an older one sends; a client holds it or gives it up by the code.
    pub(super) fn check_quota(&self, topic: u32) -> Result<(), Refusal> {
        let Some((quota, limit)) = self.quota(topic) else { return Ok(()) };
        let code = match quota.policy {
            BacklogAction::ConsumerBacklogEviction => return Ok(()),
            BacklogAction::ProducerRequestHold => ServerError::ProducerBlockedQuotaExceededError,
            BacklogAction::ProducerException => ServerError::ProducerBlockedQuotaExceededException,
        };
        let is_default = self.own_quota(topic).is_none();
        let backlog = if is_default { self.open_bytes(topic) } else { self.backlog(topic) };
        let Some((kept, backlog)) = backlog.filter(|found| found.1 >= limit) else { return Ok(()) };
        let name = &kept.name;
        let text = if is_default {
            format!(
                "{name} has a backlog of about {backlog} bytes, and may take half of the disk, {limit} bytes, as long as no quota is set for it: consume, skip or delete, or set a backlog quota, -1 for none"
            )
        } else {
            format!("{name} has a backlog of about {backlog} bytes, its quota is {limit}")
        };
        Err(Refusal::new(code, text))
    }

    fn own_quota(&self, topic: u32) -> Option<BacklogQuota> {
        self.live.get(&topic)?.policies.backlog_quota
    }

    /// The quota of a topic in bytes, if it has one.
    pub(super) fn quota(&self, topic: u32) -> Option<(BacklogQuota, u64)> {
        let quota = self.own_quota(topic).or_else(|| self.default_quota())?;
        Some((quota, u64::try_from(quota.limit_bytes).ok()?))
    }

    /// About how many bytes the subscription with most to do has not acknowledged: what a retention keeps does not count.
    fn open_bytes(&self, topic: u32) -> Option<(&Topic, u64)> {
        let (kept, live) = self.state.topic(topic).zip(self.live.get(&topic))?;
        let (first, all) = (kept.entries.first(), kept.entries.count().max(1));
        let open = kept
            .durable()
            .map(|subscription| subscription.cursor.open_between(first, live.readable))
            .max()?;
        let bytes = u128::from(kept.bytes) * u128::from(open.min(all)) / u128::from(all);
        Some((kept, u64::try_from(bytes).unwrap_or(u64::MAX)))
    }

    /// About how many bytes the slowest subscription of a topic has to read.
    pub(super) fn backlog(&self, topic: u32) -> Option<(&Topic, u64)> {
        let (kept, live) = self.state.topic(topic).zip(self.live.get(&topic))?;
        let backlog = kept.lowest_mark().map_or(0, |mark| bytes_from(kept, mark, live.readable));
        Some((kept, backlog))
    }
}
