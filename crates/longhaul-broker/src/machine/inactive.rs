//! Deleting topics and subscriptions that have had no clients for as long as a policy says.

use super::BrokerMachine;
use super::effect::{MachineEffect, RequestRefusal};
use super::keeping::trim_point;
use crate::policies::{InactiveMode, Policies};
use crate::state::BrokerTopic;
use std::collections::BTreeMap;

/// Since when a topic and its subscriptions have had no clients, by the monotonic clock. Known for
/// those that a policy may delete; after a start of the broker, all begin anew.
#[derive(Debug, Default)]
pub(super) struct Inactivity {
    topic: Option<u64>,
    subscriptions: BTreeMap<u32, u64>,
}

impl Inactivity {
    /// Notes a producer, or a consumer of this subscription.
    pub(super) fn end(&mut self, subscription: Option<u32>) {
        self.topic = None;
        if let Some(subscription) = subscription {
            self.subscriptions.remove(&subscription);
        }
    }
}

impl BrokerMachine {
    /// Deletes the topic, or subscriptions of it, if its policies say so.
    pub(super) fn delete_inactive(
        &mut self,
        topic: u32,
        policies: &Policies,
    ) -> Result<(), RequestRefusal> {
        self.delete_inactive_subscriptions(topic, policies)?;
        let up = self.up;
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let Some((kept, live)) = self.invariants.served(both) else { return Ok(()) };
        let limit = policies.inactive_topics.filter(|limit| limit.delete_while_inactive);
        let Some(limit) = limit.filter(|_| !live.is_used()) else {
            live.inactivity.topic = None;
            return Ok(());
        };
        let idle_s = up.saturating_sub(*live.inactivity.topic.get_or_insert(up)) / 1000;
        let limit_s = u64::try_from(limit.max_inactive_s).unwrap_or(u64::MAX);
        let mode = limit.inactive_topic_delete_mode;
        if idle_s < limit_s || !may_go(kept, policies, mode, self.now) {
            return Ok(());
        }
        let text = format!(
            "{} is deleted: it had no producers and consumers for {idle_s} s (inactiveTopicPolicies)",
            kept.name
        );
        self.delete_topic(topic)?;
        self.effects.push(MachineEffect::Inform(text));
        Ok(())
    }

    fn delete_inactive_subscriptions(
        &mut self,
        topic: u32,
        policies: &Policies,
    ) -> Result<(), RequestRefusal> {
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let Some((kept, live)) = self.invariants.served(both) else { return Ok(()) };
        let Some(minutes) = policies.limit("subscriptionExpirationTime") else {
            live.inactivity.subscriptions.clear();
            return Ok(());
        };
        let limit_ms = (minutes as u64).saturating_mul(60_000);
        let mut due = Vec::new();
        for (&id, subscription) in &kept.subscriptions {
            if !subscription.is_durable || live.dispatchers.contains_key(&id) {
                continue;
            }
            let since = *live.inactivity.subscriptions.entry(id).or_insert(self.up);
            if self.up.saturating_sub(since) >= limit_ms {
                due.push((id, format!(
                    "subscription {} of {} is deleted: it had no consumers for {minutes} min (subscriptionExpirationTime)",
                    subscription.name, kept.name
                )));
            }
        }
        for (id, text) in due {
            self.delete_subscription(topic, id)?;
            self.effects.push(MachineEffect::Inform(text));
        }
        Ok(())
    }
}

/// Whether no subscription and no policy keeps anything of a topic. Messages without a subscription
/// and without a retention are kept until somebody subscribes: they may be tasks whose workers are
/// still to come.
fn may_go(kept: &BrokerTopic, policies: &Policies, mode: InactiveMode, now: u64) -> bool {
    let has_subscriptions = kept.durable().next().is_some();
    if has_subscriptions && mode == InactiveMode::DeleteWhenNoSubscriptions {
        return false;
    }
    let end = kept.entries.end();
    kept.compacted.is_none()
        && kept.lowest_mark().is_none_or(|mark| mark >= end)
        && trim_point(kept, policies, end, now) == end
}
