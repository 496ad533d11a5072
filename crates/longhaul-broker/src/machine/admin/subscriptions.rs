//! Subscriptions. An operation on a partitioned topic applies to each of its partitions. A missing
//! topic or subscription gives [`AdminCallError::NotFound`]. `__compaction` is not a subscription
//! here: [`AdminCallError::PreconditionFailed`].

use super::super::BrokerMachine;
use super::super::session::check_metadata;
use super::super::stats::COMPACTION_CURSOR;
use super::AdminResult;
use crate::admin::values::{AdminCallError, AdminPosition, SubscriptionStart};
use crate::name::TopicName;
use crate::policies::ResourceProperties;
use crate::state::change::NoteSubscription;
use crate::state::entries;

impl BrokerMachine {
    /// Creates a durable subscription, and its topic if topics are created on use.
    /// [`AdminCallError::Conflict`] if it exists.
    pub(crate) fn make_subscription(
        &mut self,
        name: &TopicName,
        subscription: &str,
        at: SubscriptionStart,
        properties: &ResourceProperties,
    ) -> AdminResult {
        check_subscription(subscription)?;
        check_properties(properties)?;
        let topics = match self.all(name) {
            Ok(topics) => topics,
            Err(_) => vec![self.ensure_topic(name, true)?],
        };
        let exists = |id: &u32| {
            self.state.topic(*id).is_some_and(|topic| topic.subscription_id(subscription).is_some())
        };
        if topics.iter().all(exists) {
            return Err(AdminCallError::Conflict(
                "Subscription already exists for topic".to_owned(),
            ));
        }
        for id in topics {
            let (mark, properties) = (self.start(id, at), properties.clone());
            self.create_subscription(id, subscription.to_owned(), Some(mark), properties)?;
        }
        Ok(())
    }

    /// Deletes a subscription. [`AdminCallError::PreconditionFailed`] while it has consumers,
    /// unless `force` is set: then they are closed.
    pub(crate) fn remove_subscription(
        &mut self,
        name: &TopicName,
        subscription: &str,
        force: bool,
    ) -> AdminResult {
        self.each(name, subscription, |machine, topic, id| {
            if !force && machine.dispatcher(topic, id).is_some() {
                let text = "the subscription has consumers: end them first, or force it";
                return Err(AdminCallError::PreconditionFailed(text.to_owned()));
            }
            machine.close_consumers(topic, id);
            Ok(machine.delete_subscription(topic, id)?)
        })
    }

    /// Acknowledges all existing messages.
    pub(crate) fn skip_all(&mut self, name: &TopicName, subscription: &str) -> AdminResult {
        self.each(name, subscription, |machine, topic, id| {
            Ok(machine.acknowledge_before(topic, Some(id), machine.readable(topic))?)
        })
    }

    /// Acknowledges this many entries.
    pub(crate) fn skip(
        &mut self,
        name: &TopicName,
        subscription: &str,
        entries: u64,
    ) -> AdminResult {
        self.each(name, subscription, |machine, topic, id| {
            if entries == 0 {
                return Ok(());
            }
            let last = machine.nth_open(topic, id, entries);
            let before = last.map_or_else(|| machine.readable(topic), |ordinal| ordinal + 1);
            Ok(machine.acknowledge_before(topic, Some(id), before)?)
        })
    }

    /// Moves the subscription to the first entry published at or after this time, in ms since 1970,
    /// and closes its consumers.
    pub(crate) fn reset_to_time(
        &mut self,
        name: &TopicName,
        subscription: &str,
        timestamp_ms: u64,
    ) -> AdminResult {
        self.each(name, subscription, |machine, topic, id| {
            let found = machine.ordinal_at_time(topic, timestamp_ms);
            Ok(machine.reset_cursor(topic, id, found.unwrap_or_else(|| machine.readable(topic)))?)
        })
    }

    /// Moves the subscription, and closes its consumers, which subscribe again.
    pub(crate) fn reset(
        &mut self,
        name: &TopicName,
        subscription: &str,
        to: SubscriptionStart,
    ) -> AdminResult {
        self.each(name, subscription, |machine, topic, id| {
            Ok(machine.reset_cursor(topic, id, machine.start(topic, to))?)
        })
    }

    /// Acknowledges messages published at least this many seconds ago.
    pub(crate) fn expire_subscription(
        &mut self,
        name: &TopicName,
        subscription: &str,
        age_s: u64,
    ) -> AdminResult {
        self.each(name, subscription, |machine, topic, id| {
            Ok(machine.expire(topic, Some(id), age_s)?)
        })
    }

