//! How many topics and durable subscriptions each role has created by use.

use super::BrokerTopic;
use super::topic::BrokerSubscription;
use std::collections::BTreeMap;

/// Numbers of existing topics and durable subscriptions, by the role that created them; the role of
/// administrators is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Creators(BTreeMap<String, (usize, usize)>);

impl Creators {
    pub(super) fn of(&self, role: &str) -> (usize, usize) {
        self.0.get(role).copied().unwrap_or_default()
    }

    pub(super) fn add_topic(&mut self, role: &str) {
        self.0.entry(role.to_owned()).or_default().0 += 1;
    }

    pub(super) fn add_subscription(&mut self, role: &str) {
        self.0.entry(role.to_owned()).or_default().1 += 1;
    }

    pub(super) fn remove_topic(&mut self, topic: &BrokerTopic) {
        if let Some(count) = self.0.get_mut(&topic.role) {
            count.0 = count.0.saturating_sub(1);
        }
        topic.subscriptions.values().for_each(|known| self.remove_subscription(known));
    }

    pub(super) fn remove_subscription(&mut self, subscription: &BrokerSubscription) {
        let count = self.0.get_mut(&subscription.role).filter(|_| subscription.is_durable);
        if let Some(count) = count {
            count.1 = count.1.saturating_sub(1);
        }
    }
}
