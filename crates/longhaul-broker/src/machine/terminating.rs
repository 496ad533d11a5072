//! Terminated topics: nothing more can be published, and consumers that have read everything are
//! told so.

use super::BrokerMachine;
use super::effect::RequestRefusal;
use super::invariants::Invariant;
use crate::state::cursor::Cursor;
use crate::state::entries::TopicEntries;
use longhaul_wire::messages::{CommandReachedEndOfTopic, ServerError};

impl BrokerMachine {
    /// Refuses to publish to a terminated topic.
    pub(super) fn check_end(&self, topic: u32) -> Result<(), RequestRefusal> {
        match self.state.topic(topic) {
            Some(kept) if kept.is_terminated => {
                let text = format!("{} was terminated: nothing more can be published", kept.name);
                Err(RequestRefusal::new(ServerError::TopicTerminatedError, text))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Calls `tell_end` for all subscriptions of a topic. Unacknowledged entries may be removed
    /// too: a non-durable reader keeps nothing.
    pub(super) fn tell_ends(&mut self, topic: u32) {
        let Some(kept) = self.state.topic(topic).filter(|topic| topic.is_terminated) else {
            return;
        };
        let subscriptions: Vec<u32> = kept.subscriptions.keys().copied().collect();
        subscriptions.into_iter().for_each(|subscription| self.tell_end(topic, subscription));
    }

    /// Tells the consumers of a subscription once that nothing more comes, when the topic is
    /// terminated and the subscription has nothing left to acknowledge.
    pub(super) fn tell_end(&mut self, topic: u32, subscription: u32) {
        let Some(kept) = self.state.topic(topic).filter(|topic| topic.is_terminated) else {
            return;
        };
        let record = kept.subscriptions.get(&subscription);
        let record = self.invariants.need(record, Invariant::SubscriptionKept, None);
        let Some(record) = record else { return };
        if has_open(&kept.entries, &record.cursor) {
            return;
        }
        // Without consumers there is nothing to send.
        let Some(dispatcher) = self.dispatcher(topic, subscription) else { return };
        for key in dispatcher.tell_end() {
            // After the SUCCESS of a new consumer.
            self.send_after_commit(key.conn, CommandReachedEndOfTopic { consumer_id: key.id });
        }
    }
}

/// Whether a readable entry is unacknowledged. Removed entries do not count.
fn has_open(entries: &TopicEntries, cursor: &Cursor) -> bool {
    let mut at = cursor.next_unacked(entries.first());
    while at < entries.end() {
        let here = entries.next_here(at);
        at = cursor.next_unacked(here);
        if at == here {
            return here < entries.end();
        }
    }
    false
}
