//! Single messages and their positions.

use super::super::BrokerMachine;
use super::super::stats::{before, shown};
use super::missing;
use crate::admin::values::{AdminCallError, AdminPosition, StoredEntryLocation};
use crate::name::TopicName;
use crate::state::entries;

impl BrokerMachine {
    /// The last entry of the whole log; entry -1 in its ledger if the ledger is empty.
    pub(crate) fn last_position(&self, name: &TopicName) -> Result<AdminPosition, AdminCallError> {
        let id = self.one(name)?;
        let readable = self.live.get(&id).map_or(0, |live| live.readable);
        let topic = self.state.topic(id).ok_or_else(|| missing(name))?;
        Ok(before(topic, readable))
    }

    /// The first message published at or after this time, in ms since 1970; the position of the
    /// next message if there is none.
    pub(crate) fn message_id_at(
        &self,
        name: &TopicName,
        timestamp_ms: u64,
    ) -> Result<AdminPosition, AdminCallError> {
        let id = self.one(name)?;
        let topic = self.state.topic(id).ok_or_else(|| missing(name))?;
        let ordinal = self.ordinal_at_time(id, timestamp_ms).unwrap_or_default();
        Ok(shown(topic.entries.position_of(ordinal)))
    }

    /// The message with this id; [`AdminCallError::NotFound`] if it does not, or no longer, exist.
    pub(crate) fn find_message(
        &self,
        name: &TopicName,
        position: AdminPosition,
    ) -> Result<StoredEntryLocation, AdminCallError> {
        self.find(name, |id| {
            let ledger = u64::try_from(position.ledger).ok()?;
            let entry = u64::try_from(position.entry).ok()?;
            self.state.topic(id)?.entries.ordinal_of(entries::EntryPosition { ledger, entry })
        })
    }

    /// The n-th existing message, from 1, counted from the first or from the last.
    pub(crate) fn find_nth(
        &self,
        name: &TopicName,
        from_last: bool,
        nth: u64,
    ) -> Result<StoredEntryLocation, AdminCallError> {
        if self.state.partitions(name.as_str()).is_some() {
            let text = format!("{name} is a partitioned topic: examine one of its partitions");
            return Err(AdminCallError::MethodNotAllowed(text));
        }
        let id = self.one(name)?;
        if self.state.topic(id).is_some_and(|kept| kept.entries.count() == 0) {
            return Err(AdminCallError::PreconditionFailed(format!("{name} has no messages")));
        }
        self.find(name, |id| {
            let (kept, live) = (self.state.topic(id)?, self.live.get(&id)?);
            let unwritten = kept.entries.end().saturating_sub(live.readable);
            let count = kept.entries.count().saturating_sub(unwritten);
            let skipped = if from_last { count.checked_sub(nth)? } else { nth.checked_sub(1)? };
            kept.entries.nth(skipped).filter(|&ordinal| ordinal < live.readable)
        })
    }

    /// The n-th message, from 1, that a subscription has not acknowledged.
    pub(crate) fn find_nth_open(
        &self,
        name: &TopicName,
        subscription: &str,
        nth: u64,
    ) -> Result<StoredEntryLocation, AdminCallError> {
        self.find(name, |id| {
            self.nth_open(id, self.state.topic(id)?.subscription_id(subscription)?, nth)
        })
    }

    fn find(
        &self,
        name: &TopicName,
        ordinal: impl FnOnce(u32) -> Option<u64>,
    ) -> Result<StoredEntryLocation, AdminCallError> {
        let id = self.one(name)?;
        let found = || {
            let ordinal = ordinal(id)?;
            let position = self.view(id, false)?.get(ordinal)?.position;
            let location = self.state.topic(id)?.entries.get(ordinal)?.location;
            Some(StoredEntryLocation { position: shown(Some(position)), location })
        };
        found().ok_or_else(|| AdminCallError::NotFound("Message not found".to_owned()))
    }

    /// The n-th entry, from 1, that is on disk and unacknowledged by the subscription.
    pub(super) fn nth_open(&self, topic: u32, id: u32, nth: u64) -> Option<u64> {
        let (kept, live) = self.state.topic(topic).zip(self.live.get(&topic))?;
        let cursor = &kept.subscriptions.get(&id)?.cursor;
        let ordinal = cursor.nth_unacked(kept.entries.first(), nth.checked_sub(1)?);
        (ordinal < live.readable).then_some(ordinal)
    }
}