    /// Acknowledges everything up to this entry, or before it if the entry is excluded.
    pub(crate) fn expire_up_to(
        &mut self,
        name: &TopicName,
        subscription: &str,
        last: SubscriptionStart,
    ) -> AdminResult {
        // A start after an entry means that the entry is acknowledged.
        let next = match last {
            SubscriptionStart::At(position) => SubscriptionStart::After(position),
            SubscriptionStart::After(position) => SubscriptionStart::At(position),
            end @ (SubscriptionStart::Earliest | SubscriptionStart::Latest) => end,
        };
        self.each(name, subscription, |machine, topic, id| {
            Ok(machine.acknowledge_before(topic, Some(id), machine.start(topic, next))?)
        })
    }

    /// The properties of a subscription; on a partitioned topic, those of all its partitions
    /// together.
    pub(crate) fn subscription_properties(
        &self,
        name: &TopicName,
        subscription: &str,
    ) -> Result<ResourceProperties, AdminCallError> {
        let topics = self.all(name)?.into_iter().filter_map(|id| self.state.topic(id));
        let all = topics.flat_map(|topic| topic.durable());
        let known: Vec<_> = all.filter(|known| known.name == subscription).collect();
        if known.is_empty() {
            return Err(no_subscription(name, subscription));
        }
        Ok(known.into_iter().flat_map(|known| known.properties.clone()).collect())
    }

    /// Replaces the properties. A reader's properties are not stored: [`AdminCallError::NotFound`].
    pub(crate) fn set_subscription_properties(
        &mut self,
        name: &TopicName,
        subscription: &str,
        properties: &ResourceProperties,
    ) -> AdminResult {
        check_properties(properties)?;
        // Fails where there is none that is kept.
        self.subscription_properties(name, subscription)?;
        self.each(name, subscription, |machine, topic, id| {
            let known = machine.state.subscription(topic, id);
            if known.is_none_or(|known| !known.is_durable || known.properties == *properties) {
                return Ok(());
            }
            let properties = properties.clone();
            Ok(machine.change(NoteSubscription { topic, subscription: id, properties })?)
        })
    }

    /// Applies `work` to the subscription on each topic that has it.
    fn each(
        &mut self,
        name: &TopicName,
        subscription: &str,
        mut work: impl FnMut(&mut Self, u32, u32) -> AdminResult,
    ) -> AdminResult {
        check_subscription(subscription)?;
        let known = |id: u32| Some((id, self.state.topic(id)?.subscription_id(subscription)?));
        let known: Vec<(u32, u32)> = self.all(name)?.into_iter().filter_map(known).collect();
        if known.is_empty() {
            return Err(no_subscription(name, subscription));
        }
        known.into_iter().try_for_each(|(topic, id)| work(self, topic, id))
    }

    pub(in crate::machine) fn start(&self, topic: u32, at: SubscriptionStart) -> u64 {
        let Some((kept, live)) = self.state.topic(topic).zip(self.live.get(&topic)) else {
            return 0;
        };
        let at_or_after =
            |position: AdminPosition| kept.entries.ordinal_at_or_after(unsigned(position));
        let ordinal = match at {
            SubscriptionStart::Earliest => kept.entries.first(),
            SubscriptionStart::Latest => live.readable,
            SubscriptionStart::At(position) => at_or_after(position),
            SubscriptionStart::After(AdminPosition { ledger, entry: ..0 }) => {
                at_or_after(AdminPosition { ledger, entry: 0 })
            }
            SubscriptionStart::After(AdminPosition { ledger, entry }) => {
                at_or_after(AdminPosition { ledger, entry: entry.saturating_add(1) })
            }
        };
        ordinal.clamp(kept.entries.first().min(live.readable), live.readable)
    }
}

fn no_subscription(name: &TopicName, subscription: &str) -> AdminCallError {
    AdminCallError::NotFound(format!("{name} has no subscription {subscription}"))
}

fn check_properties(properties: &ResourceProperties) -> AdminResult {
    let pairs = properties.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    check_metadata(pairs).map_err(|refusal| AdminCallError::PreconditionFailed(refusal.text))
}

fn check_subscription(name: &str) -> AdminResult {
    if name != COMPACTION_CURSOR {
        return Ok(());
    }
    let text = "compaction needs no subscription here: there is none that could be changed or lost";
    Err(AdminCallError::PreconditionFailed(text.to_owned()))
}

/// The start position of an id from outside; negative numbers are before every entry.
fn unsigned(position: AdminPosition) -> entries::EntryPosition {
    let number = |given: i64| u64::try_from(given).unwrap_or_default();
    entries::EntryPosition { ledger: number(position.ledger), entry: number(position.entry) }
}
