//! Topics that have ended: nothing more can be published to them, and consumers that have read everything are told so.

use super::Machine;
use super::dispatcher::ConsumerKey;
use super::effect::Refusal;
use crate::state::change::Terminate;
use longhaul_wire::messages::{CommandReachedEndOfTopic, ServerError};

impl Machine {
    /// Ends a topic for ever, with what was published so far.
    pub(super) fn terminate(&mut self, topic: u32) -> Result<(), Refusal> {
        let Some(kept) = self.state.topic(topic) else { return Ok(()) };
        if kept.is_terminated {
            return Ok(());
        }
        let subscriptions: Vec<u32> = kept.subscriptions.keys().copied().collect();
        self.change(Terminate { topic })?;
        // Their clients ask for them again, and are told that it has ended.
        self.close_producers(topic);
        subscriptions.into_iter().for_each(|it| self.tell_end(topic, it, None));
        Ok(())
    }

    /// Refuses who would publish to a topic that has ended.
    pub(super) fn check_end(&self, topic: u32) -> Result<(), Refusal> {
        match self.state.topic(topic) {
            Some(it) if it.is_terminated => {
                let text = format!("{} was terminated: nothing more can be published", it.name);
                Err(Refusal::new(ServerError::TopicTerminatedError, text))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Tells the consumers of a subscription, or one alone, that nothing more comes, once everything is acknowledged and the topic has ended.
    pub(super) fn tell_end(&mut self, topic: u32, subscription: u32, only: Option<ConsumerKey>) {
        let Some(kept) = self.state.topic(topic).filter(|it| it.is_terminated) else { return };
        let Some(record) = kept.subscriptions.get(&subscription) else { return };
        let entries = &kept.entries;
        let open = record.cursor.open_between(entries.first(), entries.end());
        if open.min(entries.count()) > 0 {
            return;
        }
        let Some(dispatcher) = self.dispatcher(topic, subscription) else { return };
        let keys = dispatcher.consumers().iter().map(|it| it.key);
        let keys: Vec<ConsumerKey> =
            keys.filter(|&it| only.is_none_or(|only| it == only)).collect();
        for key in keys {
            // Behind the SUCCESS of a consumer that has just come.
            self.send_after_commit(key.conn, CommandReachedEndOfTopic { consumer_id: key.id });
        }
    }
}
