//! Subscriptions, and single messages.

use super::super::Machine;
use super::super::effect::{Effect, Refusal};
use super::super::stats::{COMPACTION_CURSOR, shown};
use super::{Answer, failed};
use crate::admin::request::{
    AdminError, AdminReply, Position as AdminPosition, Start, SubscriptionCall,
};
use crate::name::TopicName;
use crate::state::change::CreateSubscription;
use crate::state::entries::Position;
use std::collections::BTreeMap;

impl Machine {
    pub(in crate::machine) fn subscription_call(
        &mut self,
        name: &TopicName,
        subscription: &str,
        call: &SubscriptionCall,
    ) -> Answer {
        if subscription == COMPACTION_CURSOR {
            let text = "compaction needs no subscription here: there is none that could be changed or lost";
            return Err(AdminError::PreconditionFailed(text.to_owned()));
        }
        let is_creating = matches!(call, SubscriptionCall::Create { .. });
        let topics = if is_creating && self.all(name).is_err() {
            vec![self.ensure_topic(name, true).map_err(failed)?]
        } else {
            self.all(name)?
        };
        if let SubscriptionCall::Create { at, properties } = call {
            let exists = |id: &u32| {
                self.state.topic(*id).is_some_and(|it| it.subscription_id(subscription).is_some())
            };
            if topics.iter().all(exists) {
                return Err(AdminError::Conflict(
                    "Subscription already exists for topic".to_owned(),
                ));
            }
            for id in topics {
                self.create_subscription(id, subscription, *at, properties.clone())
                    .map_err(failed)?;
            }
            return Ok(AdminReply::Done);
        }
        let known = |id: u32| Some((id, self.state.topic(id)?.subscription_id(subscription)?));
        let known: Vec<(u32, u32)> = topics.into_iter().filter_map(known).collect();
        if known.is_empty() {
            return Err(AdminError::NotFound(format!("{name} has no subscription {subscription}")));
        }
        for (topic, id) in known {
            self.change_subscription(topic, id, call)?;
        }
        Ok(AdminReply::Done)
    }

    pub(in crate::machine) fn change_subscription(
        &mut self,
        topic: u32,
        id: u32,
        call: &SubscriptionCall,
    ) -> Result<(), AdminError> {
        let readable = self.live.get(&topic).map_or(0, |it| it.readable);
        let done = match call {
            SubscriptionCall::Delete { force } => {
                if !force && self.dispatcher(topic, id).is_some() {
                    let text = "the subscription has consumers: end them first, or force it";
                    return Err(AdminError::PreconditionFailed(text.to_owned()));
                }
                self.close_consumers(topic, id);
                self.delete_subscription(topic, id)
            }
            SubscriptionCall::SkipAll => self.skip_to(topic, Some(id), readable),
            SubscriptionCall::Skip { entries: 0 } => Ok(()),
            SubscriptionCall::Skip { entries } => {
                let last = self.nth_open(topic, id, *entries);
                self.skip_to(topic, Some(id), last.map_or(readable, |it| it + 1))
            }
            SubscriptionCall::ResetToTime { timestamp_ms } => {
                let mark = self.ordinal_at_time(topic, *timestamp_ms).unwrap_or(readable);
                self.reset_cursor(topic, id, mark)
            }
            SubscriptionCall::Reset { to } => {
                let mark = self.start(topic, *to);
                self.reset_cursor(topic, id, mark)
            }
            SubscriptionCall::ExpireMessages { age_s } => self.expire(topic, Some(id), *age_s),
            SubscriptionCall::Create { .. } | SubscriptionCall::Peek { .. } => Ok(()),
        };
        done.map_err(failed)
    }

    /// The n-th entry, from 1, that is on disk and that the subscription has not acknowledged.
    fn nth_open(&self, topic: u32, id: u32, nth: u64) -> Option<u64> {
        let (kept, live) = self.state.topic(topic).zip(self.live.get(&topic))?;
        let cursor = &kept.subscriptions.get(&id)?.cursor;
        let first = cursor.next_unacked(kept.entries.first());
        let open = std::iter::successors(Some(first), |it| Some(cursor.next_unacked(it + 1)));
        let before = usize::try_from(nth.checked_sub(1)?).ok()?;
        open.take_while(|it| *it < live.readable).nth(before)
    }

