//! Whether there is room for what is published: on the disk, and within the quota of a topic's backlog.

use super::Machine;
use super::effect::Refusal;
use super::figures::bytes_from;
use longhaul_wire::messages::ServerError;

/// Publishes stop this far before the limit of the disk: room for the next segment, and for acks.
const RESERVE_BYTES: u64 = 64 * 1024 * 1024;

impl Machine {
    /// Whether there is room for another entry.
    pub(super) fn check_room(&self, topic: u32) -> Result<(), Refusal> {
        let refuse = |text: String| Err(Refusal::new(ServerError::PersistenceError, text));
        if self.keeper.is_full() {
            return refuse(
                "the disk is full: free some space, the broker goes on by itself".to_owned(),
            );
        }
        let used = self.keeper.disk_bytes();
        if let Some(limit) = self.settings.disk_bytes_max.filter(|it| used + RESERVE_BYTES >= *it) {
            return refuse(format!(
                "the log takes {used} bytes of the {limit} that it may: consume, or raise the limit"
            ));
        }
        let Some((kept, live)) = self.state.topic(topic).zip(self.live.get(&topic)) else {
            return Ok(());
        };
        let quota = live.policies.backlog_quota.and_then(|it| u64::try_from(it.limit_bytes).ok());
        let Some(quota) = quota else { return Ok(()) };
        let backlog = kept.lowest_mark().map_or(0, |mark| bytes_from(kept, mark, live.readable));
        if backlog >= quota {
            let text = format!(
                "{} has a backlog of about {backlog} bytes, its quota is {quota}",
                kept.name
            );
            let code = ServerError::ProducerBlockedQuotaExceededException;
            return Err(Refusal::new(code, text));
        }
        Ok(())
    }
}