    pub(in crate::machine) fn start(&self, topic: u32, at: Start) -> u64 {
        let Some((kept, live)) = self.state.topic(topic).zip(self.live.get(&topic)) else {
            return 0;
        };
        let ordinal = match at {
            Start::Earliest => kept.entries.first(),
            Start::Latest => live.readable,
            Start::At(it) => kept.entries.ordinal_at_or_after(unsigned(it)),
            Start::After(AdminPosition { ledger, entry: ..0 }) => {
                kept.entries.ordinal_at_or_after(unsigned(AdminPosition { ledger, entry: 0 }))
            }
            Start::After(it) => {
                let it = AdminPosition { entry: it.entry.saturating_add(1), ..it };
                kept.entries.ordinal_at_or_after(unsigned(it))
            }
        };
        ordinal.clamp(kept.entries.first().min(live.readable), live.readable)
    }

    pub(in crate::machine) fn create_subscription(
        &mut self,
        topic: u32,
        name: &str,
        at: Start,
        properties: BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        let mark = self.start(topic, at);
        let Some(kept) = self.state.topic(topic) else { return Ok(()) };
        if kept.subscription_id(name).is_some() {
            return Ok(());
        }
        let subscription = kept.next_subscription();
        let name = name.to_owned();
        self.change(CreateSubscription { topic, subscription, name, mark, properties })
    }

    pub(in crate::machine) fn ordinal_at(
        &self,
        topic: u32,
        position: AdminPosition,
    ) -> Option<u64> {
        let number = |it: i64| u64::try_from(it).ok();
        let position =
            Position { ledger: number(position.ledger)?, entry: number(position.entry)? };
        self.state.topic(topic)?.entries.ordinal_of(position)
    }

    /// The n-th message that is there, from 1, from the first or from the last.
    pub(in crate::machine) fn nth_of(&self, topic: u32, from_last: bool, nth: u64) -> Option<u64> {
        let (kept, live) = (self.state.topic(topic)?, self.live.get(&topic)?);
        let unwritten = kept.entries.end().saturating_sub(live.readable);
        let count = kept.entries.count().saturating_sub(unwritten);
        let skipped = if from_last { count.checked_sub(nth)? } else { nth.checked_sub(1)? };
        kept.entries.nth(skipped).filter(|&it| it < live.readable)
    }

    pub(in crate::machine) fn nth_open_of(
        &self,
        topic: u32,
        subscription: &str,
        nth: u64,
    ) -> Option<u64> {
        self.nth_open(topic, self.state.topic(topic)?.subscription_id(subscription)?, nth)
    }

    pub(in crate::machine) fn read_message(
        &mut self,
        ticket: u64,
        topic: &str,
        find: impl FnOnce(&Self, u32) -> Option<u64>,
    ) {
        let found = self.parsed(topic).and_then(|name| {
            let id = self.one(&name)?;
            let none = || AdminError::NotFound("Message not found".to_owned());
            let ordinal = find(self, id).ok_or_else(none)?;
            let item = self.view(id, false).and_then(|it| it.get(ordinal)).ok_or_else(none)?;
            let slot =
                self.state.topic(id).and_then(|it| it.entries.get(ordinal)).ok_or_else(none)?;
            Ok((shown(Some(item.position)), slot.place))
        });
        self.effects.push(match found {
            Ok((position, place)) => Effect::Read { ticket, position, place },
            Err(error) => Effect::Reply(ticket, Err(error)),
        });
    }
}

/// An id from outside to start at; what is below zero stands before everything.
fn unsigned(position: AdminPosition) -> Position {
    let number = |it: i64| u64::try_from(it).unwrap_or_default();
    Position { ledger: number(position.ledger), entry: number(position.entry) }
}
